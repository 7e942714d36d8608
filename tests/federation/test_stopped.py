"""Runs that stop before their end: whatever the reason, the model of what was learnt until then is written."""

import errno
from contextlib import ExitStack

import numpy as np
import pytest

import sottovoce as sv
from helpers.network_worlds import LyingWorld, MemoryWorld, play
from helpers.site_runs import FIVE, Died, Federation, dying
from sottovoce import models
from sottovoce.cli.exit_codes import EXIT_CODES, code_of
from sottovoce.cli.output import Stopped
from sottovoce.cli.site.results import keeping_what_was_found, results_in
from sottovoce.errors import BudgetError
from sottovoce.federation.agreement.agreement import LostNeighbour
from sottovoce.federation.site import stops
from sottovoce.federation.site.formats import format_of
from sottovoce.federation.site.letters import read_sum
from sottovoce.federation.site.mail import Pace
from sottovoce.federation.site.runner import result_of, so_far
from sottovoce.federation.transport.transport import RefusedError, UnreachableError
from sottovoce.federation.transport.wire import Envelope, Kind, seal, unseal

STOP = LostNeighbour(policy="stop", wait_seconds=1.0)
PACE = Pace(slice=0.1, server=0.5)
SIZES = (30, 200, 17, 80, 25)


@pytest.fixture
def masked():
    algorithm = sv.MaskedNewton(rounds=4, epsilon=1.5, delta=1e-5, colluding=1, least_sites=5)
    with Federation(sv.graphs.complete(5), SIZES, algorithm, lost_neighbour=STOP) as federation:
        yield federation


def ended(federation, name, error, folder):
    """What `site run` does with an error that the run of a site ended with."""
    with ExitStack() as stack:
        seat = federation.seat(name, stack)
        with pytest.raises(type(error)) as raised, keeping_what_was_found(results_in(folder, seat)):
            raise error
        assert raised.value is error  # so the exit code is that of the failure
        return so_far(seat)


def expect_written(federation, name, error, folder, done):
    kept = ended(federation, name, error, folder)
    assert (kept.rounds, bool(np.abs(kept.model).max() > 0)) == (done, True)
    written = models.load(folder / "model.safetensors")
    np.testing.assert_array_equal(written.weights[:, 0], kept.model)
    assert written.provenance["stopped_after"] == done
    unit = "sums" if federation.masked else "rounds"
    assert any(f"The model of the first {done} {unit}, with its statement, is in {folder}" in note
               for note in error.__notes__)  # fmt: skip
    text = (folder / "statement.txt").read_text()
    assert f"Stopped:    after {done} of {federation.algorithm.rounds} {unit}. The promise is that of the" in text
    return text


def test_a_garbage_vector_in_the_last_sum_leaves_the_model_of_those_before(masked, tmp_path):
    a = masked.agreement

    def shows(reader, slot, data):
        if data is None or (slot.site, slot.number, slot.kind) != ("wien", 4, Kind.SUM) or reader == "wien":
            return data
        place = Envelope(a.run, a.digest(), slot, format_of(a).payload(4))
        came = read_sum(unseal(data, place, a.member("wien").public_key), 4, 5)
        garbage = np.random.default_rng(5).integers(0, 2**64, len(came.words), dtype=np.uint64)
        return seal(place, came._replace(words=garbage).to_bytes(), masked.keys["wien"])

    ends = play(masked.all(LyingWorld(shows=shows), pace=PACE))
    written = set()
    for name in FIVE[:4]:
        assert code_of(ends[name]) == 12, ends
        text = expect_written(masked, name, ends[name], tmp_path / name, 3)
        assert f"Why:        {EXIT_CODES[12]}" in text
        written.add(models.load(tmp_path / name / "model.safetensors").weights.tobytes())
    assert len(written) == 1


