"""Certificates for mutual TLS: a small authority for tests and small groups.

A larger organisation has an authority of its own. Then this module is not needed, and `server-config` is told how its
certificates name the sites. The authority can let anyone connect, but cannot forge anything: messages and agreements
are signed with the sites' own keys (`identity`), which no authority ever sees.

    ca.cert.pem, ca.key.pem           the authority; the key stays with whoever runs it
    server.cert.pem, server.key.pem   for the message server; good for serving only
    NAME.cert.pem, NAME.key.pem       for one site, or for the operator; good for connecting only

The message server reads a site's name off the certificate's one DNS entry (subject alternative name), which is the
bare name of the site. Keys are on the curve P-256.
"""

import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, final

from sottovoce.errors import InputError, expect
from sottovoce.federation.agreement.identity import AUTHORITY, OPERATOR, SERVER, check_site_name
from sottovoce.federation.agreement.key_files import read_secret, write_public, write_secret

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_LONGEST_DAYS = 3650
# Clocks of different machines differ a little.
_BACKDATED = timedelta(minutes=10)
_HOST = re.compile(r"(?=.{1,253}$)(?!-)[a-zA-Z0-9-]{1,63}(?:\.(?!-)[a-zA-Z0-9-]{1,63})*")


@final
@dataclass(frozen=True)
class TLSFiles:
    """The PEM files that one end of a mutual TLS connection needs."""

    authority: Path
    certificate: Path
    key: Path

    @classmethod
    def within(cls, folder: Path, name: str) -> "TLSFiles":
        """The files in this folder for one name, as this module writes them."""
        return cls(folder / f"{AUTHORITY}.cert.pem", folder / f"{name}.cert.pem", folder / f"{name}.key.pem")

    def context(self) -> ssl.SSLContext:
        """The TLS context of a client: TLS 1.3, the server's name is checked, only this authority is trusted."""
        read_secret(self.key)  # refuses a key that others can read
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # Strictly RFC 5280: a certificate without its key identifiers, for example, is refused.
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        try:
            context.load_verify_locations(cafile=self.authority)
            context.load_cert_chain(self.certificate, self.key, password=self._refuse_passphrase)
        except ssl.SSLError as error:
            raise InputError(
                "Expected PEM files of an authority, a certificate and its key, got "
                f"authority={str(self.authority)!r}, certificate={str(self.certificate)!r}, key={str(self.key)!r}: "
                f"{error.reason or 'not PEM'}."
            ) from error
        return context

    def _refuse_passphrase(self) -> str:
        """Refuse an encrypted key. OpenSSL would otherwise ask for its passphrase on the terminal."""
        raise InputError(f"Expected a private key without a passphrase, got {str(self.key)!r}. Take it off first.")


def create_authority(folder: Path, name: str = "sottovoce", days: int = 730) -> Path:
    """Make a new authority in this folder, and the folder if needed. Returns the path of its certificate.

    Args:
        folder: for ca.cert.pem and ca.key.pem. An existing authority is never replaced.
        name: for people, 1 to 60 characters.
        days: its validity. No certificate that it signs may be valid for longer.
    """
    from cryptography import x509

    expect(1 <= len(name) <= 60 and name.isprintable(), "a name of 1 to 60 characters for the authority", name=name)
    folder.mkdir(parents=True, exist_ok=True)
    key, subject = _new_key(), _common_name(name)
    until = _end(days)
    builder = _builder(subject, subject, key, key, until)
    # Signs certificates of members, and no further authorities.
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return _save(folder, AUTHORITY, key, builder, key).certificate


def issue_site(folder: Path, site: str, days: int = 365) -> TLSFiles:
    """Make a certificate and key for one site, to connect with, valid for `days` days. The authority lies in the same
    folder.
    """
    check_site_name(site)
    return _issue_client(folder, site, days)


def issue_operator(folder: Path, days: int = 365) -> TLSFiles:
    """Make a certificate and key for the operator, who opens runs on the message server; valid for `days` days."""
    return _issue_client(folder, OPERATOR, days)


