"""Masked sums at real sites: one model for all, whatever dies, and a stop where somebody was told something else."""

import asyncio
import hashlib
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, redirect_stdout
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest

import sottovoce as sv
from helpers.network_server import NatsServer, free_port
from helpers.network_worlds import JetStreamWorld, LyingWorld, MemoryWorld, play
from helpers.site_runs import FIVE, QUICK, Backup, Federation, dies, meanwhile
from sottovoce.cli import main
from sottovoce.cli.demo import processes
from sottovoce.errors import BudgetError, InputError
from sottovoce.federation.agreement import toml_file
from sottovoce.federation.agreement.agreement import LostNeighbour
from sottovoce.federation.agreement.exchange import Seed
from sottovoce.federation.site import journal
from sottovoce.federation.site.formats import format_of
from sottovoce.federation.site.letters import ANSWER_BYTES, Heading, read_answer, read_sum
from sottovoce.federation.site.mail import Mail, Pace
from sottovoce.federation.site.masks import Masks, Past, Turn
from sottovoce.federation.site.runner import POINTS, result_of, run_site
from sottovoce.federation.site.snapshot import pack_arrays, unpack_arrays
from sottovoce.federation.site.stops import DamagedError, ForkedError, SpoiledError, UsedTwiceError
from sottovoce.federation.site.summing import Summing
from sottovoce.federation.transport.wire import Envelope, Kind, Slot, seal, unseal
from sottovoce.files.models.apply import weights_digest
from sottovoce.privacy import Gaussian, Sequence, epsilon
from sottovoce.sums.questions import Gradient, Moments
from sottovoce.tally import PrivateEvaluation

SIZES = (30, 200, 17, 80, 25)


def made(rounds=4, sizes=SIZES, lost=None, **terms):
    common = {"rounds": rounds, "epsilon": 1.5, "delta": 1e-5, "colluding": 1, "least_sites": len(sizes)}
    algorithm = sv.MaskedNewton(**(common | terms))
    changes = {} if lost is None else {"lost_neighbour": lost}
    return Federation(sv.graphs.complete(len(sizes)), sizes, algorithm, **changes)


@pytest.fixture
def federation():
    with made() as federation:
        yield federation


@pytest.fixture
def impatient():
    """Whoever stays alone stops: else those who heard no lie would wait for those who did."""
    with made(lost=LostNeighbour(policy="stop", wait_seconds=30.0)) as federation:
        yield federation


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with NatsServer(tmp_path_factory.mktemp("nats"), sync="2m") as server:
        yield server


def said_by(federation, world, name):
    """All that a site has said, by number: the bytes."""
    return {slot.number: data for slot, data in world.post._held.items() if slot.site == name and slot.kind is Kind.SUM}


def models(ends):
    return {end.model.tobytes() for end in ends.values()}


def test_all_sites_end_with_one_model_bit_by_bit(federation):
    world = MemoryWorld()
    ends = play(federation.finish(world))
    assert len(models(ends)) == 1
    model = ends["rome"].model
    assert model.shape == (5,)
    assert 0.01 < np.abs(model).max() < 100
    for name in FIVE:
        assert sorted(said_by(federation, world, name)) == [1, 2, 3, 4]
        with ExitStack() as stack:
            seat = federation.seat(name, stack)
            np.testing.assert_array_equal(result_of(seat).model, model)
            booked = [r for r in seat.ledger.reservations() if r.run == seat.booked]
            sigmas = federation.algorithm.multipliers(5)
            assert [r.cost.event for r in booked] == [Gaussian(sigma) for sigma in sigmas]
            assert all(0 < r.cost.divergence < 1e-30 for r in booked)
            spent = epsilon(Sequence(tuple(Gaussian(sigma) for sigma in sigmas)), seat.ledger.header.delta)
            assert seat.ledger.total() == pytest.approx(spent, rel=1e-3)


def test_over_a_real_server_too(federation, server):
    assert len(models(play(federation.finish(JetStreamWorld(server))))) == 1


@pytest.mark.parametrize("terms", [{"loss": sv.losses.Softmax(3)}, {"max_grad_norm": 0.3, "worst_case_epsilon": 2.0}])
def test_other_settings_too(terms):
    with made(**terms) as federation:
        if "loss" in terms:
            federation.labels = [np.arange(m, dtype=float) % 3 for m in SIZES]
            federation.commit_rows()
        assert len(models(play(federation.finish(MemoryWorld())))) == 1


