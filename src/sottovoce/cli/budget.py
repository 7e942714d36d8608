"""`sottovoce budget`: a file that says what may still be spent on one data set."""

import json as json_module
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from sottovoce.errors import InputError

budget_app = typer.Typer(
    name="budget",
    help="One budget for everything that is ever trained on a data set: create it, show it.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_File = Annotated[Path, typer.Argument(help="Budget file.", metavar="FILE")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
ADDS_UP = (
    "Every release from the same rows costs, and costs add up: nothing counts them here. Give the budget of these "
    "rows: --budget FILE."
)


@budget_app.command()
def new(
    file: _File,
    epsilon: Annotated[float, typer.Option(help="Epsilon of everything together.")],
    delta: Annotated[float, typer.Option(help="Delta of everything together.")] = 1e-5,
    mixed: Annotated[
        bool,
        typer.Option("--mixed", help="Allow charges of any kind at any time, for about a tenth more epsilon."),
    ] = False,
    rows_per_person: Annotated[
        int | None, typer.Option(help="Protect people: most rows of one person at a site. Default: single rows.")
    ] = None,
    sites_per_person: Annotated[int, typer.Option(help="Most sites at which one person has rows.")] = 1,
) -> None:
    """Start a budget. Every data set has one, for all time: start it before anything is trained.

    The first charge may be anything. All later ones must have plain Gaussian noise, unless the budget is made with
    --mixed.
    """
    from sottovoce.privacy import BudgetAccountant, Unit

    unit = Unit(rows_per_person, sites_per_person)
    if file.exists():
        raise InputError(f"Expected a new file, got {str(file)!r}, which exists. What was spent cannot be taken back.")
    BudgetAccountant(epsilon, delta, mixed=mixed, unit=unit).save(file)
    print(f"Budget of epsilon = {epsilon:g}, delta = {delta:g} in {file}{', for mixtures' if mixed else ''}.")
    if unit.people:
        print(f"It protects {unit}.")


@budget_app.command("show")
def show_budget(file: _File, json: _Json = False) -> None:
    """Show what was spent and what is left.

    Several charges cost less than the sum of their epsilons: what was spent is the smallest budget of this kind that
    would take all of them, at the same delta.
    """
    from sottovoce.numerals import up
    from sottovoce.privacy import BudgetAccountant

    accountant = BudgetAccountant.load(file)
    spent, left = accountant.total(), accountant.remaining()
    if json:
        figures: dict[str, object] = {"epsilon": accountant.epsilon, "delta": accountant.delta}
        figures |= {"mixed": accountant.mixed, "releases": len(accountant), "unit": accountant.unit.words}
        print(json_module.dumps({**figures, "spent": spent.epsilon, "remaining": left.epsilon}))
        return
    kind = "charges of any kind" if accountant.mixed else "after the first charge, plain Gaussian noise only"
    print(f"Budget: epsilon = {accountant.epsilon:g}, delta = {accountant.delta:g}; {kind}.")
    if accountant.unit.people:
        print(f"Protected: {accountant.unit}.")
    print(f"Spent: epsilon = {up(spent.epsilon)} in {len(accountant)} charges.")
    print(f"Left: one more Gaussian release, or run, of epsilon = {left.epsilon:.4g} at the same delta.")


def charging(file: Path) -> Callable[[Any], None]:
    """A function that charges the file with a statement. The charge is on the disk before it returns, so that a crash
    can only count too much. It refuses what does not fit beside all that others have charged in the meantime.
    """
    from sottovoce.privacy import BudgetAccountant

    accountant = BudgetAccountant.load(file)

    def charge(statement: Any) -> None:
        accountant.spend(statement.event, statement.unit)

    return charge
