"""`sottovoce audit`: attack a claim of epsilon, and say how much of it the attack shows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from sottovoce.cli.options import HelpfulCommand, signature_of, values
from sottovoce.cli.output import Stopped, note, print_json, progress, show
from sottovoce.errors import InputError, expect
from sottovoce.settings.options import option

if TYPE_CHECKING:
    from sottovoce.algorithms.computation import View
    from sottovoce.auditing.audit import Audit
    from sottovoce.auditing.bounds import Verdict
    from sottovoce.auditing.releases import Release
    from sottovoce.simulation.devices import DeviceName, Precision

_WHAT, _WHO, _HOW = "What is attacked", "Observer", "How"
_OWN = ("epsilon", "delta", "rounds", "local_steps", "rho", "lam", "diameter", "sensitivity", "moments",
        "batch_size", "sampling", "colluding")  # fmt: skip
_OF_ALL = {"epsilon", "sites", "rows", "view", "runs", "confidence", "noise", "device", "dtype", "seed"}  # with --all
REFUTED = 1  # the exit code of a claim that is refuted


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Options of `audit`; None is an option that was not given."""

    algorithm: str | None = option(None, _WHAT, "Algorithm by its name.")
    form: str = option(
        "fair", _WHAT, "Rival algorithms: noise as published, or for the same epsilon by the best accountant (fair)."
    )
    epsilon: float | None = option(None, _WHAT, "The claim: total budget over all rounds.")
    delta: float | None = option(None, _WHAT, "Chance of failure that the claim allows for.")
    rounds: int | None = option(None, _WHAT, "Rounds of messages.")
    local_steps: int | None = option(None, _WHAT, "Noisy steps in a round.")
    rho: float | None = option(None, _WHAT, "Penalty of ADMM.")
    lam: float | None = option(None, _WHAT, "Weight of the regulariser.")
    diameter: float | None = option(None, _WHAT, "Diameter that scales the steps.")
    loss: str | None = option(None, _WHAT, "Loss. Default: one with which the claim can be attained.")
    sensitivity: str | None = option(None, _WHAT, "Noise fits the worst model (plain), or the current one.")
    moments: float | None = option(None, _WHAT, "IPADMM: part of the budget for a head start. Default: none.")
    batch_size: int | None = option(None, _WHAT, "Rows of a batch. Default: all.")
    sampling: str | None = option(None, _WHAT, "How a batch is drawn.")
    sites: int | None = option(None, _WHAT, "How many sites. Default: two, or three for masked sums.")
    rows: int | None = option(None, _WHAT, "Rows of every site, made up for the attack.")
    view: str | None = option(None, _WHO, "What the observer sees. Default: the most that the claim covers.")
    colluding: int | None = option(
        None,
        _WHO,
        "Masked sums: sites that collude with the observer. The noise is set for this number, and the attack uses it.",
    )
    runs: int = option(10_000, _HOW, "Runs to evaluate, with each of the two rows.")
    confidence: float = option(0.95, _HOW, "Confidence of the lower bounds.")
    noise: str = option("seeded", _HOW, "Noise of a simulation (seeded), or the operating system's (system).")
    device: str = option("cpu", _HOW, "Device to compute on.")
    dtype: str = option("float64", _HOW, "Precision.")
    seed: int | None = option(None, _HOW, "Seed of the simulated noise. Default: drawn, and printed.")


class AuditCommand(HelpfulCommand):
    """The command, whose help shows defaults, and choices of the library."""

    def facts(self) -> tuple[Mapping[str, Any], Mapping[str, Sequence[str]]]:
        """Defaults and choices, by option."""
        from sottovoce.auditing.views import VIEWS
        from sottovoce.studies.choices import CHOICES

        known = {f.name: CHOICES[f.name] for f in fields(AuditOptions) if f.name in CHOICES}
        return {f.name: f.default for f in fields(AuditOptions)}, known | {"view": VIEWS, "noise": ("seeded", "system")}


def audit(
    everything: bool = False,
    site_folder: Path | None = None,
    out: Path | None = None,
    json: bool = False,
    quiet: bool = False,
    **given: str | None,
) -> int:
    """Attack a claim of epsilon: how well can two rows be told apart by whoever looks on?

    Searches for the two rows that can be told apart best, and runs the algorithm many times with each. The optimal test
    on what the observer sees gives a lower bound on epsilon. A bound above the claim by more than chance shows a fault,
    and so does noise that is too small by more than chance. Otherwise this attack found no fault.

    With --site-folder, the noise of real sites is computed from the messages of a test federation that has ended.

    The exit code is 1 where a claim is refuted: chance does that to one right claim in a million.
    """
    question = AuditOptions(**values(AuditOptions, given))
    if site_folder is not None:
        return _wire(site_folder, question, {name for name, text in given.items() if text is not None}, everything, out,
                     json, quiet)  # fmt: skip
    if everything == (question.algorithm is not None):
        raise InputError(
            f"Expected --algorithm or --all, got {'both' if everything else 'neither'}. Name one, or say --all."
        )
    expect(question.noise in ("seeded", "system"), "noise 'seeded' or 'system'", noise=question.noise)
    if everything:
        given_too = sorted({name for name, text in given.items() if text is not None} - _OF_ALL)
        if given_too:
            raise InputError(
                f"Expected settings that all algorithms share with --all, got --{given_too[0].replace('_', '-')}. "
                "Leave it out, or name one --algorithm."
            )
    found: Mapping[str, Verdict]
    if everything:
        found = _all(question, out, quiet)
    else:
        from sottovoce.auditing.subjects import subject

        name, own = str(question.algorithm), {n: value for n in _OWN if (value := getattr(question, n)) is not None}
        attacked = subject(name, own, form=question.form, loss=question.loss)
        found = {name: _attack(name, attacked, question, quiet)}
    if out is not None:
        from sottovoce.studies.report.audit_page import write_audits

        write_audits(found, out)
    if json:
        print_json(found if everything else next(iter(found.values())))
    elif not quiet:
        _show(found, out)
    return REFUTED if any(one.alarm for one in found.values()) else 0