@pytest.mark.parametrize(
    ("n", "d", "numbers"),
    [pytest.param(40, 5, 15, marks=pytest.mark.slow), (10, 500, 125_250), (3, 10_000, 10_000)],
    ids=["forty sites", "moments of 500 features", "the diagonal of 10,000"],
)
def test_many_sites_and_wide_tables(n, d, numbers):
    """All end with one model; the first messages hold so many numbers."""
    sizes = (4,) * n
    algorithm = sv.MaskedNewton(rounds=3, epsilon=1.5, delta=1e-5, colluding=1, least_sites=n, max_grad_norm=1.0)
    names = tuple(f"site-{i}" for i in range(n))
    with Federation(sv.graphs.complete(n), sizes, algorithm, d=d, names=names) as federation:
        world = MemoryWorld()
        ends = play(federation.finish(world))
        assert len(models(ends)) == 1
        assert ends[names[0]].model.shape == (d,)
        assert algorithm.schedule(d)[0].numbers == numbers
        assert len(said_by(federation, world, names[0])[1]) > 8 * numbers


def test_the_sums_that_are_opened_are_those_of_the_rows(federation):
    """From the messages on the server alone, with no secret: what is opened is the sum over all rows and noise of the
    agreed size; and a single message is nothing of the kind.
    """
    world = MemoryWorld()
    play(federation.finish(world))
    a = federation.agreement
    summing = Summing(a, a.public_oracle("rome"))
    words = {}
    for name in FIVE:
        place = Envelope(a.run, a.digest(), Slot(1, name, Kind.SUM), format_of(a).payload(1))
        payload = unseal(said_by(federation, world, name)[1], place, a.member(name).public_key)
        words[name] = read_sum(payload, 1, 5)
    nobody, proposal = hashlib.sha256(b"").digest(), summing.propose(1, Moments(), FIVE)
    context = summing.context(words["rome"].heading.turn, proposal, FIVE, nobody, a.digest())
    for name in FIVE:
        words[name].heading.refuse_other(name, Heading.of(context), "berlin")
    total = np.sum([w.words for w in words.values()], axis=0, dtype=np.uint64).view(np.int64) * context.grid
    rows = np.concatenate(federation.features)
    i, j = np.triu_indices(5)
    exact = (rows.T @ rows)[i, j] * np.where(i == j, 1.0, np.sqrt(2.0))
    std = proposal.grid.step * proposal.grid.scale * np.sqrt(5)
    assert np.abs(total - exact).max() < 6 * std
    assert np.abs(words["rome"].words.view(np.int64) * context.grid).max() > 1e6 * std


@pytest.mark.parametrize("point", [point for point in POINTS if point != "dropped"])
@pytest.mark.parametrize("at", [1, 3])
def test_a_crash_anywhere_changes_nothing(point, at):
    """The site is started again, and says the same bytes: each message once, one model, every sum booked once."""
    with made(rounds=3, sizes=(30, 20, 25)) as federation:
        world = MemoryWorld()

        async def scene():
            others = [asyncio.ensure_future(federation.site(name, world)) for name in federation.names[1:]]
            await dies(federation, world, point, at)
            before = dict(said_by(federation, world, "berlin"))
            end = await federation.site("berlin", world)
            after = said_by(federation, world, "berlin")
            assert all(after[k] == data for k, data in before.items())
            return {"berlin": end, **dict(zip(federation.names[1:], await asyncio.gather(*others), strict=True))}

        assert len(models(play(scene()))) == 1
        with federation.ledger("berlin") as ledger:
            assert len(list(ledger.reservations())) == 3


def test_a_computation_that_was_never_written_down_comes_out_the_same(federation):
    """Died before the outbox: the noise is a function, so what comes out is what would have been said."""
    sealed = []
    original = Mail.seal

    def seal_and_keep(self, slot, payload):
        data = original(self, slot, payload)
        if slot.kind is Kind.SUM and slot.site == "berlin":
            sealed.append((slot.number, data))
        return data

    async def scene():
        world = MemoryWorld()
        others = [asyncio.ensure_future(federation.site(name, world)) for name in federation.names[1:]]
        await dies(federation, world, "computed", 2)
        await federation.site("berlin", world)
        await asyncio.gather(*others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Mail, "seal", seal_and_keep)
        play(scene())
    by_number = {}
    for number, data in sealed:
        by_number.setdefault(number, set()).add(data)
    assert sorted(by_number) == [1, 2, 3, 4]
    assert all(len(versions) == 1 for versions in by_number.values())


