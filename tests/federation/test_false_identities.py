"""False identities, and a server that goes away: certificates, copies of a site, and the operator's command, on a real
server with TLS and our configuration.
"""

import asyncio
import ssl
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import sottovoce as sv
from helpers.federations import COMMON
from helpers.guarded_server import (
    LONG,
    GuardedServer,
    GuardedWorld,
    Seen,
    end,
    ended,
    federation_of,
    lines_of,
    said,
    started,
)  # fmt: skip
from helpers.network_worlds import play
from helpers.site_runs import Died, dying
from sottovoce.algorithms import IPADMM
from sottovoce.cli import main
from sottovoce.cli.exit_codes import code_of
from sottovoce.federation.agreement import certificates, toml_file
from sottovoce.federation.agreement.agreement import LostNeighbour, new_run
from sottovoce.federation.agreement.identity import SigningKey
from sottovoce.federation.operator.opening import room_for
from sottovoce.federation.transport.jetstream import JetStreamTransport, create_stream
from sottovoce.federation.transport.transport import RefusedError
from sottovoce.federation.transport.wire import Slot

ALGORITHM = IPADMM(**(COMMON | {"rounds": 4}), local_steps=2)
STOP = LostNeighbour(policy="stop", wait_seconds=4.0)
STRANGER = SigningKey.generate()
THREE = ("berlin", "paris", "rome")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """One server that carries every run of this file."""
    keys, three = {}, sv.graphs.complete(3)
    runs = {
        "calm": federation_of(THREE, three, ALGORITHM, keys),
        "elsewhere": federation_of(THREE[1:], sv.graphs.complete(2), ALGORITHM, keys),
        "stolen": federation_of(THREE, three, ALGORITHM, keys, lost_neighbour=STOP),
        "twice": federation_of(THREE, three, ALGORITHM, keys),
        "away": federation_of(THREE, three, ALGORITHM, keys, lost_neighbour=STOP),
    }
    with GuardedServer(tmp_path_factory.mktemp("server"), runs.values(), strangers=("stranger",)) as server:
        yield SimpleNamespace(server=server, runs=runs)
    for run in runs.values():
        run.__exit__()


# -- certificates -----------------------------------------------------------------------------------------------------


def bare(server):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(server.papers / "ca.cert.pem")
    return context


def foreign(server, folder):
    certificates.create_authority(folder)
    certificates.issue_site(folder, "berlin")
    return replace(certificates.TLSFiles.within(folder, "berlin"), authority=server.papers / "ca.cert.pem").context()


