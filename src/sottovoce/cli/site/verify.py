"""`sottovoce site verify`: who signed a model, a table or a statement, and whether it was changed since."""

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.errors import InputError


def site_verify(
    file: Annotated[Path, typer.Argument(help="A model.safetensors, statement.txt or table of a site.")],
    federation: Annotated[Path, typer.Option(help="The agreement, as you have it yourself.")],
) -> None:
    """Check that a model, a table or a statement was signed by a site of this federation, and not changed since.

    A table is signed by the statement.txt beside it.
    """
    from sottovoce.cli.site.results import STATEMENT, check_listed
    from sottovoce.cli.tables import FORMS
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
        signed_in = file.with_name(STATEMENT) if file.suffix in FORMS else file
        try:  # bytes, so that ends of lines stay as they are: the signature is over all of them
            text = signed_in.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            raise InputError(f"Expected a signed statement, got {str(signed_in)!r}, which is no text.") from None
        signed = read_signed(text)
        if file.suffix in FORMS:
            check_listed(file, signed.text)
        site, key = signed.site, signed.key
        agreed = next((line.split()[-1] for line in signed.text.splitlines() if line.startswith("Agreement:")), None)
    expect_member(agreement, site, key)
    if agreed != agreement.digest().hex():
        raise InputError(f"Expected something made under this agreement, got one of agreement={agreed!r}.")
    print(f"{file}: signed by site {site} under this agreement, and unchanged. Its key is {key.fingerprint}.")
