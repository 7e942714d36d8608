"""The noise of real sites, read off the messages that they have sent."""

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import sottovoce as sv
from helpers import every
from helpers.federations import agreement
from helpers.network_worlds import MemoryWorld, play
from helpers.site_runs import Federation
from sottovoce.auditing import wire
from sottovoce.cli import main
from sottovoce.errors import InputError, SottovoceError, UnsupportedError
from sottovoce.federation.agreement import toml_file
from sottovoce.federation.site import masks
from sottovoce.noise import secure

COMMON = {"rounds": 3, "epsilon": 1.5, "delta": 1e-5, "diameter": 10.0, "lam": 0.01, "local_steps": 1}
HEAD_START = "ipadmm, head start"
ALGORITHMS = every.algorithms(COMMON | {"largest_degree": 2}, every.has_own_noise_at_sites, ("fair",)) | {
    HEAD_START: sv.IPADMM(**COMMON | {"rounds": 2}, moments=0.2)
}
D = 60


def ended(algorithm, graph=None):
    """A federation whose sites have run to their end, with the noise that real sites draw."""
    federation = Federation(graph or sv.graphs.path(3), (30, 20, 25), algorithm, d=D)
    play(federation.finish(MemoryWorld()))
    return federation


def parts(federation):
    names = federation.names
    return (
        federation.agreement,
        {name: federation.sites([name]) for name in names},
        {name: federation.folder / f"{name}.journal" for name in names},
    )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_real_sites_send_exactly_the_noise_that_they_claim(name):
    algorithm = ALGORITHMS[name]
    with ended(algorithm, sv.graphs.complete(3) if name == HEAD_START else None) as federation:
        found = wire.audit_wire(*parts(federation))
        sent = {
            site: wire.sent_messages(federation.agreement, site, path) for site, path in parts(federation)[2].items()
        }
        z = wire.noise_of(federation.agreement, parts(federation)[1], sent)["paris"]
    opening = algorithm.opening(D)
    assert found.numbers == 3 * (algorithm.rounds * D + (0 if opening is None else opening.numbers))
    assert not found.alarm
    assert stats.kstest(z, "norm").pvalue > 1e-6
    assert found.size == pytest.approx(1, abs=6 / np.sqrt(2 * found.numbers))
    assert found.claimed == pytest.approx(1.5)
    assert 0.8 * found.claimed < found.lower < 1.2 * found.claimed


def masked(epsilon=1.5):
    """Three sites of which one may collude, and as many sums as a journal keeps."""
    return sv.MaskedNewton(rounds=3, epsilon=epsilon, delta=1e-5, colluding=1, least_sites=3, lam=0.01)


def test_masked_sums_of_real_sites_hold_exactly_the_noise_that_they_claim():
    with ended(masked(), sv.graphs.complete(3)) as federation:
        agreed, rows, journals = parts(federation)
        found = wire.audit_wire(agreed, rows, journals)
        z = wire.noise_of(agreed, rows, {name: wire.sent_messages(agreed, name, journals[name]) for name in rows})
    assert found.numbers == D * (D + 1) // 2 + 2 * D
    assert not found.alarm
    assert stats.kstest(z["all"], "norm").pvalue > 1e-6
    assert found.size == pytest.approx(1, abs=6 / np.sqrt(2 * found.numbers))
    assert found.claimed == 1.5
    assert 0.8 * found.claimed < found.lower < 1.2 * found.claimed


def test_a_share_that_one_real_site_leaves_out_is_found_out(monkeypatch):
    """Of three shares in a sum two are left: sqrt(2/3) of the noise, which no message alone would show."""
    right, drawn, here = masks.Masks.words, masks.discrete_gaussian, threading.local()

    def words(self, context, value, past):
        here.zeros = context.numbers if self.site == "oslo" else None  # sites speak in threads
        return right(self, context, value, past)

    def gaussian(*given):
        return drawn(*given) if here.zeros is None else np.zeros(here.zeros, dtype=np.int64)

    monkeypatch.setattr(masks.Masks, "words", words)
    monkeypatch.setattr(masks, "discrete_gaussian", gaussian)
    with ended(masked(), sv.graphs.complete(3)) as federation:
        found = wire.audit_wire(*parts(federation))
    assert found.size == pytest.approx(np.sqrt(2 / 3), rel=0.1)
    assert found.alarm
    assert found.lower > found.claimed