def test_a_folder_that_is_put_back_says_the_same_words_again(federation):
    """Ledger and journal of round 1, brought back after round 3 was said: each sum still has one message for ever."""
    world = LyingWorld()

    async def scene():
        others = [asyncio.ensure_future(federation.site(name, world)) for name in federation.names[1:]]
        await dies(federation, world, "checkpointed", 1)
        backup = Backup(federation)
        await dies(federation, world, "published", 3)
        backup.restore()
        end = await federation.site("berlin", world)
        return {"berlin": end, **dict(zip(federation.names[1:], await asyncio.gather(*others), strict=True))}

    assert len(models(play(scene()))) == 1
    said = {}
    for slot, data in world.sent:
        if (slot.site, slot.kind) == ("berlin", Kind.SUM):
            said.setdefault(slot.number, set()).add(data)
    assert sorted(said) == [1, 2, 3, 4]
    assert all(len(versions) == 1 for versions in said.values())


def test_a_site_of_which_somebody_heard_another_message_stops(federation):
    """berlin comes back after the first sum, and oslo has heard something else of it there than it has said."""
    world, a = LyingWorld(), federation.agreement

    def shows(reader, slot, data):
        if data is None or (reader, slot.site, slot.kind) != ("berlin", "oslo", Kind.ANSWER):
            return data
        place = Envelope(a.run, a.digest(), slot, ANSWER_BYTES)
        heard = read_answer(unseal(data, place, a.member("oslo").public_key))
        return seal(place, heard._replace(digest=b"x" * 32).to_bytes(), federation.keys["oslo"])

    async def scene():
        others = [asyncio.ensure_future(federation.site(name, world)) for name in federation.names[1:]]
        await dies(federation, world, "checkpointed", 1)
        world.shows = shows
        with pytest.raises(UsedTwiceError, match=r"oslo' to have received what we sent in round=1, got a report"):
            await federation.site("berlin", world)
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    play(scene())


def test_a_put_back_folder_before_a_server_that_forgot_stops(federation):
    """The others have heard more of the site than it knows: it draws nothing, and says nothing."""
    world = LyingWorld()

    async def scene():
        others = [asyncio.ensure_future(federation.site(name, world)) for name in federation.names[1:]]
        await dies(federation, world, "checkpointed", 1)
        backup = Backup(federation)
        await dies(federation, world, "collected", 3)
        backup.restore()
        world.shows = lambda reader, slot, data: None if (
            reader == slot.site == "berlin" and slot.kind is Kind.SUM and slot.number > 1) else data  # fmt: skip
        before = len([1 for slot, _ in world.sent if (slot.site, slot.kind) == ("berlin", Kind.SUM)])
        with pytest.raises(UsedTwiceError, match=r"that it has received round=[23]"):
            await federation.site("berlin", world)
        assert len([1 for slot, _ in world.sent if (slot.site, slot.kind) == ("berlin", Kind.SUM)]) == before
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    play(scene())


def forged(federation, name, k, change):
    """A message of a member that does not keep to the agreement: `change` makes other words of its own."""
    a = federation.agreement

    def shows(reader, slot, data):
        if data is None or (slot.site, slot.number, slot.kind) != (name, k, Kind.SUM) or reader == name:
            return data
        place = Envelope(a.run, a.digest(), slot, format_of(a).payload(k))
        came = read_sum(unseal(data, place, a.member(name).public_key), k, len(a.sites))
        return seal(place, change(came, reader).to_bytes(), federation.keys[name])

    return shows


def test_a_member_that_spoils_a_sum_stops_the_run(impatient):
    federation = impatient
    world = LyingWorld(shows=forged(federation, "wien", 2, lambda came, _: came._replace(
        words=came.words + np.uint64(2**63))))  # fmt: skip
    ends = play(federation.all(world, names=None, pace=Pace(slice=0.3, server=5.0)))
    stopped = [end for name, end in ends.items() if name != "wien"]
    assert all(isinstance(end, SpoiledError | ForkedError) for end in stopped), ends
    assert any(isinstance(end, SpoiledError) for end in stopped)


