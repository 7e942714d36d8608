"""`sottovoce export`: a model in the forms that other programs read."""

from io import BytesIO
from pathlib import Path
from typing import Annotated

import typer

from sottovoce.errors import InputError

FORMS = ("onnx", "sklearn")


def export(
    model: Annotated[Path, typer.Argument(help="Model file, as training leaves it: model.safetensors.")],
    to: Annotated[str, typer.Option(help="onnx: a graph for any runtime; sklearn: a fitted estimator.")],
    out: Annotated[Path, typer.Option(help="File to write; it must not exist yet.")],
    inputs: Annotated[
        str | None,
        typer.Option(help="Inputs of a graph: columns of a file, or encoded features. Default: columns if possible."),
    ] = None,
) -> None:
    """Write a model for programs that know nothing of sottovoce. The privacy guarantee of the rows goes along."""
    from sottovoce.files import models
    from sottovoce.settings import check_choice
    from sottovoce.settings.disk import writable, write_whole

    check_choice("to", to, FORMS)
    if inputs is not None and to != "onnx":
        raise InputError(f"Expected --inputs with --to onnx only, got to={to!r}. Leave it out.")
    if out.exists():
        raise InputError(f"Expected a new file, got out={str(out)!r}, which exists. Choose another.")
    loaded = models.load(model)
    if to == "sklearn":
        import joblib

        estimator, buffer = models.to_sklearn(loaded), BytesIO()
        joblib.dump(estimator, buffer)
        content, what = buffer.getvalue(), f"a {type(estimator).__name__} of {loaded.d} features"
    else:
        made = models.to_onnx(loaded, inputs)  # type: ignore[arg-type]
        content, names = made.SerializeToString(), [one.name for one in made.graph.input]
        taken = f"{loaded.d} features" if names == ["features"] and loaded.d != 1 else f"{len(names)} columns"
        what = f"a graph from {taken} to {', '.join(one.name for one in made.graph.output)}"
    with writable(out):
        write_whole(out, content)
    print(f"Written to {out}: {what}.")
    if to == "sklearn":
        print("It is a pickle: opening it runs the code in it. Open such files only from people you trust.")
