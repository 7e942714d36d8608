"""`sottovoce schema review`: a person approves, changes or deletes the columns of a drafted schema."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.output import print_json, show
from sottovoce.document import Code, Table
from sottovoce.errors import InputError

if TYPE_CHECKING:
    from sottovoce.files.schema import Schema
    from sottovoce.files.schema.review import ReviewQuestion

_SHOWN = 6  # columns of a group, and values of a list, that a question shows
_HELP = """y         all of this is public, or harmless: keep it
LOW HIGH  set other bounds: two numbers that hold for anyone, such as 0 120
d         delete the column from the schema; it is not used
o         ask about these columns one by one
l         decide later
a         show all
q         quit; answers so far are kept"""
_HINTS = {
    "label": "Take the classes, or bounds, from the code book; check which class is the positive one.",
    "numeric": "Bounds should hold for anyone: a legal age, the range of an instrument. Codes are no numbers.",
    "age": "Years up to a public date. Bounds should hold for anyone.",
    "season": "",
    "categorical": "Take the list from a code book. A rare category can name a person: edit the file, or delete it.",
    "boolean": "Decide from public knowledge, not from the file, whether values can be missing.",
}


def review(
    schema: Annotated[Path, typer.Argument(help="Schema file, as drafted.", metavar="SCHEMA")],
    yes: Annotated[
        list[str] | None, typer.Option(help="Approve all that was taken from this column as public. May be repeated.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List what is left to review, and change nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, and ask nothing.")] = False,
) -> None:
    """Review a draft column by column. Every answer is written at once, so you may stop and go on at any time.

    Columns with the same values from the file are one question. Comments in the file stay.
    """
    from sottovoce.files.schema import parse

    text = parse.read_text(schema)
    work = _Work(schema, text)
    if yes:
        work.approve_columns(yes)
    if json:
        work.print_json()
    elif listed or yes:
        work.show_list()
    else:
        work.ask()


class _Work:
    """A schema file under review."""

    def __init__(self, path: Path, text: str) -> None:
        from sottovoce.files.schema import Schema

        self.path, self.text = path, text
        self.schema: Schema = Schema.load(path)

    # -- without questions ---------------------------------------------------------------------------------------

    def approve_columns(self, names: list[str]) -> None:
        """Approve all that was found in these columns, as `--yes` asks; refuses unknown ones."""
        from sottovoce.files.schema.review import entries_of

        self._approve(entries_of(self.schema, names))

    def print_json(self) -> None:
        """Print the questions that are left as one JSON object."""
        from sottovoce.files.schema.review import questions

        left = len(self.schema.unreviewed)
        print_json({"schema": self.path, "left": left, "questions": questions(self.schema)})

    def show_list(self) -> None:
        """Print the questions that are left as a table."""
        from sottovoce.files.schema.review import questions

        asked = questions(self.schema)
        if asked:
            rows = [(_names(question), question.kind, _found(question.found, _SHOWN)) for question in asked]
            show(Table(("columns", "kind", "from the file"), rows))
        self._conclude()

    # -- with questions ------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask every question once; what is put off is left for another time."""
        from sottovoce.files.schema.review import questions

        waiting = questions(self.schema)
        if waiting:
            show(Code(_HELP))
        total, done = len(waiting), 0
        while waiting:
            question = waiting.pop(0)
            done += 1
            answer = self._answer(question, f"{done} of {total}")
            if answer == "q":
                break
            if answer == "o":
                parts = question.split()
                waiting, total, done = [*parts, *waiting], total + len(parts) - 1, done - 1
        self._conclude()

    def _answer(self, question: "ReviewQuestion", count: str) -> str:
        """Ask until there is an answer, and do what it says."""
        show("", f"[{count}] {question.kind}: {_names(question)}")
        show(f"  {_found(question.found, _SHOWN)}")
        if _HINTS.get(question.kind):
            show(f"  {_HINTS[question.kind]}")
        while True:
            try:
                answer = str(typer.prompt("  Keep? y, two numbers, d, o, l, a or q", prompt_suffix=" > ")).strip()
            except typer.Abort:
                return "q"  # the end of the input: all answers so far are written
            if answer == "a":
                show(f"  {', '.join(question.columns)}", f"  {_found(question.found, None)}")
            elif self._carry_out(question, answer):
                return answer

    def _carry_out(self, question: "ReviewQuestion", answer: str) -> bool:
        """Do what the answer says. False if it is refused: the reason is printed, and the question is asked again."""
        try:
            if answer == "y":
                self._approve(question.entries)
            elif answer == "d":
                self._delete(question)
            elif len(answer.split()) == 2:
                self._bound(question, answer)
            elif answer not in ("o", "l", "q"):
                raise InputError(f"Expected y, two numbers, d, o, l, a or q, got {answer[:40]!r}.")
        except InputError as error:
            show(f"  {error}")
            return False
        return True

    def _bound(self, question: "ReviewQuestion", answer: str) -> None:
        """Set other bounds, and cut as many bins between them as there were; refuses columns without bounds."""
        from sottovoce.files.schema.columns import Ranged
        from sottovoce.files.schema.editing import with_column
        from sottovoce.files.schema.round_numbers import edges_between
        from sottovoce.files.schema.values import check_bounds

        try:
            low, high = map(float, answer.split())
        except ValueError:
            raise InputError(f"Expected two numbers, low and high, got {answer[:40]!r}.") from None
        if "bounds" not in question.found or question.kind == "label":
            raise InputError(f"Expected a column with bounds, got a {question.kind}. Edit the file by hand.")
        check_bounds("bounds", (low, high))
        text, schema = self.text, self.schema
        for name in question.columns:
            column = next(column for column in schema.columns if column.name == name)
            assert isinstance(column, Ranged)
            changes: dict[str, Any] = {"bounds": (low, high)}
            if column.edges is not None:
                changes["edges"] = edges_between(low, high, len(column.edges) + 1)
            text = with_column(text, schema, name, changes)
            schema = type(schema).loads(text)
        self._keep(text, schema)
        self._approve(question.entries)

    def _delete(self, question: "ReviewQuestion") -> None:
        from sottovoce.files.schema.editing import without_column

        if question.kind == "label":
            raise InputError("Expected a column that can be deleted, got the label. Answer y, l or q.")
        text, schema = self.text, self.schema
        for name in question.columns:
            text = without_column(text, schema, name)
            schema = type(schema).loads(text)
        self._keep(text, schema)

    def _approve(self, entries: tuple[str, ...]) -> None:
        from sottovoce.files.schema.editing import with_unreviewed
        from sottovoce.files.schema.review import left_after

        text = with_unreviewed(self.text, self.schema, left_after(self.schema, entries))
        self._keep(text, type(self.schema).loads(text))

    def _keep(self, text: str, schema: "Schema") -> None:
        """Write the file, whole, unless somebody else has changed it meanwhile."""
        from sottovoce.files.schema import parse
        from sottovoce.settings.disk import writable, write_whole

        if parse.read_text(self.path) != self.text:
            raise InputError(f"Expected nobody else to edit schema={str(self.path)!r} meanwhile. Begin again.")
        with writable(self.path):
            write_whole(self.path, text.encode())
        self.text, self.schema = text, schema

    def _conclude(self) -> None:
        from sottovoce.files.schema.review import questions

        left = len(questions(self.schema))
        show("All is reviewed." if not left else f"Left to review: {left}, with `sottovoce schema review`.")


def _names(question: "ReviewQuestion") -> str:
    more = len(question.columns) - _SHOWN
    return ", ".join(question.columns[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _found(found: dict[str, Any], most: int | None) -> str:
    return "; ".join(f"{key} {_value(value, most)}" for key, value in found.items())


def _value(value: Any, most: int | None) -> str:
    if not isinstance(value, list):
        return f"{value:g}" if isinstance(value, float) else str(value)
    parts = [_value(part, None) for part in value[:most]]
    return ", ".join(parts) + (f" and {len(value) - len(parts)} more" if len(value) > len(parts) else "")
