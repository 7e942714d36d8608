"""A schema must not say anything that was read off private rows, unless a person has looked at it."""

import warnings

from sottovoce.errors import PrivacyError, PrivacyLeakWarning
from sottovoce.schema.schema import Schema

_SHOWN = 5


def note(schema: Schema) -> tuple[str, ...]:
    """What a privacy statement must say of a schema with values that nobody has reviewed; nothing if there are none."""
    if not schema.unreviewed:
        return ()
    return (f"The schema says {_listed(schema)} as read off a file, unreviewed. The guarantee does not cover this.",)


def require_reviewed(schema: Schema) -> None:
    """Refuse a schema that still has values read off a file. Call it before training."""
    if schema.unreviewed:
        raise PrivacyError(
            f"Expected a reviewed schema, got {_listed(schema)} still marked as read off a file. Replace each value by "
            "one from public knowledge or approve it, and delete its entry from unreviewed in the schema."
        )


def accept_unreviewed(schema: Schema) -> None:
    """Warn instead, where the caller accepts the leak. Models say so for good: see `note`."""
    for leak in note(schema):
        warnings.warn(leak, PrivacyLeakWarning, stacklevel=2)


def _listed(schema: Schema) -> str:
    shown, total = ", ".join(schema.unreviewed[:_SHOWN]), len(schema.unreviewed)
    return shown if total <= _SHOWN else f"{shown} and {total - _SHOWN} more"
