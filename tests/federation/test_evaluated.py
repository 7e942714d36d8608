"""An evaluation that was agreed on: two more masked sums, paid for with the model, and one answer at all sites."""

import asyncio
from contextlib import ExitStack

import numpy as np
import pytest

import sottovoce as sv
from federation.test_masked_run import made, said_by
from federation.test_summing import FIVE, GO_ON, SPARING, Sums, run, simulated
from helpers.federations import masked_agreement
from helpers.laws import assert_standard
from helpers.network_worlds import MemoryWorld, play
from helpers.site_runs import dies
from sottovoce.federation.site.formats import format_of
from sottovoce.federation.site.mail import largest_message
from sottovoce.federation.site.runner import result_of
from sottovoce.federation.transport.wire import Slot, sealed_size
from sottovoce.files.models.coefficients import table_of
from sottovoce.files.models.from_site import evaluation_of, model_of, statement_of
from sottovoce.privacy import Gaussian
from sottovoce.problem.answers import Answers
from sottovoce.tally import PrivateEvaluation


@pytest.mark.parametrize(
    "terms",
    [{}, {"inference": True, "rounds": 6}, {"loss": sv.losses.Softmax(3)}, {"loss": sv.losses.SmoothedHinge()}],
    ids=["two classes", "inference", "three classes", "no odds"],
)
def test_all_sites_read_the_evaluation_of_a_simulation_with_the_same_noise(terms):
    sums = run(Sums({"rounds": 5, "evaluate": 0.3, "epsilon": 20.0} | terms))
    algorithm = sums.agreement.algorithm
    session, z = simulated(sums, algorithm.oracle(sv.Sites(sums.features, sums.labels), sv.graphs.complete(5)))
    assert_standard(z)
    (other_,) = session.answer.evaluation.tallied(1.0)
    found = [sums.session[name].answer.evaluation.tallied(1.0) for name in FIVE]
    assert all(one == found[0] for one in found)
    own = found[0][0]
    assert own.question.rows == other_.question.rows == 352
    for name, figure in own.answer.figures.items():
        other = other_.answer.figures[name]
        np.testing.assert_allclose((figure.low, figure.high), (other.low, other.high), rtol=1e-6, atol=1e-6)
    rows, w = np.concatenate(sums.features), sums.model()[:, 0].reshape(-1, algorithm.loss.outputs)
    decided, labels = rows @ w, np.concatenate(sums.labels)
    right = np.argmax(decided, axis=1) == labels if w.shape[1] > 1 else (decided[:, 0] >= 0) == (labels > 0)
    accuracy = own.answer.figures["accuracy"]
    assert accuracy.low <= right.mean() <= accuracy.high
    assert accuracy.high - accuracy.low < 0.5


def test_a_site_that_is_lost_between_the_two_sums_is_in_neither_count_twice():
    """Bins of five sites, counts of four: figures are of the rows that were counted."""
    sums = Sums({"rounds": 5, "evaluate": 0.3, "epsilon": 20.0} | SPARING, lost_neighbour=GO_ON)
    for q in range(1, 5):
        sums.take(*sums.turn(q))
    sums.turn(5)
    left = tuple(name for name in FIVE if name != "oslo")
    sums.take(*sums.turn(5, attempt=1, members=left))
    found = [sums.session[name].answer.evaluation.tallied(1.0)[0] for name in left]
    assert all(one == found[0] for one in found)
    assert found[0].question.rows == 152
    assert sum(one.value for line in found[0].answer.confusion for one in line) == pytest.approx(152, abs=1)


@pytest.mark.parametrize("terms", [{}, {"loss": sv.losses.Softmax(3)}, {"inference": True, "rounds": 6}])
def test_the_server_has_room_for_its_largest_message(terms):
    a = masked_agreement(algorithm={"evaluate": 0.2} | terms)
    sizes = [format_of(a).payload(q) for q in range(1, a.algorithm.rounds + 1)]
    assert largest_message(a) == max(sealed_size(a.run, Slot(0, name), max(sizes)) for name in a.names)
    assert max(sizes) > 8 * 4000


def evaluations(federation, ends):
    """What each site writes beside its model, as bytes."""
    a = federation.agreement
    return {
        name: evaluation_of(a, model_of(a, name, end.model, end.absent), end.tallied).to_bytes()
        for name, end in ends.items()
    }


