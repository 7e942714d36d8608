"""The tables of latest.json, gpu.json, unseen.json and million.json: on the screen, and in docs/benchmarks.md between
its markers.

python benchmarks/render.py [--check]     with --check nothing is written, and files that are out of date are an error
"""

import json
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
CHART = HERE.parent / "docs" / "benchmarks.svg"
OURS = "sottovoce, float32"
SECOND = {"binary": "average_precision", "multiclass": "accuracy", "regression": "mae"}  # the score beside the loss
LITERAL, JAX = "NumPy, literal, float64", "JAX, jitted, float32"


def micro(seconds):
    return f"{seconds * 1e6:,.3g} µs" if seconds < 1e-3 else f"{seconds * 1e3:,.3g} ms"


def markdown(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def contenders(out):
    rows, ratios = [], out.get("ratios", {})
    for row in out.get("rows", []):
        if "not_measured" in row:
            rows.append((row["name"], "", f"not measured: {row['not_measured']}", "", "", ""))
            continue
        ratio = ratios.get(row["name"], {}).get(str(row["runs"]))
        against = f"{ratio:.3g}×" if ratio and row["name"] != OURS else ""
        setting = f"{row['variant']}, {row['threads']} thread{'s' if row['threads'] > 1 else ''}"
        rows.append((row["name"], row["runs"], micro(row["seconds"]), micro(row["median"]), setting, against))
    steps = out["problem"]["local_steps"] if "problem" in out else 1
    for row in out.get("frameworks", []):
        if "not_measured" in row:
            rows.append((row["name"], "", f"not measured: {row['not_measured']}", "", "", ""))
            continue
        ratio = ratios.get(row["name"], {}).get("1")
        setting = f"version {row['version']}, {row['threads']} thread(s); {row['note']}"
        per_step = micro(row["seconds_per_round"] / steps)
        rows.append((row["name"], 1, per_step, "", setting, f"{ratio:,.3g}×" if ratio else ""))
    return ("contender", "runs", "per run and step", "median", "best setting", "sottovoce float32 is faster by"), rows


def machine(out):
    m = out["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in m["packages"].items())
    rows = [
        ("date", m["date"]), ("processor", m["cpu"]), ("cores", m["cores"]), ("memory", f"{m['memory_gib']} GiB"),
        ("vectors", m["vectors"]), ("system", f"{m['system']}, Python {m['python']}"), ("packages", packages),
        ("load before", out.get("load_before", "")),
    ]  # fmt: skip
    if out.get("quick"):
        rows.append(("note", "a quick run: figures mean little"))
    if out.get("mixed"):
        rows.append(("note", "parts of this were measured at another time: ratios may mislead"))
    return ("what", "value"), rows


def problem(out):
    return ("what", "value"), [(name.replace("_", " "), value) for name, value in out["problem"].items()]


def find(rows, name, runs):
    return next((row["seconds"] for row in rows if row["name"] == name and row.get("runs") == runs), None)


def targets(out, gpu):
    rows, ratios = [], out.get("ratios", {})

    def line(what, target, hoped, value, met, unit="×"):
        shown = "not measured" if value is None else f"{value:.3g}{unit}"
        rows.append((what, target, hoped, shown, "" if value is None else ("yes" if met(value) else "no")))

    line("64 runs, against the literal form", "40×", "100×", ratios.get(LITERAL, {}).get("64"), lambda v: v >= 40)
    line("64 runs, against jitted JAX", "4×", "8×", ratios.get(JAX, {}).get("64"), lambda v: v >= 4)
    line("one run, against the literal form", "8×", "15×", ratios.get(LITERAL, {}).get("1"), lambda v: v >= 8)
    for large in out.get("scaling", {}).get("large", []):
        small, big = large["nodes"]
        what = f"{big:,} nodes against {small:,}, per round and node, {large['runs']} run(s)"
        line(what, "at most 2×", "", large["ratio"], lambda v: v <= 2)
    found = {(r["loss"], r["dtype"], r["runs"]): r["seconds"] * 1e6 for r in gpu.get("rows", [])}
    steps = found.get(("logistic", "float32", 1000))
    line(f"{gpu.get('gpu', 'GPU')}, 1,000 runs, a run and step", "0.5 µs", "", steps, lambda v: v <= 0.5, " µs")
    return ("what", "target", "hoped for", "measured", "met"), rows


def limits(out):
    rows, found = [], out.get("limits", {})
    for row in out.get("rows", []):
        if not row["name"].startswith("sottovoce") or row.get("runs") != 64:
            continue
        key = f"{row['name'].split(', ')[1]}, {row['threads']} thread(s)"
        floor, rate = found.get("floors", {}).get(key), found.get("rates", {}).get(key)
        if floor:
            shares = (f"{micro(s)}, {s / row['seconds']:.0%}" for s in floor.values())
            rows.append((key, f"{rate['gflops']:.0f} GFLOP/s", micro(row["seconds"]), *shares))
    names = ("2 FMAs per non-zero alone", "all arithmetic", "with cache traffic")
    return ("precision", "measured FMA peak", "64 runs take", *(f"floor: {name}" for name in names)), rows


def rates(out):
    rows = [
        (name, f"{r['gflops']:.0f} GFLOP/s", f"{r['cache_read_gb']:.0f} GB/s", f"{r['memory_read_gb']:.0f} GB/s")
        for name, r in out.get("limits", {}).get("rates", {}).items()
    ]
    return ("setting", "FMA peak", "first-level cache, read", "memory, read"), rows


def scaling(out):
    rows = []
    for name, sweep in out.get("scaling", {}).get("sweeps", {}).items():
        shown = "; ".join(f"{p[name]:,}: {micro(p['seconds_per_round'])}" for p in sweep["points"])
        rows.append((name.replace("_", " "), f"{sweep['slope']:.2f}", shown))
    return ("what grows", "slope, log-log", "time of a round"), rows


def first_call(out):
    rows = []
    for name, times in out.get("first_call", {}).items():
        if "not_measured" in times:
            rows.append((name, f"not measured: {times['not_measured']}", "", ""))
        else:
            cold, warm = times["cold"], times["warm"]
            rows.append((name, f"{warm['import_s']:.1f} s", f"{cold['first_s']:.1f} s", f"{warm['first_s']:.1f} s"))
    return ("contender", "import and set-up", "first call, empty cache", "first call, filled cache"), rows


def startup(out):
    rows = [(name, *(f"{s:.2f} s" for s in times)) for name, times in out.get("startup", {}).items()]
    return ("what, in a process of its own", "clock", "processor, all threads"), rows


def gpu_table(gpu):
    rows = [
        (r["loss"], r["dtype"], f"{r['runs']:,}", micro(r["seconds"]), micro(r["median"])) for r in gpu.get("rows", [])
    ]
    return ("loss", "precision", "runs", "per run and step", "median"), rows


def score(mean, std=None):
    digits = 4 if abs(mean) < 10 else 1
    return f"{mean:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")


def best_of(central, epsilon):
    """Of the central rival's variants the one with the smallest test loss: a choice in its favour."""
    found = [scores for key, scores in central.items() if key.endswith(f"/{epsilon:g}")]
    return min(found, key=lambda scores: scores["loss"]["mean"]) if found else None


def cells_of(unseen, algorithm):
    """(cell, table) in the order of the tables, by sites and epsilon; without yardsticks a cell says nothing."""
    order = list(unseen["tables"])
    found = [cell for cell in unseen["cells"].values() if cell["algorithm"] == algorithm and cell["table"] in order]
    found.sort(key=lambda cell: (order.index(cell["table"]), cell["sites"], cell["epsilon"]))
    return [(cell, unseen["tables"][cell["table"]]) for cell in found]


def unseen_cells(unseen, algorithm):
    """One line per cell; the last entry says why there are no figures."""
    header = ["table", "sites", "epsilon"]
    for name in ("loss", "score"):
        header += [name, f"{name}: central", f"{name}: not private", f"{name}: no model"]
    rows = []
    for cell, table in cells_of(unseen, algorithm):
        line = [cell["table"], str(cell["sites"]), f"{cell['epsilon']:g}"]
        if "refused" in cell:
            rows.append((*line, *[""] * 9, cell["refused"]))
            continue
        rival = best_of(table["central"], cell["epsilon"])
        for name in ("loss", SECOND[table["kind"]]):
            own = cell["scores"][name]
            line += [score(own["mean"], own["std"]), "" if rival is None else score(rival[name]["mean"])]
            line += [score(table["optimum"][name]), score(table["no_model"][name])]
        rows.append((*line, SECOND[table["kind"]].replace("_", " "), ""))
    return (*header, "which score", "refused"), rows


def unseen_tables(unseen):
    rows = []
    for name, table in unseen["tables"].items():
        positives = "" if table["positives"] is None else f", {table['positives']:.1%} positive"
        rows.append((name, table["role"], table["kind"] + positives, f"{table['train']:,} + {table['test']:,}",
                     table["d"], table["origin"], table["licence"]))  # fmt: skip
    return ("table", "role", "kind", "rows: train + test", "d", "origin", "licence"), rows


def unseen_scores(unseen, algorithm="ipadmm"):
    """A line per table and number of sites, epsilons side by side; the central rival is a line of its own."""
    cells, rows = cells_of(unseen, algorithm), []
    epsilons = sorted({cell["epsilon"] for cell, _ in cells})
    for name, table in unseen["tables"].items():
        second = SECOND[table["kind"]]

        def pair(scores, second=second):
            return f"{score(scores['loss'])} / {score(scores[second])}"

        def means(scores, second=second):
            return {key: scores[key]["mean"] for key in ("loss", second)}

        fixed = (pair(table["optimum"]), pair(table["no_model"]))
        own = {(cell["sites"], cell["epsilon"]): cell for cell, _ in cells if cell["table"] == name}
        for sites in sorted({sites for sites, _ in own}):
            found = (own.get((sites, epsilon)) for epsilon in epsilons)
            shown = [pair(means(cell["scores"])) if cell and "scores" in cell else "" for cell in found]
            rows.append((name, f"{sites} sites", *shown, *fixed))
        rivals = (best_of(table["central"], epsilon) for epsilon in epsilons)
        rows.append((name, "central", *("" if rival is None else pair(means(rival)) for rival in rivals), *fixed))
    return ("table", "who", *(f"ε = {epsilon:g}" for epsilon in epsilons), "not private", "no model"), rows


def unseen_verdict(unseen, algorithm="ipadmm"):
    """How often a model is worth having, by sites; of the unseen tables only."""
    rows, cells = [], [pair for pair in cells_of(unseen, algorithm) if pair[1]["role"] == "unseen"]
    for sites, epsilon in sorted({(cell["sites"], cell["epsilon"]) for cell, _ in cells}):
        own = [pair for pair in cells if (pair[0]["sites"], pair[0]["epsilon"]) == (sites, epsilon)]
        own = [(cell, table) for cell, table in own if "scores" in cell]
        losses = [(cell["scores"]["loss"]["mean"], table) for cell, table in own]
        rivals = [(loss, best_of(t["central"], epsilon)) for loss, t in losses if t["kind"] != "regression"]
        worse = [table["name"] for loss, table in losses if loss >= table["no_model"]["loss"]]
        gains = [gain(loss, table) for loss, table in losses]
        beaten = sum(rival is not None and loss < rival["loss"]["mean"] for loss, rival in rivals)
        rows.append((sites, f"{epsilon:g}", f"{statistics.median(gains):.0%}", f"{len(worse)} of {len(own)}",
                     ", ".join(worse), f"{beaten} of {len(rivals)}"))  # fmt: skip
    header = (
        "sites",
        "ε",
        "median share of the way",
        "no better than no model",
        "which",
        "better than central, classes",
    )
    return header, rows


def gain(loss, table):
    """How much of the way from no model (0) to the model without privacy (1) was made, in test loss."""
    start, end = table["no_model"]["loss"], table["optimum"]["loss"]
    return (start - loss) / (start - end)


def million_table(million):
    """Networks that are spread over processes."""
    rows = [
        (
            case["graph"], f"{case['nodes']:,}", f"{case['rows']:,}", f"{case['build_seconds']:.3g} s",
            f"{case['busy_microseconds_per_node']:.2f} µs", f"{case['exchange_microseconds_per_node']:.2f} µs",
            f"{case['microseconds_per_node']:.1f} µs",
            f"{case['exchange_share']:.0%}", f"{case['bytes_per_node']:,.0f} bytes", f"{case['bytes'] / 2**30:.2f} GiB",
            f"{case['load_before']:.1f}",
        )
        for case in million.get("cases", [])
    ]  # fmt: skip
    header = ("graph", "nodes", "rows", "built in", "processor time, per round and node", "in the exchange",
              "wall clock, likewise", "of it the exchange", "memory, per node", "in all", "load before")  # fmt: skip
    return header, rows


def sections(out, gpu, unseen, million):
    tables = {
        "machine": machine(out), "problem": problem(out), "targets": targets(out, gpu), "contenders": contenders(out),
        "first-call": first_call(out), "startup": startup(out), "rates": rates(out), "limits": limits(out),
        "scaling": scaling(out),
        "gpu": gpu_table(gpu), "unseen-tables": unseen_tables(unseen), "unseen-scores": unseen_scores(unseen),
        "unseen-verdict": unseen_verdict(unseen), "million": million_table(million),
    }  # fmt: skip
    texts = {name: markdown(*table) if table[1] else "Not measured yet." for name, table in tables.items()}
    texts["derivation"] = "\n".join(f"- {line}" for line in out.get("limits", {}).get("derivation", []))
    where = f"{gpu['gpu']}, {gpu['gpu_memory_gib']} GiB, {gpu['machine']['date']}." if gpu else "Not measured yet."
    texts["gpu-machine"] = where
    return texts


def filled(page, texts):
    for name, text in texts.items():
        start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        if start in page:
            head, _, rest = page.partition(start)
            page = f"{head}{start}\n{text}\n{end}{rest.partition(end)[2]}"
    return page


def show(out, gpu=None):
    """On the screen; plain text where rich is not there."""
    for title, table in (("Contenders", contenders(out)), ("Targets", targets(out, gpu or {}))):
        try:
            from rich.console import Console
            from rich.table import Table
        except ImportError:
            print(f"\n{title}\n{markdown(*table)}")
            continue
        shown = Table(*table[0], title=title)
        for row in table[1]:
            shown.add_row(*map(str, row))
        Console().print(shown)


def chart(out):
    """Bars on a logarithmic axis; nothing where matplotlib is not there."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "sottovoce"
    from matplotlib import pyplot as plt

    rows = [(f"{row['name']}, {row['runs']} run(s)", row["seconds"]) for row in out.get("rows", []) if "seconds" in row]
    steps = out["problem"]["local_steps"]
    rows += [(r["name"], r["seconds_per_round"] / steps) for r in out["frameworks"] if "seconds_per_round" in r]
    rows.sort(key=lambda row: -row[1])
    figure, axes = plt.subplots(figsize=(8, 0.3 * len(rows) + 1), layout="constrained")
    colours = ["tab:blue" if name.startswith("sottovoce") else "tab:gray" for name, _ in rows]
    axes.barh([name for name, _ in rows], [seconds * 1e6 for _, seconds in rows], color=colours)
    axes.set_xscale("log")
    axes.set_xlabel("µs per run and step, less is better")
    figure.savefig(CHART, metadata={"Date": None})
    plt.close(figure)


def main():
    out = json.loads((HERE / "latest.json").read_text())
    gpu = json.loads((HERE / "gpu.json").read_text()) if (HERE / "gpu.json").exists() else {}
    unseen = {"tables": {}, "cells": {}}
    if (HERE / "unseen.json").exists():
        unseen = json.loads((HERE / "unseen.json").read_text())
    million = json.loads((HERE / "million.json").read_text()) if (HERE / "million.json").exists() else {}
    page = PAGE.read_text()
    new = filled(page, sections(out, gpu, unseen, million))
    if "--check" in sys.argv:
        sys.exit("docs/benchmarks.md is out of date: run benchmarks/render.py" if new != page else 0)
    PAGE.write_text(new)
    chart(out)
    show(out, gpu)


if __name__ == "__main__":
    main()
