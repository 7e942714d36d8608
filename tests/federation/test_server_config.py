"""The configuration against a real server: what each certificate may do, and what it may not."""

import asyncio
import json
import ssl
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import nats
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from helpers.federations import MessageServer, agreement, members
from sottovoce.errors import InputError
from sottovoce.federation.agreement import certificates
from sottovoce.federation.agreement.certificates import TLSFiles
from sottovoce.federation.agreement.key_files import write_secret
from sottovoce.federation.operator.server import Hosting, server_config
from sottovoce.federation.transport.jetstream import JetStreamTransport, create_stream
from sottovoce.federation.transport.subjects import inbox, mailbox, push, reading, stream_name
from sottovoce.federation.transport.transport import PutOutcome, RefusedError
from sottovoce.federation.transport.wire import Slot

SIZE = 1000


def configured(folder, agreements, **changes):
    hosting = {"tls": TLSFiles.within(folder, "server"), "store": folder / "store", "host": "127.0.0.1", "port": -1}
    return server_config(agreements, Hosting(**(hosting | {"ports_folder": folder} | changes)))


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """One server with two runs: berlin - paris - rome, and paris - oslo."""
    folder = tmp_path_factory.mktemp("server")
    certificates.create_authority(folder)
    certificates.issue_server(folder)
    certificates.issue_operator(folder)
    for site in ("berlin", "paris", "rome", "oslo", "stranger"):
        certificates.issue_site(folder, site)
    _, sites = members()
    one = agreement(sites)
    two = agreement((sites[1], members(("oslo",), (9,))[1][0]), edges=(("paris", "oslo"),))
    with MessageServer(folder, configured(folder, [one, two])) as server:
        operator = TLSFiles.within(folder, "operator").context()
        for run in (one.run, two.run):
            asyncio.run(create_stream(server.url, run, SIZE, tls=operator))
        yield SimpleNamespace(folder=folder, url=server.url, port=server.port, run=one.run, other=two.run)


@asynccontextmanager
async def client(federation, name):
    """A raw connection, and a queue of the server's complaints."""
    complaints = asyncio.Queue()

    async def complain(error):
        await complaints.put(str(error).lower())

    connection = await nats.connect(
        federation.url,
        tls=TLSFiles.within(federation.folder, name).context(),
        tls_handshake_first=True,
        inbox_prefix=inbox(name),
        allow_reconnect=False,
        error_cb=complain,
    )
    try:
        yield connection, complaints
    finally:
        await connection.close()


async def connected(federation, name, tls):
    """A site's own way in. Where a refusal is expected, rather this: the client library leaves connections open."""
    site = await JetStreamTransport.connect(federation.url, federation.run, name, [], SIZE, tls=tls, timeout=10)
    await site.close()


async def complaint_about(connection, complaints, subject):
    await connection.flush()
    text = await asyncio.wait_for(complaints.get(), 5)
    assert "permissions violation" in text
    assert subject.lower() in text


async def held(federation, run, k, site):
    """What a mailbox holds, asked by its owner."""
    async with client(federation, site) as (connection, _):
        answer = await connection.request(reading(run, k, site), timeout=5)
        return answer.data if "Nats-Sequence" in (answer.headers or {}) else None


# -- what must work ---------------------------------------------------------------------------------------------------


def test_a_site_writes_under_its_name_and_its_neighbours_read_and_hear_it(federation):
    async def scenario():
        def tls(name):
            return TLSFiles.within(federation.folder, name).context()

        berlin = await JetStreamTransport.connect(
            federation.url, federation.run, "berlin", ["paris"], SIZE, tls=tls("berlin")
        )
        paris = await JetStreamTransport.connect(
            federation.url, federation.run, "paris", ["berlin", "rome"], SIZE, tls=tls("paris")
        )
        async with berlin, paris, client(federation, "paris") as (listener, _):
            pushed = await listener.subscribe(push(federation.run, "*", "berlin"))
            await listener.flush()
            assert (await berlin.put_once(Slot(1, "berlin"), b"hello", 5)).outcome is PutOutcome.STORED
            assert await paris.get(Slot(1, "berlin"), 5) == b"hello"
            assert (await pushed.next_msg(timeout=5)).data == b"hello"
            again = await berlin.put_once(Slot(1, "berlin"), b"other", 5)
            assert (again.outcome, again.held) == (PutOutcome.ALREADY_THERE, b"hello")

    asyncio.run(scenario())


def test_a_site_may_be_in_two_runs(federation):
    async def scenario():
        async with client(federation, "paris") as (connection, _):
            for run in (federation.run, federation.other):
                answer = json.loads((await connection.request(mailbox(run, 2, "paris"), b"x", timeout=5)).data)
                assert answer["stream"] == stream_name(run)

    asyncio.run(scenario())


