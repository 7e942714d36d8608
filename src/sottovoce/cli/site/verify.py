"""`sottovoce site verify`: who signed a model or a statement, and whether it was changed since."""

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.errors import InputError


def site_verify(
    file: Annotated[Path, typer.Argument(help="A model.safetensors or statement.txt of a site.")],
    federation: Annotated[Path, typer.Option(help="The agreement, as you have it yourself.")],
) -> None:
    """Check that a model or a statement was signed by a site of this federation, and not changed since."""
    from sottovoce.federation.agreement import toml_file
    from sottovoce.federation.agreement.identity import PublicKey
    from sottovoce.federation.agreement.signed_text import expect_member, read_signed
    from sottovoce.files import models

    agreement = toml_file.load(federation)
    if file.suffix == ".safetensors":
        model = models.load(file)
        site, agreed = str(model.provenance.get("site")), model.provenance.get("agreement")
        # Loading has checked the signature itself; here it is about who signed.
        if model.signed_by is None:
            raise InputError(f"Expected a signed model, got {str(file)!r}, which nobody has signed.")
        key = PublicKey.from_text(model.signed_by)
    else:
        try:  # bytes, so that ends of lines stay as they are: the signature is over all of them
            text = file.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            raise InputError(f"Expected a signed statement, got {str(file)!r}, which is no text.") from None
        signed = read_signed(text)
        site, key = signed.site, signed.key
        agreed = next((line.split()[-1] for line in signed.text.splitlines() if line.startswith("Agreement:")), None)
    expect_member(agreement, site, key)
    if agreed != agreement.digest().hex():
        raise InputError(f"Expected something made under this agreement, got one of agreement={agreed!r}.")
    print(f"{file}: signed by site {site} under this agreement, and unchanged. Its key is {key.fingerprint}.")