def test_two_thirds_of_it_are_found_out(monkeypatch):
    """The sampler of real sites is told to draw for two thirds of the scale."""
    right = secure.SecureNoise.added
    monkeypatch.setattr(secure.SecureNoise, "added", lambda self, g, sigma, *more: right(self, g, sigma * 2 / 3, *more))
    with ended(ALGORITHMS["ipadmm"]) as federation:
        found = wire.audit_wire(*parts(federation))
    assert found.size == pytest.approx(2 / 3, rel=0.1)
    assert found.alarm
    assert found.lower > found.claimed


def test_the_size_and_its_bound_are_those_of_the_chi_squared_law():
    with ended(ALGORITHMS["ipadmm"]) as federation:
        found = wire.audit_wire(*parts(federation), confidence=0.9)
    squares = found.size**2 * found.numbers
    assert found.p == pytest.approx(stats.chi2.cdf(squares, found.numbers))
    most = np.sqrt(squares / stats.chi2.ppf(0.1, found.numbers))
    sigma = sv.privacy.sigma_for(1.5, 1e-5, 3) * most
    expected = sv.privacy.epsilon(sv.privacy.Repeated(sv.privacy.Gaussian(sigma), 3), 1e-5)
    assert found.lower == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"local_steps": 2}, "local_steps=2"),
        ({"batch_size": 3}, "batch_size=3"),
        ({"rounds": 4}, "at most 3 messages"),
    ],
)
def test_what_a_message_cannot_be_solved_for_is_refused(changes, words):
    agreed = agreement(algorithm=replace(ALGORITHMS["ipadmm"], **changes))
    with pytest.raises((InputError, UnsupportedError), match=words):
        wire.audit_wire(agreed, {}, {})


def test_a_message_that_was_changed_is_refused():
    with ended(ALGORITHMS["ipadmm"]) as federation:
        agreed, rows, journals = parts(federation)
        other = replace(agreed, run="f" * 32)
        with pytest.raises(SottovoceError):
            wire.audit_wire(other, rows, journals)
        with pytest.raises(InputError, match="a site's journal"):
            wire.audit_wire(agreed, rows, journals | {"berlin": federation.folder / "berlin.ledger"})
        with pytest.raises(InputError, match="rows of every site"):
            wire.audit_wire(agreed, {}, journals)


def test_the_command_reads_a_folder(tmp_path, capsys):
    with ended(ALGORITHMS["ipadmm"]) as federation:
        agreed, _, journals = parts(federation)
        (tmp_path / "federation.toml").write_text(toml_file.dumps(agreed))
        for i, name in enumerate(federation.names):
            state = tmp_path / name / "state" / agreed.run
            state.mkdir(parents=True)
            for file in Path(journals[name]).parent.glob(f"{name}.journal*"):
                shutil.copy(file, state / file.name.replace(f"{name}.journal", "journal.sqlite"))
            np.savez(tmp_path / name / "rows.npz", features=federation.features[i], labels=federation.labels[i])
    assert main(["audit", "--site-folder", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["sites"] == list(federation.names)
    assert told["numbers"] == 9 * D
    assert {"claimed", "lower", "ratio", "size", "p", "alarm", "assumption"} <= set(told)
    assert main(["audit", "--site-folder", str(tmp_path), "--algorithm", "ipadmm"]) == 2
    assert "--site-folder alone" in capsys.readouterr().err
    (tmp_path / "berlin" / "rows.npz").unlink()
    assert main(["audit", "--site-folder", str(tmp_path)]) == 2
    assert "rows.csv or rows.npz" in capsys.readouterr().err