def test_the_operator_sees_the_settings_that_keep_messages(federation):
    async def scenario():
        async with client(federation, "operator") as (connection, _):
            answer = await connection.request(f"$JS.API.STREAM.INFO.{stream_name(federation.run)}", timeout=5)
            return json.loads(answer.data)["config"]

    config = asyncio.run(scenario())
    wanted = {"storage": "file", "max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True}
    wanted |= {"deny_delete": True, "deny_purge": True, "allow_direct": True}
    assert {key: config[key] for key in wanted} == wanted
    assert not config.get("allow_rollup_hdrs")


# -- what must not ----------------------------------------------------------------------------------------------------


def test_a_site_cannot_write_under_another_name(federation):
    async def scenario():
        async with client(federation, "berlin") as (connection, complaints):
            for subject in (mailbox(federation.run, 3, "paris"), push(federation.run, 3, "paris")):
                await connection.publish(subject, b"forged")
                await complaint_about(connection, complaints, subject)
        return await held(federation, federation.run, 3, "paris")

    assert asyncio.run(scenario()) is None


def test_answers_of_the_server_cannot_be_sent_into_another_mailbox(federation):
    # The server answers with its own rights. A question may name any subject for the answer.
    run = federation.run

    async def scenario():
        async with client(federation, "berlin") as (connection, _):
            await connection.publish(mailbox(run, 4, "berlin"), b"mine", reply=mailbox(run, 5, "paris"))
            await connection.publish(reading(run, 4, "berlin"), b"", reply=mailbox(run, 6, "paris"))
            await connection.publish(reading(run, 4, "berlin"), b"", reply=push(run, 6, "paris"))
            await connection.flush()
            while await held(federation, run, 4, "berlin") is None:
                await asyncio.sleep(0.01)
        return [await held(federation, run, k, "paris") for k in (5, 6)]

    assert asyncio.run(scenario()) == [None, None]


def test_a_site_cannot_read_or_hear_another_run_or_those_it_is_no_neighbour_of(federation):
    async def scenario():
        async with client(federation, "berlin") as (connection, complaints):
            for run, site in ((federation.other, "paris"), (federation.other, "oslo"), (federation.run, "rome")):
                await connection.publish(reading(run, 1, site), b"", reply=connection.new_inbox())
                await complaint_about(connection, complaints, reading(run, 1, site))
                await connection.subscribe(push(run, "*", site))
                await complaint_about(connection, complaints, push(run, "*", site))

    asyncio.run(scenario())


@pytest.mark.parametrize("subject", [">", "sv.>", "svp.>", "_INBOX_paris.>", "_INBOX.>", "_R_.>", "$JS.>", "$SYS.>"])
def test_nobody_listens_in(federation, subject):
    async def scenario():
        async with client(federation, "berlin") as (connection, complaints):
            await connection.subscribe(subject)
            await complaint_about(connection, complaints, subject)

    asyncio.run(scenario())


@pytest.mark.parametrize("who", ["berlin", "operator"])
def test_nobody_deletes_purges_or_changes_a_stream_or_makes_consumers(federation, who):
    stream = stream_name(federation.run)
    verbs = ("STREAM.DELETE", "STREAM.PURGE", "STREAM.UPDATE", "STREAM.MSG.DELETE", "STREAM.MSG.GET", "STREAM.RESTORE")
    verbs += ("STREAM.SNAPSHOT", "STREAM.LEADER.STEPDOWN", "CONSUMER.CREATE", "CONSUMER.DURABLE.CREATE")
    subjects = [f"$JS.API.{verb}.{stream}" for verb in verbs] + ["$JS.API.STREAM.CREATE.OTHER", "$JS.API.INFO"]

    async def scenario():
        async with client(federation, who) as (connection, complaints):
            for subject in subjects:
                await connection.publish(subject, b"{}", reply=connection.new_inbox())
                await complaint_about(connection, complaints, subject)

    asyncio.run(scenario())


def test_the_operator_cannot_write_messages(federation):
    async def scenario():
        async with client(federation, "operator") as (connection, complaints):
            for site in ("berlin", "operator"):
                subject = mailbox(federation.run, 7, site)
                await connection.publish(subject, b"forged")
                await complaint_about(connection, complaints, subject)

    asyncio.run(scenario())


def test_only_known_certificates_of_the_authority_connect(federation, tmp_path):
    certificates.create_authority(tmp_path)
    foreign = certificates.issue_site(tmp_path, "berlin")
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.load_verify_locations(federation.folder / "ca.cert.pem")
    refused = {
        "a name that is not in the file": TLSFiles.within(federation.folder, "stranger").context(),
        "another authority": replace(foreign, authority=federation.folder / "ca.cert.pem").context(),
        "a certificate for serving": TLSFiles.within(federation.folder, "server").context(),
        "no certificate": bare,
    }

    for tls in refused.values():
        with pytest.raises(RefusedError, match=r"to know us|both sides accept each other's certificate"):
            asyncio.run(connected(federation, "berlin", tls))


def test_nothing_is_said_before_tls(federation):
    async def first_bytes():
        reader, writer = await asyncio.open_connection("127.0.0.1", federation.port)
        writer.write(b'CONNECT {"user":"berlin"}\r\nPING\r\n')
        try:
            return await asyncio.wait_for(reader.read(100), 10)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    said = asyncio.run(first_bytes())
    assert b"INFO" not in said
    assert b"PONG" not in said


def test_a_client_refuses_a_server_of_another_authority(federation, tmp_path):
    certificates.create_authority(tmp_path)
    impostor = replace(TLSFiles.within(federation.folder, "berlin"), authority=tmp_path / "ca.cert.pem").context()
    with pytest.raises(RefusedError, match=r"self-signed certificate|unable to get local issuer"):
        asyncio.run(connected(federation, "berlin", impostor))


# -- an organisation's own authority ----------------------------------------------------------------------------------


def issued_by_hand(folder, name, subject, alternatives):
    """As another authority might: with a long subject and other alternative names."""
    authority = x509.load_pem_x509_certificate((folder / "ca.cert.pem").read_bytes())
    signer = load_pem_private_key((folder / "ca.key.pem").read_bytes(), None)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    builder = (
        x509.CertificateBuilder(authority.subject, x509.Name(subject), key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    )
    for alternative in alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
    files = TLSFiles.within(folder, name)
    files.certificate.write_bytes(builder.sign(signer, SHA256()).public_bytes(Encoding.PEM))
    write_secret(files.key, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def test_certificates_of_another_kind_are_mapped_by_subject_or_address(tmp_path):
    certificates.create_authority(tmp_path)
    certificates.issue_server(tmp_path)
    subject = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Klinikum, Köln"),
        x509.NameAttribute(NameOID.COMMON_NAME, "node 7"),
    ]
    issued_by_hand(tmp_path, "berlin", subject, [])
    issued_by_hand(tmp_path, "paris", subject[:1], [x509.RFC822Name("data@paris.example")])
    issued_by_hand(tmp_path, "rome", subject[:1], [])
    identities = {"berlin": "CN=node 7,O=Klinikum\\, Köln", "paris": "data@paris.example"}
    one = agreement()

    async def may_write(federation, site):
        async with client(federation, site) as (connection, complaints):
            for other in {"berlin", "paris"} - {site}:
                await connection.publish(mailbox(one.run, 1, other), b"x")
                await complaint_about(connection, complaints, mailbox(one.run, 1, other))
            await connection.publish(mailbox(one.run, 1, site), b"x")
            await connection.flush()
            assert complaints.empty()

    with MessageServer(tmp_path, configured(tmp_path, [one], identities=identities)) as server:
        federation = SimpleNamespace(folder=tmp_path, url=server.url, run=one.run)
        asyncio.run(may_write(federation, "berlin"))
        asyncio.run(may_write(federation, "paris"))
        with pytest.raises(RefusedError, match=r"to know us"):
            asyncio.run(connected(federation, "rome", TLSFiles.within(tmp_path, "rome").context()))


# -- without a server -------------------------------------------------------------------------------------------------


def test_messages_fit(tmp_path):
    config = configured(tmp_path, [agreement(features=100_000)])
    limit = next(int(line.split()[1]) for line in config.splitlines() if line.startswith("max_payload"))
    assert 8 * 100_000 + 500 < limit < 9 * 100_000
    assert "max_payload: 65536" in configured(tmp_path, [agreement()])


def test_odd_settings_are_refused(tmp_path):
    one = agreement()
    with pytest.raises(InputError, match="at least one agreement"):
        configured(tmp_path, [])
    with pytest.raises(InputError, match="every run once"):
        configured(tmp_path, [one, one])
    with pytest.raises(InputError, match="one key for each name on one server, got two for site berlin"):
        configured(tmp_path, [one, agreement()])
    with pytest.raises(InputError, match="identities of sites or of the operator, got name='oslo'"):
        configured(tmp_path, [one], identities={"oslo": "x"})
    with pytest.raises(InputError, match="an identity of its own for everyone, got identity='paris', of="):
        configured(tmp_path, [one], identities={"berlin": "Paris"})
    with pytest.raises(InputError, match="an identity of its own for everyone"):
        configured(tmp_path, [one], identities={"berlin": "operator"})
    with pytest.raises(InputError, match="printable text as the identity of rome"):
        configured(tmp_path, [one], identities={"rome": 'x"\n}'})
    with pytest.raises(InputError, match="printable text in a server's configuration"):
        configured(tmp_path, [one], store=tmp_path / "a\nb")
    with pytest.raises(InputError, match="port"):
        configured(tmp_path, [one], port=0)
