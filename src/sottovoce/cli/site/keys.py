"""`sottovoce site keygen`, `site seed` and `site commit`: what a site makes before there is an agreement."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from sottovoce.errors import InputError
from sottovoce.numerals import counted


def site_keygen(
    site: Annotated[str, typer.Argument(help="Name of the site: small letters, digits, hyphens.", metavar="NAME")],
    out: Annotated[Path, typer.Option(help="Folder for the two files.")] = Path(),
) -> None:
    """Make a site's key pair. The private half stays here; the public half goes to the others."""
    from sottovoce.federation.agreement.identity import SigningKey, check_site_name

    check_site_name(site)
    private, public = out / f"{site}.signing.pem", out / f"{site}.pub"
    # Checked before a private key is written, so that neither is left without the other.
    if public.exists():
        raise InputError(f"Expected no key of {site} yet, got {str(public)!r}. Choose another folder.")
    key = SigningKey.generate()
    key.save(private)
    key.public.save(public)
    print(f"Private key: {private}. Keep it here, and secret.")
    print(f"Public key:  {public}. Give it to the others, and read them the fingerprint: {key.public.fingerprint}.")


def site_seed(
    site: Annotated[str, typer.Argument(help="Name of the site, as in the agreement.", metavar="NAME")],
    key: Annotated[Path, typer.Option(help="The site's private key, from: sottovoce site keygen.")],
    out: Annotated[Path, typer.Option(help="Folder for the two files.")] = Path(),
) -> None:
    """Make a site's secret for one agreement on masked sums, and the line that goes into it."""
    from sottovoce.federation.agreement.exchange import Seed
    from sottovoce.federation.agreement.identity import SigningKey, check_site_name

    check_site_name(site)
    secret, public = out / f"{site}.seed", out / f"{site}.mask"
    # Checked before a secret is written, so that neither is left without the other.
    if public.exists():
        raise InputError(
            f"Expected no mask key of {site} yet, got {str(public)!r}. Every agreement has one of its own: choose "
            "another folder."
        )
    seed = Seed.generate()
    line = seed.mask_key(site, SigningKey.load(key))
    seed.save(secret)
    line.save(public)
    print(f"Seed:     {secret}. Keep it here, as secret as the rows, for one agreement.")
    print(f"Mask key: {public}. Give it to whoever writes the agreement.")


def site_commit(
    data: Annotated[Path, typer.Option(help="The rows: CSV or Parquet by the schema, or .npz arrays.")],
    salt: Annotated[Path, typer.Option(help="A new file for the secret salt. Keep it, and keep it secret.")],
    schema: Annotated[
        Path | None, typer.Option(help="The schema that will be agreed on, which the rows must fit; not for arrays.")
    ] = None,
    data_norm: Annotated[float | None, typer.Option(help="For arrays: the bound on the norm of every row.")] = None,
    delimiter: Annotated[
        str | None, typer.Option(help="Field separator of a CSV file: , ; | or tab. Default: as in the schema.")
    ] = None,
) -> None:
    """Commit to a data file before an agreement is made, whatever it will be about. The commitment reveals nothing.

    The line that is printed goes into the agreement, with: sottovoce federation new --site NAME=KEY:ROWS:COMMITMENT.
    The run then takes this file and no other, and whoever is shown file and salt later can check it.
    """
    import secrets

    from sottovoce.cli.site.files import array_rows, source_of
    from sottovoce.federation.agreement.key_files import write_secret
    from sottovoce.federation.site.commitment import SALT_BYTES, commit_file

    # Rows are read and committed to before the salt is written: a salt without a commitment would confuse.
    if schema is not None:
        rows = _expect_fit(data, schema, delimiter)
    elif data_norm is not None:
        rows = counted(len(array_rows(data, data_norm).labels), "row")
    else:
        raise InputError("Expected --schema, or --data-norm with the bound on the norm of every row, got neither.")
    made = secrets.token_bytes(SALT_BYTES)
    commitment = commit_file(made, source_of(data, delimiter))
    write_secret(salt, made)
    print(commitment)
    print(f"{data}: {rows}.", file=sys.stderr)


def _expect_fit(data: Path, schema: Path, delimiter: str | None) -> str:
    """How many rows a file has, in words; refused if one does not fit the schema."""
    from sottovoce.files.schema import Schema
    from sottovoce.files.schema.check import check

    report = check(data, Schema.load(schema).separated(delimiter), keep=1)
    if not report.fits:
        raise InputError(
            f"{report.problems[0].message} In file={str(data)!r}. All that does not fit: sottovoce schema check "
            f"{data} --schema {schema}."
        )
    some = "" if report.used == report.rows else f"; {report.used:,} to learn from, as the others lack a value"
    return f"{counted(report.rows, 'row')}{some}"