def issue_server(folder: Path, hosts: Sequence[str] = LOOPBACK, days: int = 365) -> TLSFiles:
    """Make a certificate and key for the message server.

    Args:
        folder: of the authority, and for the new files.
        hosts: all names and addresses that sites will use for the server. Others will be refused.
        days: its validity.
    """
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    expect(len(hosts) > 0, "at least one host name or address of the server", hosts=list(hosts))
    names = x509.SubjectAlternativeName([_host(host) for host in hosts])
    return _issue(folder, SERVER, names, ExtendedKeyUsageOID.SERVER_AUTH, days)


def _issue_client(folder: Path, name: str, days: int) -> TLSFiles:
    """Make a certificate for connecting, with the bare name as its only DNS entry."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    names = x509.SubjectAlternativeName([x509.DNSName(name)])
    return _issue(folder, name, names, ExtendedKeyUsageOID.CLIENT_AUTH, days)


def _issue(
    folder: Path, name: str, names: "x509.SubjectAlternativeName", purpose: "x509.ObjectIdentifier", days: int
) -> TLSFiles:
    """Make a key and a certificate signed by the authority in this folder; refused if it would outlive the authority.

    Args:
        folder: of the authority, and for the new files.
        name: of the files, and the common name.
        names: the subject's alternative names, which the other end checks.
        purpose: serving or connecting, never both.
        days: its validity.
    """
    from cryptography import x509

    authority, authority_key = _load_authority(folder)
    # The server would refuse a certificate that outlives its authority, possibly in the middle of a run.
    until, last = _end(days), authority.not_valid_after_utc
    if until > last:
        raise InputError(
            f"Expected a certificate that ends no later than its authority, on {last:%Y-%m-%d}, got days={days}. "
            "Ask for fewer days, or make a new authority."
        )
    key = _new_key()
    builder = _builder(_common_name(name), authority.subject, key, authority_key, until)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    builder = builder.add_extension(names, critical=False)
    return _save(folder, name, key, builder, authority_key)


def _load_authority(folder: Path) -> "tuple[x509.Certificate, EllipticCurvePrivateKey]":
    """The authority's certificate and private key; refused if others may read the key."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    files = TLSFiles.within(folder, AUTHORITY)
    if not files.certificate.exists():
        raise InputError(
            f"Expected an authority in folder {str(folder)!r}, got no {files.certificate.name}. Make one there first."
        )
    secret = read_secret(files.key)
    try:
        key = load_pem_private_key(secret, password=None)
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise InputError(f"Expected PEM files of an authority that this command made, in folder {str(folder)!r}.")
    return certificate, key


def _builder(
    subject: "x509.Name", issuer: "x509.Name", key: "EllipticCurvePrivateKey", issuer_key: "EllipticCurvePrivateKey",
    until: datetime,
) -> "x509.CertificateBuilder":  # fmt: skip
    """The parts of every certificate: names, keys, a random serial number and the period of validity."""
    from cryptography import x509

    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - _BACKDATED)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )


def _save(
    folder: Path, name: str, key: "EllipticCurvePrivateKey", builder: "x509.CertificateBuilder",
    issuer_key: "EllipticCurvePrivateKey",
) -> TLSFiles:  # fmt: skip
    """Sign the certificate, and write it and its key as new files."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    files = TLSFiles.within(folder, name)
    # The key first, so that no certificate is ever there without its key.
    write_secret(files.key, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    write_public(files.certificate, builder.sign(issuer_key, SHA256()).public_bytes(Encoding.PEM))
    return files


def _new_key() -> "EllipticCurvePrivateKey":
    """A new key on the curve P-256, which every TLS library supports."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _common_name(name: str) -> "x509.Name":
    """A subject with nothing but a common name."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(signs_certificates: bool) -> "x509.KeyUsage":
    """The key's usage: signing certificates (the authority) or authentication (all others), never both."""
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _end(days: int) -> datetime:
    """The end of validity, that many days from now."""
    expect(1 <= days <= _LONGEST_DAYS, f"1 <= days <= {_LONGEST_DAYS}", days=days)
    return datetime.now(UTC) + timedelta(days=days)


def _host(host: str) -> "x509.GeneralName":
    """A host as a certificate holds it: as an IP address or a DNS name."""
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        expect(_HOST.fullmatch(host) is not None, "a host name or an IP address", host=host)
        return x509.DNSName(host)
