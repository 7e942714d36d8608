import ssl
import stat
from contextlib import suppress
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID

from sottovoce.errors import InputError, PrivacyError
from sottovoce.federation.agreement import certificates
from sottovoce.federation.agreement.certificates import TLSFiles


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("authority")
    certificates.create_authority(made, "Tests")
    certificates.issue_server(made, ["localhost", "127.0.0.1", "nats.example.org"])
    certificates.issue_site(made, "berlin")
    certificates.issue_operator(made)
    return made


def server_context(files):
    """A server that asks for a certificate, as strict as OpenSSL can be."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_verify_locations(files.authority)
    context.load_cert_chain(files.certificate, files.key)
    return context


def handshake(server, client, host="localhost"):
    """Both ends in memory; returns what the server sees of the client."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends[1].getpeercert()


def certificate(folder, name):
    return x509.load_pem_x509_certificate(TLSFiles.within(folder, name).certificate.read_bytes())


def test_both_ends_accept_each_other(folder):
    server = server_context(TLSFiles.within(folder, "server"))
    for host in ("localhost", "127.0.0.1", "nats.example.org"):
        seen = handshake(server, TLSFiles.within(folder, "berlin").context(), host)
        assert seen["subjectAltName"] == (("DNS", "berlin"),)
        assert (("commonName", "berlin"),) in seen["subject"]


def test_another_host_name_is_refused(folder):
    server = server_context(TLSFiles.within(folder, "server"))
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(server, TLSFiles.within(folder, "berlin").context(), "evil.example.org")


def test_a_site_cannot_pose_as_the_server_nor_the_server_as_a_site(folder):
    berlin, server = TLSFiles.within(folder, "berlin"), TLSFiles.within(folder, "server")
    with pytest.raises(ssl.SSLCertVerificationError, match="unsuitable certificate purpose"):
        handshake(server_context(berlin), TLSFiles.within(folder, "operator").context(), "berlin")
    with pytest.raises(ssl.SSLCertVerificationError, match="unsuitable certificate purpose"):
        handshake(server_context(server), server.context())


def test_another_authority_is_not_believed(folder, tmp_path):
    certificates.create_authority(tmp_path, "Tests")
    foreign = certificates.issue_site(tmp_path, "berlin")
    server = server_context(TLSFiles.within(folder, "server"))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, replace(foreign, authority=folder / "ca.cert.pem").context())
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, replace(TLSFiles.within(folder, "berlin"), authority=tmp_path / "ca.cert.pem").context())


def test_old_versions_of_tls_are_refused(folder):
    server = server_context(TLSFiles.within(folder, "server"))
    server.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol"):
        handshake(server, TLSFiles.within(folder, "berlin").context())


def test_purposes_are_narrow(folder):
    purposes = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "berlin": ExtendedKeyUsageOID.CLIENT_AUTH}
    for name, purpose in purposes.items():
        extensions = certificate(folder, name).extensions
        assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [purpose]
        assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        assert not extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    authority = certificate(folder, "ca").extensions
    basic = authority.get_extension_for_oid(ExtensionOID.BASIC_CONSTRAINTS)
    assert basic.critical
    assert (basic.value.ca, basic.value.path_length) == (True, 0)


def test_keys_are_their_owners_alone_and_nothing_is_replaced(folder):
    for name in ("ca", "server", "berlin", "operator"):
        files = TLSFiles.within(folder, name)
        assert stat.S_IMODE(files.key.stat().st_mode) == 0o600
    for again in (lambda: certificates.create_authority(folder), lambda: certificates.issue_site(folder, "berlin")):
        with pytest.raises(InputError, match="a file that does not exist yet"):
            again()


def test_a_key_that_others_can_read_is_refused(tmp_path):
    certificates.create_authority(tmp_path)
    files = certificates.issue_site(tmp_path, "berlin")
    for key, use in (
        (files.key, files.context),
        (tmp_path / "ca.key.pem", lambda: certificates.issue_operator(tmp_path)),
    ):
        key.chmod(0o644)
        with pytest.raises(PrivacyError, match="only its owner may read"):
            use()


def test_odd_requests_are_refused(folder, tmp_path):
    for days in (0, 4000):
        with pytest.raises(InputError, match=f"1 <= days <= 3650, got days={days}"):
            certificates.issue_site(folder, "rome", days)
    with pytest.raises(InputError, match=r"no later than its authority, on .* got days=900"):
        certificates.issue_site(folder, "rome", 900)
    with pytest.raises(InputError, match="a site's name"):
        certificates.issue_site(folder, "Rome")
    with pytest.raises(InputError, match="a name that nobody else has"):
        certificates.issue_site(folder, "operator")
    with pytest.raises(InputError, match="at least one host name"):
        certificates.issue_server(folder, [])
    for host in ("a b", "*", "-x.org", "x..org", "", "a" * 254):
        with pytest.raises(InputError, match="a host name or an IP address"):
            certificates.issue_server(folder, [host])
    with pytest.raises(InputError, match=r"an authority in folder .* Make one there first"):
        certificates.issue_site(tmp_path, "rome")
    with pytest.raises(InputError, match="a name of 1 to 60 characters"):
        certificates.create_authority(tmp_path, "")
    assert list(tmp_path.iterdir()) == []


def test_files_that_do_not_belong_together_are_refused(folder):
    berlin = TLSFiles.within(folder, "berlin")
    with pytest.raises(InputError, match="Expected PEM files of an authority, a certificate and its key"):
        replace(berlin, key=TLSFiles.within(folder, "operator").key).context()