def test_a_member_that_was_told_something_else_is_named_and_nothing_opens(impatient):
    federation = impatient
    change = forged(federation, "wien", 2, lambda came, _: came._replace(
        heading=came.heading._replace(transcript=b"x" * 32)))  # fmt: skip
    ends = play(federation.all(LyingWorld(shows=change), pace=Pace(slice=0.3, server=5.0)))
    named = [end for end in ends.values() if isinstance(end, ForkedError)]
    assert named
    assert any("site='wien' has masked the same earlier messages" in str(end) for end in named)


# -- what is refused before anything is said --------------------------------------------------------------------------


def test_a_copied_seed_with_other_rows_behind_it_says_nothing(federation):
    """Two messages under one mask would leave the difference of two sets of rows bare, with one share of noise each. So
    a seed goes with the rows that were committed to, in whichever folder, before a server that has forgotten all.
    """
    play(federation.finish(MemoryWorld()))
    for file in federation.folder.glob("berlin.*"):
        file.unlink()
    federation.labels[0] = -federation.labels[0]
    world = LyingWorld()
    with pytest.raises(InputError, match="the rows and the salt that site berlin has committed to in the agreement"):
        play(meanwhile(federation, world, federation.site("berlin", world)))
    assert not [slot for slot, _ in world.sent if slot.site == "berlin"]


def test_what_would_be_said_under_one_mask_shows_the_difference(federation):
    """Why: with the same seed and context, and other rows, all masks cancel in the difference."""
    a = federation.agreement
    question, said = Gradient(np.zeros((5, 1))), []
    for sign in (1, -1):
        rows = sv.Sites([federation.features[0]], [sign * federation.labels[0]])
        summing = Summing(a, a.oracle_for("berlin", rows))
        context = summing.context(Turn(2, 0), summing.propose(2, question, FIVE), FIVE, bytes(32), bytes(32))
        said.append(summing.words(context, question, Masks(a, "berlin", federation.seeds["berlin"]), Past()))
    std = context.grid * context.scale
    difference = (said[0] - said[1]).view(np.int64) * context.grid
    rows = federation.features[0] * federation.labels[0][:, None]
    np.testing.assert_allclose(difference, -rows.sum(axis=0), atol=8 * std)
    assert np.abs(said[0].view(np.int64) * context.grid).max() > 1e6 * std


def test_rows_that_change_during_a_run_are_not_spoken_of(federation):
    """Hashed again before every message."""
    world = LyingWorld()
    with ExitStack() as stack:
        seat = federation.seat("berlin", stack)
        seat.rows.labels.flags.writeable = True

        def change(point, k):
            if (point, k) == ("checkpointed", 2):
                seat.rows.labels[0] *= -1

        async def scene():
            async with await world.site("berlin") as transport:
                return await run_site(seat, transport, pace=QUICK, probe=change)

        with pytest.raises(InputError, match="the rows and the salt that site berlin has committed to"):
            play(meanwhile(federation, world, scene()))
    assert sorted(said_by(federation, world, "berlin")) == [1, 2]


def test_another_seed_is_refused_before_anything_is_drawn(federation):
    federation.seeds["berlin"] = Seed.generate()
    with (
        ExitStack() as stack,
        pytest.raises(InputError, match="the seed of site berlin for this agreement"),
    ):
        federation.seat("berlin", stack)


def test_a_run_that_does_not_fit_is_refused_before_its_first_sum():
    with made() as federation:
        federation.cap = 0.3
        with pytest.raises(BudgetError, match="of 4 rounds"):
            play(federation.site("berlin", MemoryWorld()))


def test_noise_from_elsewhere_is_refused(federation):
    with ExitStack() as stack, pytest.raises(InputError, match="noise from the site's own seed"):
        federation.seat("berlin", stack, lambda _: np.zeros((1, 5, 1, 5)))


# -- the journal is the list of opened sums ---------------------------------------------------------------------------


