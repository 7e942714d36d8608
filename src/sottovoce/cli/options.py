"""Command options made from the fields of a dataclass, and help texts that show its defaults."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from inspect import Parameter, Signature
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

from sottovoce.errors import InputError

_WORDS = {int: "a whole number", float: "a number"}


def signature_of(config: type[Any], /, **own: Any) -> Signature:
    """A command's signature: one option per field of `config`, None where not given, then the command's `own`.

    Values come as text, for `values` to read: a mistake is then worded here, and says what came.
    """
    parameters = []
    for name, kind in _kinds(config).items():
        about = config.__dataclass_fields__[name].metadata
        if kind is bool:  # a switch takes no text that could be mistaken
            flags = f"--{name.replace('_', '-')}/--no-{name.replace('_', '-')}"
            switch = typer.Option(flags, help=about["help"], rich_help_panel=about["panel"])
            parameters.append(_keyword(name, Annotated[bool | None, switch], None))
            continue
        if kind is tuple:
            repeated = typer.Option(help=about["help"], rich_help_panel=about["panel"], metavar="NAME")
            parameters.append(_keyword(name, Annotated[list[str] | None, repeated], None))
            continue
        shown = {str: "TEXT", int: "INTEGER", float: "NUMBER"}[kind]
        text = typer.Option(help=about["help"], rich_help_panel=about["panel"], metavar=shown)
        parameters.append(_keyword(name, Annotated[str | None, text], None))
    for name, annotation in own.items():
        parameters.append(_keyword(name, annotation, False if get_args(annotation)[0] is bool else None))
    return Signature(parameters)


def values(config: type[Any], given: Mapping[str, str | bool | list[str] | None]) -> dict[str, Any]:
    """The options that were given, as the types of their fields; refuses text that is no such number."""
    kinds, found = _kinds(config), dict[str, Any]()
    for name, text in given.items():
        if text is None or text == []:
            continue
        kind = kinds[name]
        try:
            found[name] = text if kind is bool else kind(text)
        except ValueError:
            flag = name.replace("_", "-")
            raise InputError(f"Expected {_WORDS[kind]} for --{flag}, got {text!r}. Correct it.") from None
    return found


def _kinds(config: type[Any]) -> dict[str, type[Any]]:
    """Type of every field that is an option: int, float, str, bool, or a tuple of texts; it may be None or not."""
    hints = get_type_hints(config)
    found = {f.name: (get_args(hints[f.name]) or (hints[f.name],))[0] for f in fields(config) if f.metadata}
    return {name: get_origin(kind) or kind for name, kind in found.items()}


def _keyword(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


class HelpfulCommand(TyperCommand):
    """A command whose help shows defaults and choices that live in the library.

    They are fetched when help is asked for, not before: the library takes a second to import.
    """

    @abstractmethod
    def facts(self) -> tuple[Mapping[str, Any], Mapping[str, Sequence[str]]]:
        """Defaults and choices, by option."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help with defaults and choices. The command is made anew for every call: nothing else changes."""
        defaults, choices = self.facts()
        for parameter in self.params:
            p: Any = parameter
            if p.name in choices:
                p.help = f"{p.help} One of: {', '.join(choices[p.name])}."
            if p.default is None:
                p.default = defaults.get(p.name)
        super().format_help(ctx, formatter)