UNKNOWN = {
    "another authority": foreign,
    "no certificate": lambda server, _: bare(server),
    "a name that nobody agreed on": lambda server, _: server.files("stranger").context(),
    "the server's own certificate": lambda server, _: server.files("server").context(),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_an_unknown_certificate_is_turned_away_at_once(world, tmp_path, what):
    run, tls = world.runs["calm"].agreement.run, UNKNOWN[what](world.server, tmp_path)
    with pytest.raises(RefusedError) as raised:  # not after the 300 seconds that a server may be away
        play(JetStreamTransport.connect(world.server.url, run, "berlin", ["paris"], 1000, tls=tls, timeout=300))
    assert code_of(raised.value) == 7


def test_a_certificate_is_good_for_its_own_name_and_runs_only(world):
    """berlin tries, and then takes part as if nothing had been."""
    calm, elsewhere = world.runs["calm"], world.runs["elsewhere"]
    guarded, other = GuardedWorld(world.server, calm.agreement), GuardedWorld(world.server, elsewhere.agreement)
    berlin = world.server.files("berlin")

    async def scene():
        async with await guarded.site("berlin") as transport:
            with pytest.raises(RefusedError, match="permissions violation"):
                await transport.put_once(Slot(2, "paris"), said(calm, "paris"), LONG)
        with pytest.raises(RefusedError, match="permissions violation"):
            await other.site("paris", files=berlin)  # as paris, in a run of paris and rome
        async with await other.site("rome") as rome:
            await rome.put_once(Slot(1, "rome"), said(elsewhere, "rome", k=1), LONG)
        with pytest.raises(RefusedError, match="permissions violation"):
            await JetStreamTransport.connect(
                world.server.url, elsewhere.agreement.run, "berlin", ["rome"], 1000, tls=berlin.context(), timeout=LONG
            )
        return await calm.finish(guarded)

    ends = play(scene())
    assert [(finished.rounds, finished.absent) for finished in ends.values()] == [(4, {})] * 3


def test_a_stolen_certificate_without_the_key_stops_the_run_and_forges_nothing(world):
    """It can fill mailboxes of its owner, who then finds something else there than was said."""
    federation, seen = world.runs["stolen"], Seen()
    guarded = GuardedWorld(world.server, federation.agreement)

    async def scene():
        async with await guarded.site("rome") as stolen:
            await stolen.put_once(Slot(2, "rome"), said(federation, "rome", key=STRANGER), LONG)
        return await federation.all(guarded, federation.normals(), watcher=seen)

    ends = play(scene())
    assert [code_of(ends[name]) for name in THREE] == [4, 4, 7]
    assert isinstance(ends["rome"], RefusedError)
    assert "Ask whoever runs the message server" in str(ends["rome"])
    assert seen.refusals == [(2, "rome", "forged")] * 2


def test_a_run_outlives_its_certificates(tmp_path):
    """Runs hang on signing keys: with a new authority, all go on where they were."""
    federation = federation_of(THREE, sv.graphs.complete(3), ALGORITHM, {})
    noise = federation.normals()
    with federation, GuardedServer(tmp_path, [federation]) as server:
        guarded = GuardedWorld(server, federation.agreement)
        ends = play(federation.all(guarded, noise, probe=dying("bound", 3)))
        assert {type(error) for error in ends.values()} == {Died}
        old = server.files("berlin")
        server.certify(tmp_path / "new")
        server.restart()
        with pytest.raises(RefusedError):
            play(guarded.site("berlin", files=replace(old, authority=tmp_path / "new" / "ca.cert.pem")))
        ends = play(federation.finish(guarded, noise))
        whole = sv.simulate(ALGORITHM, federation.sites(), federation.graph, seed=0, noise=noise, device="plain")
        for finished in ends.values():
            np.testing.assert_allclose(finished.model, whole.consensus[0], rtol=1e-12, atol=1e-12)


# -- one identity, two processes --------------------------------------------------------------------------------------


def test_two_processes_with_one_identity(world, tmp_path):
    """Each with a folder of its own. Whoever comes second stops with code 5; the first goes on to the end."""
    federation = world.runs["twice"]
    guarded = GuardedWorld(world.server, federation.agreement)
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
    here = started(federation, "berlin", world.server, tmp_path / "here")
    there = started(federation, "berlin", world.server, tmp_path / "there")
    programs = {"here": here, "there": there}
    others = threading.Thread(target=lambda: play(federation.finish(guarded, names=THREE[1:])))
    try:
        others.start()
        codes = {place: ended(program)[0] for place, program in programs.items()}
    finally:
        others.join()
        for program in programs.values():
            end(program)
    assert sorted(codes.values()) == [0, 5]
    second = next(place for place, code in codes.items() if code == 5)
    reasons = [line["kind"] for line in lines_of(tmp_path / second / "berlin" / "log") if line["event"] == "stopped"]
    assert reasons == ["UsedTwiceError"]


# -- a server that is away --------------------------------------------------------------------------------------------


def test_a_server_that_is_stopped_for_a_while_costs_time_and_nothing_else(world):
    """Longer than a neighbour may be silent: the server's absence is held against nobody."""
    federation, seen, server = world.runs["away"], Seen(), world.server
    guarded, noise = GuardedWorld(server, federation.agreement), world.runs["away"].normals()
    back = threading.Timer(1.5, server.start)

    def probe(point, k):
        if (point, k) == ("published", 2) and not back.is_alive():
            server.kill()
            back.start()

    async def scene():
        late = federation.site("rome", guarded, noise, watcher=seen, probe=probe)
        return await asyncio.gather(*(federation.site(name, guarded, noise, watcher=seen) for name in THREE[:2]), late)

    ends = play(scene())
    back.join()
    assert seen.silences > 0
    whole = sv.simulate(ALGORITHM, federation.sites(), federation.graph, seed=0, noise=noise, device="plain")
    for finished in ends:
        np.testing.assert_allclose(finished.model, whole.consensus[0], rtol=1e-12, atol=1e-12)


# -- the operator -----------------------------------------------------------------------------------------------------


def test_the_operator_opens_a_run_as_often_as_it_likes_and_in_one_way_only(world, tmp_path, capsys):
    agreement, server = world.runs["calm"].agreement, world.server
    toml_file.save(agreement, tmp_path / "federation.toml")
    given = ["federation", "open", "--federation", str(tmp_path / "federation.toml"), "--server", server.url]
    for _ in range(2):
        assert main([*given, "--certificates", str(server.papers)]) == 0
        told = capsys.readouterr().out
        room = room_for(agreement)
        assert f"is open: room for {room.messages} messages of at most {room.size} bytes." in told
    with pytest.raises(RefusedError, match="already in use with a different configuration"):
        play(create_stream(server.url, agreement.run, 10_000, tls=server.files("operator").context()))
    toml_file.save(replace(agreement, run=new_run()), tmp_path / "other.toml")
    given[3] = str(tmp_path / "other.toml")
    assert main([*given, "--certificates", str(server.papers)]) == 7  # a run that the server's file does not know
    assert "Expected the server to let us use" in capsys.readouterr().err
    for name in ("cert", "key"):
        (tmp_path / f"operator.{name}.pem").write_bytes((server.papers / f"berlin.{name}.pem").read_bytes())
        (tmp_path / f"operator.{name}.pem").chmod(0o600)
    (tmp_path / "ca.cert.pem").write_bytes((server.papers / "ca.cert.pem").read_bytes())
    assert main([*given, "--certificates", str(tmp_path)]) == 7  # a site is no operator
