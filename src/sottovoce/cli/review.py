"""`sottovoce schema review`: a person decides a few things in a drafted schema, and signs off the rest as one page."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.output import print_json, show
from sottovoce.document import Table, Words
from sottovoce.errors import InputError

if TYPE_CHECKING:
    from sottovoce.files.schema.review import PageRow

_WARNING = (
    "These values were read from the file. Sign only if they hold whoever is in it: bounds from a law or an "
    "instrument, levels from a code book. The oldest age or a rare level can point at a person."
)
_ANSWERS = "y signs all of it; NAME LOW HIGH sets bounds; drop NAME, NAME leaves columns out; Enter for later"
_GAPS = {"refuse": "refused", "row": "row left out", "indicator": "own feature", "fill": "filled in"}


def review(
    schema: Annotated[Path, typer.Argument(help="Schema file, as drafted.", metavar="SCHEMA")],
    listed: Annotated[bool, typer.Option("--list", help="Show what is left to review, and change nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, and ask nothing.")] = False,
) -> None:
    """Review a draft: a few questions, then one page with all that was read from the file, to be signed off.

    Every answer is written at once, so you may stop, edit the file, and go on at any time. Comments in the file stay.
    """
    from sottovoce.files.schema import parse

    work = _Work(schema, parse.read_text(schema))
    if json:
        work.print_json()
    elif listed:
        work.show_page()
        work.conclude()
    else:
        work.ask()


class _Work:
    """A schema file under review."""

    def __init__(self, path: Path, text: str) -> None:
        from sottovoce.files.schema import Schema

        self.path, self.text = path, text
        self.schema: Schema = Schema.load(path)

    # -- without questions ---------------------------------------------------------------------------------------

    def print_json(self) -> None:
        """Print what is left as one JSON object."""
        from sottovoce.files.schema.review import decisions, page

        left = {"decisions": decisions(self.schema), "page": page(self.schema)}
        print_json({"schema": self.path, "unreviewed": len(self.schema.unreviewed), **left})

    def show_page(self) -> None:
        """Print what is to be signed off, whole, and what was decided and left out."""
        from sottovoce.files.schema.draft import LEFT_OUT
        from sottovoce.files.schema.review import page, supplied, term_words
        from sottovoce.numerals import counted

        rows, person = page(self.schema), self.schema.person
        if not rows:
            return
        show("", Words(f"Review of {self.path}", "strong"), f"Learns {self.schema.label.name}: {self._label()}.")
        if person is None:
            show("Protects single rows, not people who have several.")
        else:
            show(f"Protects everybody named in {person.column}, with at most {counted(person.rows, 'row')} each.")
        left_out = [line.lstrip("# ") for line in self.text.splitlines() if line.startswith(f"# {LEFT_OUT}")]
        cells = [
            (", ".join(row.columns), row.kind, _values(row), _GAPS.get(str(row.found.get("missing")), ""))
            for row in rows
        ]
        told = [*term_words(self.schema), *([supplied(self.schema)] if supplied(self.schema) else [])]
        show(*left_out, *told, "", _WARNING, Table(("column", "kind", "read from the file", "gaps"), cells))

    def _label(self) -> str:
        positive = getattr(self.schema.label, "positive", None)
        return self.schema.label.meaning() if positive is None else f"its positive class is {positive}"

    def conclude(self) -> None:
        """Say what is left to review."""
        from sottovoce.files.schema.review import PERSON_ROWS, POSITIVE, decisions, page

        words = {POSITIVE: "the positive class", PERSON_ROWS: "the rows of a person"}
        left = [words[entry] for entry in decisions(self.schema)]
        left += ["the page to sign off"] if page(self.schema) else []
        show(f"Left to review: {', '.join(left)}. Answers so far are kept." if left else "All is reviewed.")

    # -- with questions ------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask for every decision, then for the signature. The end of the input leaves the rest for another time."""
        from sottovoce.files.schema.review import PERSON_ROWS, POSITIVE, page

        try:
            if POSITIVE in self.schema.unreviewed:
                self._ask_positive()
            if PERSON_ROWS in self.schema.unreviewed:
                self._ask_person_rows()
            self.show_page()
            if page(self.schema):
                self._until_done(_ANSWERS, "", self._signed, lambda: bool(page(self.schema)))
        except typer.Abort:
            show("")
        self.conclude()

    def _has(self, entry: str) -> Callable[[], bool]:
        return lambda: entry in self.schema.unreviewed

    def _ask_positive(self) -> None:
        from sottovoce.files.schema.editing import with_positive
        from sottovoce.files.schema.review import POSITIVE

        classes = self.schema.classes
        assert classes is not None  # or no class could be positive
        asked = f"{self.schema.label.name}: which class is the positive one, {classes[0]} or {classes[1]}?"
        self._until_done(
            asked, classes[1], lambda answer: with_positive(self.text, self.schema, answer), self._has(POSITIVE)
        )

    def _ask_person_rows(self) -> None:
        from sottovoce.files.schema.editing import with_person_rows
        from sottovoce.files.schema.review import PERSON_ROWS

        person = self.schema.person
        assert person is not None  # or there would be nothing to decide

        def limited(answer: str) -> str:
            if not answer.isdecimal():
                raise InputError(f"Expected a whole number of rows, got {answer[:40]!r}.")
            return with_person_rows(self.text, self.schema, int(answer) or None)

        asked = (
            f"{person.column}: at most how many rows has one of them? More rows cost more noise. 0 protects single "
            "rows, not people."
        )
        self._until_done(asked, str(person.rows), limited, self._has(PERSON_ROWS))

    def _signed(self, answer: str) -> str:
        """The text after an answer to the page."""
        from sottovoce.files.schema.editing import with_bounds, with_unreviewed, without_columns
        from sottovoce.files.schema.review import decisions

        if answer == "y":
            return with_unreviewed(self.text, self.schema, decisions(self.schema))
        words = answer.rsplit(maxsplit=2)
        if len(words) == 3 and (bounds := _two_numbers(words[1:])) is not None:
            return with_bounds(self.text, self.schema, words[0], *bounds)
        if answer.startswith("drop "):
            return without_columns(self.text, self.schema, answer.removeprefix("drop ").strip())
        raise InputError(f"Expected y, NAME LOW HIGH, drop NAME, NAME or Enter, got {answer[:40]!r}.")

    def _until_done(self, asked: str, proposed: str, changed: Callable[[str], str], left: Callable[[], bool]) -> None:
        """Ask, and write the text as the answer changes it, until nothing is left or nothing is answered. If an answer
        is refused, the reason is printed.
        """
        while left():
            prompt = typer.prompt(asked, default=proposed, show_default=bool(proposed), prompt_suffix=" > ")
            if not (answer := str(prompt).strip()):
                return
            try:
                text = changed(answer)
            except InputError as error:
                show(str(error))
                continue
            self._keep(text)
            if left():
                show("Changed.")

    def _keep(self, text: str) -> None:
        """Write the file, whole, unless somebody else has changed it meanwhile."""
        from sottovoce.files.schema import parse
        from sottovoce.settings.disk import writable, write_whole

        if parse.read_text(self.path) != self.text:
            raise InputError(f"Expected nobody else to edit schema={str(self.path)!r} meanwhile. Begin again.")
        with writable(self.path):
            write_whole(self.path, text.encode())
        self.text, self.schema = text, type(self.schema).loads(text)


def _two_numbers(words: list[str]) -> tuple[float, float] | None:
    try:
        low, high = map(float, words)
    except ValueError:
        return None
    return low, high


def _values(row: "PageRow") -> str:
    """What was read of these columns, in words. Nothing of it is left out: it is signed."""
    from sottovoce.files.schema.names import usual_bounds

    parts = list[str]()
    for key, value in row.found.items():
        if key == "bounds":
            usual = all(usual_bounds(name) == tuple(value) for name in row.columns)
            parts.append(f"{_value(value[0])} to {_value(value[1])}" + (", as usual" if usual else ""))
        elif key == "edges":
            parts.append(f"cut at {_value(value)}")
        elif key == "reference":
            parts.append(f"compared with {_value(value)}")
        elif key in ("categories", "classes"):
            parts.append(_value(value))
        elif key not in ("kind", "missing"):
            parts.append(f"{key} {_value(value)}")
    return "; ".join(parts)


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    return f"{value:.15g}" if isinstance(value, float) else str(value)