def ended_with(federation, change):
    """What berlin ends with, if its program is run again after `change` was made to the opened sums in its journal."""
    with sqlite3.connect(federation.folder / "berlin.journal") as connection:
        kept = dict(connection.execute("SELECT round, content FROM sums"))
        connection.execute("DELETE FROM sums")
        rows = [(k, content, journal._digest(b"%d" % k, content)) for k, content in change(kept).items()]
        connection.executemany("INSERT INTO sums VALUES (?, ?, ?)", rows)
    connection.close()
    with ExitStack() as stack:
        return result_of(federation.seat("berlin", stack))


POINT = 5 + 15 + 1  # a model of five features, and the whitening of its gradient


def moved_by(step):
    """The point of the second gradient is off by so much."""

    def change(kept):
        arrays = unpack_arrays(kept[3], {"point": (POINT,), "value": (5,), "about": (2,)})
        return kept | {3: pack_arrays(arrays | {"point": arrays["point"] + step})}

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda kept: {1: kept[1], 2: kept[3], 3: kept[2], 4: kept[4]}, "the sum that the program asks for next"),
        (moved_by(1e-4), "the sum that the program asks for next"),
        (lambda kept: {2: kept[2], 1: kept[2], 3: kept[3], 4: kept[4]}, "arrays as this run has them"),
        (lambda kept: {k: kept[k] for k in (1, 2, 3)}, "Expected 4 opened sums in the journal after round 4, got 3"),
        (lambda kept: kept | {5: kept[4]}, "Expected 4 opened sums in the journal after round 4, got 5"),
    ],
    ids=["swapped", "another point", "of another size", "one too few", "one too many"],
)
def test_a_program_is_not_run_again_on_other_sums(federation, change, message):
    play(federation.finish(MemoryWorld()))
    with pytest.raises(DamagedError, match=message):
        ended_with(federation, change)


def test_a_program_that_is_run_again_takes_the_recorded_bits(federation):
    """Under other roundings the point comes out otherwise in its last bits: what follows is of the recorded one."""
    model = play(federation.finish(MemoryWorld()))["berlin"].model
    np.testing.assert_array_equal(ended_with(federation, lambda kept: kept).model, model)
    again = ended_with(federation, moved_by(1e-13)).model
    np.testing.assert_allclose(again, model, rtol=1e-9)
    assert not np.array_equal(again, model)


def test_which_rows_a_site_holds_out_follows_from_its_seed():
    with made(rounds=6, evaluate=0.2, hold_out=4) as federation, ExitStack() as stack:
        seat = federation.seat("berlin", stack)
        order = Masks(federation.agreement, "berlin", federation.seeds["berlin"]).order(30)
        np.testing.assert_array_equal(seat.part.summing.oracle.order(), order)
        assert sorted(order) == [*range(30)]
        assert order.tolist() != [*range(30)]


def test_the_seed_is_gone_when_the_run_is_over(federation):
    play(federation.finish(MemoryWorld()))
    for name in FIVE:
        for file in federation.folder.glob(f"{name}.journal*"):
            assert federation.seeds[name].raw not in file.read_bytes()
        connection = sqlite3.connect(federation.folder / f"{name}.journal")
        assert connection.execute("SELECT count(*) FROM secret").fetchone() == (0,)
        connection.close()


def test_more_epsilon_means_a_model_nearer_to_the_optimum():
    """It learns: with little noise the risk is near that of the pooled optimum."""
    sizes = (2000, 1500, 1000)
    with made(rounds=11, sizes=sizes, epsilon=8.0) as federation:
        model = next(iter(play(federation.finish(MemoryWorld())).values())).model
        rows, labels = np.concatenate(federation.features), np.concatenate(federation.labels)

        def risk(w):
            return float(np.mean(np.logaddexp(0, -labels * (rows @ w))))

        free = replace(federation.algorithm, epsilon=np.inf, rounds=40)
        best = sv.simulate(free, federation.sites(), sv.graphs.complete(3), seed=0).consensus[0]
        assert risk(model) < risk(best) + 0.02
        assert risk(best) < risk(0 * best) - 0.005