audit.__signature__ = signature_of(  # type: ignore[attr-defined]
    AuditOptions,
    everything=Annotated[bool, typer.Option("--all", help="Every algorithm, view, way of drawing and release.")],
    site_folder=Annotated[
        Path | None,
        typer.Option(
            help="Folder of a test federation: federation.toml, and for every site a folder of its name with its rows "
            "(rows.csv or rows.npz) and its state."
        ),
    ],
    out=Annotated[Path | None, typer.Option(help="Folder for a web page and the figures as data.")],
    json=Annotated[bool, typer.Option("--json", help="Print one JSON object instead of words.")],
    quiet=Annotated[bool, typer.Option("--quiet", help="No progress bar and no words.")],
)


def _attack(name: str, algorithm: Any, q: AuditOptions, quiet: bool, **more: Any) -> "Audit":
    from sottovoce.auditing.audit import audit as attack

    with _whole_or_nothing(), progress(quiet, name) as report:
        return attack(
            algorithm, runs=q.runs, sites=q.sites, rows=q.rows, confidence=q.confidence, seed=q.seed,
            device=cast("DeviceName", q.device), dtype=cast("Precision", q.dtype), progress=report,
            **{"system_noise": q.noise == "system", "view": cast("View | None", q.view)} | more,
        )  # fmt: skip


def _all(q: AuditOptions, out: Path | None, quiet: bool) -> "dict[str, Verdict]":
    """Every algorithm and every release. Each is reported, and its data are written, as it ends."""
    from sottovoce.auditing import catalogue
    from sottovoce.auditing.subjects import everything

    found: dict[str, Verdict] = {}
    epsilon = {} if q.epsilon is None else {"epsilon": q.epsilon}
    attacks: dict[str, Callable[[], Verdict]] = {
        name: partial(_attack, name, one, q, quiet, **more) for name, (one, more) in everything(epsilon).items()
    }
    for name, release in catalogue.everything(**epsilon).items():
        attacks[name] = partial(_attack_release, name, release, q, quiet)
    for name, attack in attacks.items():
        one = found[name] = attack()
        if out is not None:
            from sottovoce.studies.report.audit_page import write_data

            write_data(found, out)
        if not quiet:
            note(f"{name}: claimed {one.claim.epsilon:.4g}, at least {one.lower:.3f} shown by counting, "
                 f"{'REFUTED' if one.alarm else 'not refuted'}, seed {one.seed}")  # fmt: skip
    return found


def _attack_release(name: str, release: "Release", q: AuditOptions, quiet: bool) -> "Verdict":
    from sottovoce.auditing.releases import played

    with _whole_or_nothing(), progress(quiet, name) as report:
        return played(release, q.runs, q.confidence, report)


@contextmanager
def _whole_or_nothing() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped("interrupted; nothing is kept of an audit that is not finished") from None


def _wire(
    folder: Path, q: AuditOptions, given: set[str], everything: bool, out: Path | None, json: bool, quiet: bool
) -> int:
    """Audit the noise of real sites, and return the exit code; refuses all options that do not go with it."""
    other = sorted(given - {"confidence"}) + ["all"] * everything + ["out"] * (out is not None)
    if other:
        raise InputError(f"Expected --site-folder alone, got --{other[0].replace('_', '-')} too. Leave one out.")

    from sottovoce.auditing.wire import audit_wire, check_auditable
    from sottovoce.cli.site.files import rows_of
    from sottovoce.federation.agreement import toml_file

    expect((folder / "federation.toml").is_file(), "a folder with federation.toml", site_folder=str(folder))
    agreement = toml_file.load(folder / "federation.toml")
    check_auditable(agreement)
    files = {}
    for name in agreement.names:
        known = [path for file in ("rows.csv", "rows.npz") if (path := folder / name / file).is_file()]
        expect(len(known) == 1, f"rows.csv or rows.npz in {folder / name}", files=[path.name for path in known])
        files[name] = known[0]
    found = audit_wire(
        agreement,
        {name: rows_of(agreement, file, site=name) for name, file in files.items()},
        {name: folder / name / "state" / agreement.run / "journal.sqlite" for name in agreement.names},
        q.confidence,
    )
    if json:
        print_json(found)
    elif not quiet:
        show(found.prose())
    return REFUTED if found.alarm else 0


def _show(found: "Mapping[str, Verdict]", out: Path | None) -> None:
    from sottovoce.auditing.table import table_of

    if len(found) == 1:
        show(next(iter(found.values())).prose())
    else:
        # A terminal is narrow: the rest is on the page.
        show(table_of(found).only("attacked", "claimed ε", "shown, by counting", "shown, normal", "verdict"))
    if out is not None:
        show(f"Written to {out}.")
