"""The benchmark: one command, one JSON file, ratios within one run.

    python benchmarks/run.py [--quick] [--only NAME ...] [--out benchmarks/latest.json]

Every contender runs in a process of its own, in each of its variants, with 1 thread and with all; it must first
reproduce the library's numbers for handed-in noise. Then all are asked in turn, several times, and the fastest
setting counts. With --only, the other parts of an existing file are kept.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import machine
import problem
from contenders import MANY, SPECS
from processes import HERE, NotMeasuredError, Worker, call, first_call, python

FRAMEWORKS = {"flower": "Flower, simulation", "pfl": "pfl-research, simulation", "appfl": "APPFL, serial IIADMM"}
PARTS = ("startup", "limits", "scaling")
HEADLINE_RUNS = 64
ONE_AT_A_TIME = tuple(spec.name for spec in SPECS if spec.module in ("literal", "blocks"))
COMPILED = ("sottovoce32", "jaxed")


def main():
    options = parse()
    out = json.loads(options.out.read_text()) if options.out.exists() and options.only else {}
    out |= {"machine": machine.describe(), "quick": options.quick, "load_before": machine.busy()}
    out["mixed"] = bool(options.only)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        out["problem"] = problem.build(path).facts
        if options.wants(*(spec.module for spec in SPECS)):
            specs = [spec for spec in SPECS if options.wants(spec.module)]
            out["rows"] = Contest(specs, path, options).rows() + kept(out, specs)
            out["first_call"] = compile_times(specs, path, options, out["rows"]) | out.get("first_call", {})
        frameworks = [name for name in FRAMEWORKS if options.wants(name)]
        others = {row["name"]: row for row in out.get("frameworks", [])}
        others |= {FRAMEWORKS[name]: framework(name, path, options) for name in frameworks}
        out["frameworks"] = list(others.values())
    for part in PARTS:
        if options.wants(part):
            say(part)
            out[part] = tried(lambda: call([python(""), str(HERE / f"{part}.py"), *options.passed_on], 1800))  # noqa: B023
    out["ratios"] = ratios(out)
    options.out.write_text(json.dumps(out, indent=2) + "\n")
    import render

    render.show(out)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [spec.module for spec in SPECS] + [*FRAMEWORKS, *PARTS]
    parser.add_argument("--quick", action="store_true", help="a smoke test: few repeats, figures mean little")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"some of: {', '.join(names)}")
    parser.add_argument("--out", type=Path, default=HERE / "latest.json")
    parser.add_argument("--limit", type=float, default=300, help="seconds after which one answer is given up")
    options = parser.parse_args()
    options.wants = lambda *names: options.only is None or any(name in options.only for name in names)
    options.passed_on = ["--quick"] if options.quick else []
    options.repeats, options.target_s = (2, 0.1) if options.quick else (6, 0.6)
    options.threads = sorted({1, machine.cores()})[-1 if options.quick else 0 :]
    options.runs = (1, HEADLINE_RUNS) if options.quick else MANY
    return options


class Contest:
    """All contenders, asked in turn."""

    def __init__(self, specs, path, options):
        self.local_steps = problem.load(path).l
        self.options, self.failed, self.errors, self.workers = options, {}, {}, []
        for spec in specs:
            for variant in spec.variants:
                for threads in options.threads:
                    self._start(spec, variant, threads, path)

    def _start(self, spec, variant, threads, path):
        # One after another: what is checked here must not slow down what is compiled there.
        say(f"check {spec.name}, {variant}, {threads} thread(s)")
        try:
            worker = Worker(spec, variant, threads, path, self.options.limit)
        except NotMeasuredError as reason:
            self.failed[spec.name] = str(reason)
            return
        self.workers.append(worker)
        self.errors[spec.module, variant, threads] = self._ask(worker, worker.check)

    def _ask(self, worker, question, *arguments):
        """The answer, or None; who fails once is not asked again."""
        try:
            return question(*arguments)
        except NotMeasuredError as reason:
            say(f"{worker.spec.name}, {worker.variant}, {worker.threads} thread(s) failed: {reason}")
            self.failed[worker.spec.name] = str(reason)
            self.workers.remove(worker)
            worker.stop()
            return None

    def rows(self):
        """The best setting of every contender and number of runs, and what was not measured."""
        try:
            rows = [self._best(spec, runs) for spec, runs in self._cases()]
        finally:
            for worker in self.workers:
                worker.stop()
        measured = {row["name"] for row in rows}
        missing = [{"name": name, "not_measured": why} for name, why in self.failed.items() if name not in measured]
        return rows + missing

    def _cases(self):
        self.times = {}  # by (spec, runs, variant, threads): seconds per run and step
        specs = list(dict.fromkeys(worker.spec for worker in self.workers))
        for runs in sorted({runs for spec in specs for runs in spec.runs if runs in self.options.runs}):
            self._measure([worker for worker in self.workers if runs in worker.spec.runs], runs)
        return [(s, runs) for s in specs for runs in s.runs if any(key[:2] == (s, runs) for key in self.times)]

    def _measure(self, workers, runs):
        """A first look at every setting, then turns among the best of each contender."""
        say(f"time {runs} run(s)")
        found = {worker: self._ask(worker, self._look, worker, runs) for worker in workers}
        looks = {worker: look for worker, look in found.items() if look is not None}
        for worker, (_, seconds) in looks.items():
            self._note(worker, runs, seconds)
        for _ in range(self.options.repeats):
            for worker in [worker for worker in close_to_best(looks) if worker in self.workers]:
                rounds = looks[worker][0]
                seconds = self._ask(worker, worker.seconds, runs, rounds)
                if seconds is not None:
                    self._note(worker, runs, seconds / rounds)

    def _note(self, worker, runs, seconds_per_round):
        key = worker.spec, runs, worker.variant, worker.threads
        self.times.setdefault(key, []).append(seconds_per_round / (runs * self.local_steps))

    def _look(self, worker, runs):
        """How many rounds make a turn, and seconds of one of them."""
        worker.seconds(runs, 1)
        once = max(worker.seconds(runs, 1), 1e-4)
        rounds = max(1, min(50, round(self.options.target_s / once)))
        return rounds, worker.seconds(runs, rounds) / rounds if rounds > 1 else once

    def _best(self, spec, runs):
        settings = {key[2:]: times for key, times in self.times.items() if key[:2] == (spec, runs)}
        (variant, threads), times = min(settings.items(), key=lambda item: min(item[1]))
        return {
            "name": spec.name, "runs": runs, "seconds": min(times), "median": statistics.median(times),
            "repeats": len(times), "variant": variant, "threads": threads,
            "error": self.errors[spec.module, variant, threads],
            "also": {f"{v}, {t} thread(s)": min(all_) for (v, t), all_ in settings.items()},
        }  # fmt: skip


def close_to_best(looks):
    """Settings within 30 % of their contender's best first look; the rest is not worth the turns."""
    best = {}
    for worker, (_, seconds) in looks.items():
        best[worker.spec] = min(seconds, best.get(worker.spec, seconds))
    return [worker for worker, (_, seconds) in looks.items() if seconds <= 1.3 * best[worker.spec]]