# -- by the commands that people type ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    """Three sites in one folder, from keys to models, over TLS; what their programs ended with."""
    place, port = tmp_path_factory.mktemp("masked"), free_port()
    names, r = FIVE[:3], np.random.default_rng(1)
    given = ["--algorithm=masked", "--colluding=1", "--rounds=6", "--epsilon=2", "--delta=1e-4", "--features=4",
             "--data-norm=1", "--policy=stop", "--wait-seconds=60", "--evaluate=0.3"]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch, processes.Programs() as programs:
        patch.chdir(place)
        for name in names:
            rows = r.normal(size=(50, 4))
            labels = np.sign(rows[:, 0] + 0.1)
            np.savez(f"{name}.npz", features=rows / np.linalg.norm(rows, axis=1)[:, None], labels=labels)
            assert main(["site", "keygen", name]) == main(["site", "seed", name, f"--key={name}.signing.pem"]) == 0
            with redirect_stdout(StringIO()) as printed:
                assert main(["site", "commit", f"--data={name}.npz", f"--salt={name}.salt", "--data-norm=1"]) == 0
            given += [f"--site={name}={name}.pub:50:{printed.getvalue().strip()}", f"--mask-key={name}={name}.mask"]
        assert main(["federation", "new", *given]) == 0
        for name in names:
            sign = ["federation", "sign", "federation.toml", f"--site={name}", f"--key={name}.signing.pem"]
            assert main(sign) == 0
        assert main(["federation", "certificates", "federation.toml", "--host=127.0.0.1"]) == 0
        assert main(["federation", "server-config", "federation.toml", "--host=127.0.0.1", f"--port={port}"]) == 0
        programs.start("server", [processes.server_program(), "--config", "nats.conf"], place / "server.log")
        url = f"--server=tls://127.0.0.1:{port}"
        assert main(["federation", "open", "--federation=federation.toml", url]) == 0

        def run(name, *more):
            return main(["site", "run", "--quiet", "--federation=federation.toml", f"--site={name}", url,
                         f"--key={name}.signing.pem", f"--data={name}.npz", f"--state={name}-state", "--cap-epsilon=3",
                         "--cap-delta=1e-4", "--certificates=certificates", *more])  # fmt: skip

        def run_salted(name, *more):
            return run(name, f"--salt={name}.salt", *more)

        odd = run_salted("berlin"), run_salted("berlin", "--seed=oslo.seed"), run("berlin", "--seed=berlin.seed")
        shutil.copy("berlin.seed", "copy")
        with ThreadPoolExecutor(3) as pool:
            codes = list(pool.map(lambda name: run_salted(name, f"--seed={name}.seed"), names))
        again = run("berlin", "--seed=berlin.seed")
    return place, odd, codes, again


def test_the_commands_lead_to_one_signed_model_and_the_seeds_are_gone(typed, capsys):
    place, odd, codes, again = typed
    assert odd == (2, 2, 2)  # without its seed, with another's, without its salt: nothing was begun
    assert codes == [0, 0, 0]
    assert again == 0  # the same command again: the run is over
    agreement = toml_file.load(place / "federation.toml")
    made = {}
    for name in FIVE[:3]:
        folder = place / f"{name}-state" / agreement.run
        made[name] = sv.models.load(folder / "model.safetensors")
        statement = (folder / "statement.txt").read_text()
        flat = " ".join(statement.split())
        assert "at most 1 of the 3 sites collude" in flat
        assert "Against whoever carries the messages together with sites, epsilon is at most" in flat
        assert "In this simulation" not in flat
        assert not (place / f"{name}.seed").exists()
        verify = ["site", "verify", f"--federation={place / 'federation.toml'}", str(folder / "statement.txt")]
        assert main(verify) == 0
    assert len({model.weights.tobytes() for model in made.values()}) == 1
    assert made["oslo"].privacy.epsilon <= 2
    beside = [place / f"{name}-state" / agreement.run / "evaluation.json" for name in FIVE[:3]]
    assert len({path.read_bytes() for path in beside}) == 1
    evaluation = PrivateEvaluation.load(beside[0])
    assert evaluation.rows == 150
    assert evaluation.model == weights_digest(made["oslo"])
    assert evaluation.privacy == made["oslo"].privacy
    capsys.readouterr()
    assert main(["federation", "show", str(place / "federation.toml")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "and then two that evaluate the last of them" in shown
    assert "30 % for the evaluation" in shown
    secret = (place / "copy").read_bytes()
    assert not any(secret in file.read_bytes() for file in (place / "berlin-state").rglob("*") if file.is_file())