def test_a_server_that_is_lost_leaves_the_model_of_the_sums_before(masked, tmp_path):
    world = MemoryWorld()

    def probe(point, k):
        if (point, k) == ("in outbox", 4):
            world.post.stop()

    ends = play(masked.all(world, pace=PACE, probe=probe))
    for name in FIVE:
        assert code_of(ends[name]) == 7, ends
        expect_written(masked, name, ends[name], tmp_path / name, 3)
    # The same command again goes on to the end, and its model takes the place of the first.
    world.post.start()
    assert all(end.rounds == 4 for end in play(masked.finish(world, pace=PACE)).values())


def test_with_noise_at_every_site_each_round_has_a_model(tmp_path):
    algorithm = sv.IPADMM(rounds=3, local_steps=2, epsilon=1.5, delta=1e-5, diameter=10.0)
    with Federation(sv.graphs.complete(3), (30, 20, 25), algorithm, lost_neighbour=STOP) as federation:

        def stops_at(k):
            world = MemoryWorld()
            probe = dying("checkpointed", k) if k else dying("reserved", 1)
            return play(federation.all(world, pace=PACE, probe=probe))

        assert all(isinstance(end, Died) for end in stops_at(0).values())
        assert ended(federation, "oslo", UnreachableError("gone"), tmp_path / "none") is None
        assert not (tmp_path / "none").exists()
        assert all(isinstance(end, Died) for end in stops_at(1).values())
        expect_written(federation, "oslo", UnreachableError("gone"), tmp_path / "one", 1)


@pytest.fixture
def stopped(masked):
    """All have read three of four sums, and no process runs."""
    play(masked.all(MemoryWorld(), pace=PACE, probe=dying("checkpointed", 3)))
    return masked


@pytest.mark.parametrize(
    "error",
    [
        stops.LostNeighbourError("x"), stops.LeftBehindError("x"), stops.UsedTwiceError("x"), stops.DamagedError("x"),
        stops.BehindError("x"), stops.ForkedError("x"), stops.SpoiledError("x"), stops.DivergedError("x"),
        UnreachableError("x"), RefusedError("x"), BudgetError("x"), Stopped("interrupted"),
        OSError(errno.ENOSPC, "No space left on device"), RuntimeError("a fault of ours"),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_every_stop_writes_the_model_and_says_why(stopped, tmp_path, error):
    text = expect_written(stopped, "oslo", error, tmp_path, 3)
    assert ("Do not use" in text or "do not use" in text) == isinstance(error, stops.ForkedError)


def test_a_model_that_cannot_be_written_does_not_hide_what_ended_the_run(stopped, tmp_path):
    (tmp_path / "taken").write_text("a file")
    error = UnreachableError("gone")
    assert ended(stopped, "oslo", error, tmp_path / "taken").rounds == 3
    assert any("model of the first 3 sums is in the journal" in note for note in error.__notes__)


def test_a_journal_that_cannot_be_read_does_not_hide_what_ended_the_run(stopped, tmp_path, monkeypatch):
    def unreadable(seat):
        raise stops.DamagedError(f"no journal of {seat.site}")

    monkeypatch.setattr("sottovoce.federation.site.runner.so_far", unreadable)
    error = UnreachableError("gone")
    assert ended(stopped, "oslo", error, tmp_path / "out") is not None
    assert not (tmp_path / "out").exists()


def test_a_site_that_was_set_back_keeps_the_better_model(masked, tmp_path):
    """The run is over and its model is written. Then the state folder is put back, and the same command stops."""
    from helpers.site_runs import Backup

    world = MemoryWorld()
    play(masked.all(world, pace=PACE, probe=dying("checkpointed", 3)))
    backup = Backup(masked, "oslo")
    play(masked.finish(world, pace=PACE))
    with ExitStack() as stack:
        seat = masked.seat("oslo", stack)
        results_in(tmp_path, seat).write(result_of(seat))
    before = (tmp_path / "model.safetensors").read_bytes(), (tmp_path / "statement.txt").read_bytes()
    backup.restore()
    error = stops.UsedTwiceError("set back")
    ended(masked, "oslo", error, tmp_path)
    assert ((tmp_path / "model.safetensors").read_bytes(), (tmp_path / "statement.txt").read_bytes()) == before
    assert any("from more than is in the journal" in note for note in error.__notes__)