def kept(out, specs):
    new = {spec.name for spec in specs}
    return [row for row in out.get("rows", []) if row["name"] not in new]


def compile_times(specs, path, options, rows):
    times = {}
    for spec in specs:
        row = next((r for r in rows if r["name"] == spec.name and r.get("runs") == HEADLINE_RUNS), None)
        if spec.module in COMPILED and row:
            say(f"first call of {spec.name}")
            setting = (spec, row["variant"], row["threads"], path, HEADLINE_RUNS, 2 * options.limit)
            times[spec.name] = tried(lambda: first_call(*setting))  # noqa: B023
    return times


def framework(name, path, options):
    """The better of 1 thread and all."""
    rounds, found = (1 if options.quick else 5), []
    for threads in sorted({1, machine.cores()}):
        say(f"{FRAMEWORKS[name]}, {threads} thread(s)")
        arguments = [str(HERE / "framework.py"), name, str(path), str(rounds), str(threads)]
        found.append(tried(lambda: call([python(name), *arguments], 2 * options.limit)))  # noqa: B023
    measured = [row for row in found if "not_measured" not in row]
    if not measured:
        return {"name": FRAMEWORKS[name], **found[0]}
    return {"name": FRAMEWORKS[name], **min(measured, key=lambda row: row["seconds_per_round"])}


def tried(measure):
    try:
        return measure()
    except NotMeasuredError as reason:
        return {"not_measured": str(reason)}


def ratios(out):
    """How many times faster the library is, per run and step: each rival's best against float32."""
    found = {}
    for row in out.get("rows", []):
        for runs in (1, HEADLINE_RUNS):
            ours = next((r for r in out["rows"] if r["name"] == SPECS[0].name and r.get("runs") == runs), None)
            # The literal forms do one run at a time: many cost as many times one.
            same = row.get("runs") == runs or (row["name"] in ONE_AT_A_TIME and row.get("runs") == 1)
            if ours and same and "seconds" in row:
                found.setdefault(row["name"], {})[str(runs)] = row["seconds"] / ours["seconds"]
    one = next((r for r in out.get("rows", []) if r["name"] == SPECS[0].name and r.get("runs") == 1), None)
    for row in out.get("frameworks", []):
        if one and "seconds_per_round" in row:
            found[row["name"]] = {"1": row["seconds_per_round"] / out["problem"]["local_steps"] / one["seconds"]}
    return found


def say(text):
    print(f"... {text}", flush=True)


if __name__ == "__main__":
    main()
