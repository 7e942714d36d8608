"""Settings, read once: plain data from a file to typed objects, and back to TOML.

`reading` turns tables into dataclasses by their type hints and words what is wrong with them; `toml` is text in and
out. Which algorithm a name stands for is in `sottovoce.algorithms.registry`.
"""

from sottovoce.settings.reading import (
    Table,
    brief,
    check_choice,
    check_keys,
    choose,
    made_by,
    read,
    tagged,
    typed,
    untag,
)
from sottovoce.settings.toml import load, multiline, pairs, parse, toml, underscored

__all__ = [
    "Table",
    "brief",
    "check_choice",
    "check_keys",
    "choose",
    "load",
    "made_by",
    "multiline",
    "pairs",
    "parse",
    "read",
    "tagged",
    "toml",
    "typed",
    "underscored",
    "untag",
]
