"""`sottovoce report`: a page about one run."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(help="Folder that sottovoce train --out has left.", metavar="RUN")],
    out: Annotated[Path | None, typer.Option(help="The page. Default: report.html in the folder.")] = None,
) -> None:
    """Write a web page about a run: one file, which works offline."""
    from sottovoce.studies import folder
    from sottovoce.studies.report import run_page

    page = run / run_page.PAGE if out is None else out
    run_page.write_run_page(folder.read(run), page)
    print(f"Written to {page}.")
