"""However a connection ends, it is closed: nothing is left for the garbage collector to find and complain about."""

import asyncio
import gc
import ssl
import warnings
from dataclasses import replace

import pytest

import sottovoce as sv
from helpers.guarded_server import GuardedServer, federation_of
from helpers.hostile_server import INFO, flood, greet, hostile, papers, questions
from helpers.network_server import free_port
from helpers.network_worlds import LARGEST, play
from sottovoce.algorithms import IPADMM
from sottovoce.federation.agreement import certificates
from sottovoce.federation.transport.jetstream import JetStreamTransport
from sottovoce.federation.transport.transport import RefusedError, TransportError, UnreachableError
from sottovoce.federation.transport.wire import Slot

ALGORITHM = IPADMM(rounds=2, local_steps=1, epsilon=1.5, delta=1e-5, diameter=10.0)
TIME = 0.4


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    federation = federation_of(("berlin", "paris"), sv.graphs.complete(2), ALGORITHM, {})
    server = GuardedServer(tmp_path_factory.mktemp("server"), [federation], strangers=("stranger",))
    with federation, server:
        yield server


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return papers(tmp_path_factory.mktemp("papers"))


@pytest.fixture(scope="module", autouse=True)
def nothing_old():
    """What thousands of other tests have left is not looked through before and after every scene."""
    gc.collect()
    gc.freeze()


def left_behind(scene):
    """What the garbage collector finds after a scene."""
    gc.collect()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        play(scene)
        gc.collect()
    return [str(warning.message) for warning in found]


async def refused(url, tls, kind=TransportError, timeout=TIME):
    with pytest.raises(kind):
        await JetStreamTransport.connect(url, "r", "a", ["b"], LARGEST, tls=tls, timeout=timeout)


# -- by a real server -------------------------------------------------------------------------------------------------


def contexts(real, folder):
    certificates.create_authority(folder)
    foreign = certificates.issue_site(folder, "berlin")
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.load_verify_locations(real.papers / "ca.cert.pem")
    return {
        "a name that is not in the file": real.files("stranger").context(),
        "a certificate of another authority": replace(foreign, authority=real.papers / "ca.cert.pem").context(),
        "a certificate for serving": real.files("server").context(),
        "no certificate": bare,
        "a server of another authority": replace(
            real.files("berlin"), authority=folder / "ca.cert.pem"
        ).context(),
    }  # fmt: skip


def test_refusals_by_certificate(real, tmp_path):
    for what, context in contexts(real, tmp_path).items():
        assert left_behind(refused(real.url, context, RefusedError, 10.0)) == [], what


def test_tls_on_one_end_only(real):
    plain = real.url.replace("tls:", "nats:")
    assert left_behind(refused(plain, None, UnreachableError)) == []


def test_a_server_that_dies_on_its_sites(tmp_path):
    federation = federation_of(("berlin", "paris"), sv.graphs.complete(2), ALGORITHM, {})
    run = federation.agreement.run

    async def scene(server):
        context = server.files("berlin").context()
        site = await JetStreamTransport.connect(server.url, run, "berlin", ["paris"], LARGEST, tls=context)
        async with site:
            await asyncio.to_thread(server.kill)
            with pytest.raises(UnreachableError):
                await site.get(Slot(1, "paris"), TIME)

    with federation, GuardedServer(tmp_path, [federation]) as server:
        assert left_behind(scene(server)) == []


# -- by others --------------------------------------------------------------------------------------------------------


async def nothing(_reader, _writer):
    await asyncio.sleep(60)


async def goodbye(_reader, _writer):
    pass


async def only_info(_reader, writer):
    writer.write(INFO)
    await asyncio.sleep(60)


async def unknown(_reader, writer):
    writer.write(INFO + b"-ERR 'Authorization Violation'\r\n")
    await asyncio.sleep(1)


async def rubbish(_reader, writer):
    await flood(writer, bytes(1 << 16))


async def no_answers(reader, writer):
    await greet(reader, writer)
    async for _ in questions(reader, writer):
        pass


@pytest.mark.parametrize("script", [nothing, goodbye, only_info, unknown, rubbish, no_answers])
@pytest.mark.parametrize("secure", [True, False], ids=["tls", "plain"])
def test_servers_that_do_not_serve(tls, script, secure):
    async def scene():
        async with hostile(script, tls[0] if secure else None) as (url, _):
            await refused(url, tls[1] if secure else None)

    assert left_behind(scene()) == []


def test_no_handshake(tls):
    """Somebody takes the connection and says nothing, or something else than TLS."""

    async def scene():
        for script in (nothing, goodbye, rubbish):
            async with hostile(script, None) as (url, _):
                await refused(url, tls[1])

    assert left_behind(scene()) == []


def test_a_handshake_that_is_broken_off_is_told_in_words(tls):
    async def scene():
        async with hostile(goodbye, None) as (url, _):
            with pytest.raises(UnreachableError, match=r"\(it breaks off the TLS|\(connection reset by peer"):
                await JetStreamTransport.connect(url, "r", "a", ["b"], LARGEST, tls=tls[1], timeout=TIME)

    play(scene())


def test_another_name(tmp_path):
    certificates.create_authority(tmp_path)
    files, site = certificates.issue_server(tmp_path, ["elsewhere"]), certificates.issue_site(tmp_path, "a")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)

    async def scene():
        async with hostile(nothing, context) as (url, _):
            with pytest.raises(RefusedError, match="mismatch"):
                await JetStreamTransport.connect(url, "r", "a", ["b"], LARGEST, tls=site.context(), timeout=10.0)

    assert left_behind(scene()) == []


def test_nobody_there(tls):
    assert left_behind(refused(f"tls://127.0.0.1:{free_port()}", tls[1], UnreachableError)) == []


@pytest.mark.parametrize("pause", [0.0, 0.001, 0.01, 0.05])
@pytest.mark.parametrize("script", [nothing, only_info, no_answers])
def test_whoever_loses_interest(tls, script, pause):
    """Cancelled at any moment of the dialling."""

    async def scene():
        async with hostile(script, tls[0]) as (url, _):
            dialling = asyncio.ensure_future(
                JetStreamTransport.connect(url, "r", "a", ["b"], LARGEST, tls=tls[1], timeout=10.0)
            )
            await asyncio.sleep(pause)
            dialling.cancel()
            await asyncio.wait([dialling])
            assert dialling.cancelled()

    assert left_behind(scene()) == []
