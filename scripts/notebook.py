"""Runs the notebook of the tutorial from its first cell to its last, and stores what the cells put out.

Noise comes from the operating system, so the outputs differ from run to run. Those in the file are of one run of this
script (`make notebook`); the tests run the cells again and throw their outputs away. No kernel is started: cells of
plain Python need none.
"""

import ast
import base64
import contextlib
import io
import json
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

NOTEBOOK = Path(__file__).parents[1] / "docs" / "tutorial" / "notebook.ipynb"
_DPI = 110  # of figures


def read(path: Path = NOTEBOOK) -> dict[str, Any]:
    """The notebook as its file has it."""
    return cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))


def executed(notebook: dict[str, Any], folder: Path, scope: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of its cells, run in order, in this process and in that folder. The first cell that
    fails ends it with its error. Names that the cells define are left in `scope`.
    """
    import matplotlib as mpl

    mpl.use("Agg")  # figures are stored, not shown
    from matplotlib import pyplot as plt

    plt.close("all")  # those of the caller are no output of the first cell
    scope["__name__"] = "__main__"
    cells, count = [], 0
    with contextlib.chdir(folder):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                count += 1
                outputs = _outputs("".join(cell["source"]), scope, count)
                cells.append({**cell, "execution_count": count, "outputs": outputs})
            else:
                cells.append(cell)
    return {**notebook, "cells": cells}


def _outputs(source: str, scope: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """What one cell puts out: what it printed, its last value unless a semicolon hides it, and its figures."""
    tree, printed, value = ast.parse(source), io.StringIO(), None
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {count}", "exec"), scope)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {count}", "eval"), scope)
    found: list[dict[str, Any]] = []
    if printed.getvalue():
        found.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    if value is not None and not source.rstrip().endswith(";"):
        found.append({"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": _data(value)})
    for png in _figures():
        data = {"image/png": base64.b64encode(png).decode()}
        found.append({"output_type": "display_data", "metadata": {}, "data": data})
    return found


def _data(value: object) -> dict[str, list[str]]:
    """A value in the forms that it has."""
    html = getattr(value, "_repr_html_", None)
    shown = {} if html is None else {"text/html": _lines(html())}
    return {**shown, "text/plain": _lines(repr(value))}


def _figures() -> Iterator[bytes]:
    """The figures that a cell has made, as files."""
    from matplotlib import pyplot as plt

    for number in plt.get_fignums():
        file = io.BytesIO()
        plt.figure(number).savefig(file, format="png", dpi=_DPI, bbox_inches="tight", metadata={"Software": None})
        yield file.getvalue()
    plt.close("all")


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def write(notebook: dict[str, Any], path: Path = NOTEBOOK) -> None:
    """Write the file. Cells without a name get one, as the format wants it."""
    cells = [{"id": uuid.uuid4().hex[:8], **cell} for cell in notebook["cells"]]
    path.write_text(json.dumps({**notebook, "cells": cells}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """Run the notebook in an empty folder and store its outputs."""
    with tempfile.TemporaryDirectory() as folder:
        notebook = executed(read(), Path(folder), {})
    write(notebook)


if __name__ == "__main__":
    main()
