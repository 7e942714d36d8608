"""`sottovoce site keygen`, `site seed` and `site commit`: what a site makes before there is an agreement."""

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.errors import InputError


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
    schema: Annotated[Path | None, typer.Option(help="The schema that will be agreed on; not for arrays.")] = None,
    data_norm: Annotated[float | None, typer.Option(help="For arrays: the bound on the norm of every row.")] = None,
    delimiter: Annotated[
        str | None, typer.Option(help="Field separator of a CSV file: , ; | or tab. Default: as in the schema.")
    ] = None,
    site: Annotated[
        str | None, typer.Option(help="This site's name in the agreement, where the schema has site_effects.")
    ] = None,
    sites: Annotated[str | None, typer.Option(help="Names of all sites then, with commas between them.")] = None,
) -> None:
    """Commit to rows before an agreement is made. The commitment reveals nothing about them.

    The line that is printed goes into the agreement, with: sottovoce federation new --site NAME=KEY:ROWS:COMMITMENT.
    The run then takes these rows and no others, and whoever is shown rows and salt later can check it.
    """
    import secrets

    from sottovoce.cli.site.files import read_rows
    from sottovoce.federation.agreement.key_files import write_secret
    from sottovoce.federation.site.commitment import SALT_BYTES, commit
    from sottovoce.files.schema import Schema

    made = secrets.token_bytes(SALT_BYTES)
    # Rows are read and committed to before the salt is written: a salt without a commitment would confuse.
    by = None if schema is None else Schema.load(schema).separated(delimiter)
    if by is not None and sites is not None:
        by = by.at_sites([name.strip() for name in sites.split(",")])
    commitment = commit(made, read_rows(data, by, data_norm, site=site))
    write_secret(salt, made)
    print(commitment)