def test_it_is_paid_for_in_the_same_books_and_the_same_bytes_at_all_sites(tmp_path):
    with made(rounds=5, evaluate=0.2) as federation:
        ends = play(federation.finish(MemoryWorld()))
        written = evaluations(federation, ends)
        assert len(set(written.values())) == 1
        path = tmp_path / "evaluation.json"
        path.write_bytes(written["rome"])
        kept = PrivateEvaluation.load(path)
        assert kept.rows == 352
        assert kept.classes == ("-1", "+1")
        assert kept.privacy == statement_of(federation.agreement, "oslo")
        assert kept.privacy.epsilon <= 1.5
        assert "It looks better there than on other rows" in kept.privacy.prose()
        assert "counts of scores by label" in kept.privacy.prose()
        sigmas = federation.algorithm.multipliers(5)
        np.testing.assert_allclose(sum(1 / s**2 for s in sigmas[3:]) / sum(1 / s**2 for s in sigmas), 0.2)
        with ExitStack() as stack:
            seat = federation.seat("rome", stack)
            booked = [r for r in seat.ledger.reservations() if r.run == seat.booked]
            assert [r.cost.event for r in booked] == [Gaussian(sigma) for sigma in sigmas]
            assert result_of(seat).tallied == ends["rome"].tallied


def test_all_sites_write_one_table_of_coefficients_that_of_a_simulation_with_the_same_noise():
    terms = {"rounds": 6, "inference": True, "epsilon": 20.0}
    sums = run(Sums(terms))
    a = sums.agreement
    session, _ = simulated(sums, a.algorithm.oracle(sv.Sites(sums.features, sums.labels), sv.graphs.complete(5)))
    names = tuple(f"x{i}" for i in range(a.features))
    expected = table_of(a.algorithm, session.answer.evidence[0], None, names, Answers.of(None, 1))
    found = [
        model_of(a, name, sums.model(name)[:, 0], {}, evidence=sums.session[name].answer.evidence[0]).inference
        for name in FIVE
    ]
    assert all(one == found[0] for one in found)
    assert found[0].rows == 352
    assert found[0].unidentified == expected.unidentified
    assert len(found[0].unidentified) < a.features
    for line, other in zip(found[0].lines, expected.lines, strict=True):
        if line.identified:
            assert (line.estimate, line.error) == pytest.approx((other.estimate, other.error), rel=1e-5)


def test_a_run_ends_with_its_table_of_coefficients_also_when_it_is_read_again(tmp_path):
    with made(rounds=6, inference=True, epsilon=8.0) as federation:
        ends = play(federation.finish(MemoryWorld()))
        a = federation.agreement
        models = {n: model_of(a, n, end.model, end.absent, evidence=end.evidence) for n, end in ends.items()}
        assert len({tuple(model.inference.lines) for model in models.values()}) == 1
        sv.models.save(models["rome"], tmp_path / "model.safetensors")
        assert sv.models.load(tmp_path / "model.safetensors").inference.lines == models["oslo"].inference.lines
        with ExitStack() as stack:
            again = result_of(federation.seat("rome", stack)).evidence
        assert model_of(a, "rome", ends["rome"].model, {}, evidence=again).inference == models["rome"].inference


@pytest.mark.parametrize(("point", "at"), [("computed", 4), ("published", 4), ("absorbed", 4), ("in outbox", 5)])
def test_a_crash_in_between_changes_nothing(point, at):
    with made(rounds=5, sizes=(30, 20, 25), evaluate=0.2) as federation:
        world = MemoryWorld()

        async def scene():
            others = [asyncio.ensure_future(federation.site(name, world)) for name in federation.names[1:]]
            await dies(federation, world, point, at)
            before = dict(said_by(federation, world, "berlin"))
            end = await federation.site("berlin", world)
            after = said_by(federation, world, "berlin")
            assert all(after[k] == data for k, data in before.items())
            return {"berlin": end, **dict(zip(federation.names[1:], await asyncio.gather(*others), strict=True))}

        assert len(set(evaluations(federation, play(scene())).values())) == 1
        with federation.ledger("berlin") as ledger:
            assert len(list(ledger.reservations())) == 5
