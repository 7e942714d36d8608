"""What this machine can do, measured, and what the algorithm must do: their quotient is the limit.

    python benchmarks/limits.py [--quick]     prints one JSON object

The measuring loops are written in LLVM's language, so that they are the instructions meant and nothing else:

    fma      w <- w * a + b on registers only, 24 independent chains
    load     w <- x[i] * a + w, x in cache: what a product with a row needs, for every non-zero and vector of runs
    update   x[i] <- x[i] + a s, x in cache: what a sum of rows needs, likewise
    read     the same as `load` on more memory than any cache holds
"""

import ctypes
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import llvmlite.binding as llvm
import numpy as np

import machine
import problem

UNROLL = 24
TYPES = {"float32": ("float", 4), "float64": ("double", 8)}

# Arithmetic besides the non-zeros, in vector instructions, each of which takes a slot that an FMA could have had.
# -b / (1 + exp(b z)): exp by a polynomial of degree 6 and a power of 2 (10), 1 + .., reciprocal and Newton (2), sign.
SLOPE = 14
# Philox-4x32-10: 10 rounds of 2 wide products and 4 xors for 4 words (15 each). To a normal: logarithm, root, sine and
# cosine by polynomials (13).
NORMAL = 28
# Regulariser, noise, eta w - g + pull, division by a known number, two running sums.
UPDATE = 7


def work(facts):
    """What one step of one run must do, on all nodes."""
    rows, models = facts["nodes"] * facts["rows_per_node"], facts["nodes"] * facts["d"]
    return {
        "fmas_for_products": facts["non_zeros"],
        "fmas_for_sums": facts["non_zeros"],
        "slopes": rows,
        "normals": models,
        "updates": models,
        "slots": 2 * facts["non_zeros"] + SLOPE * rows + (NORMAL + UPDATE) * models,
    }


def floors(facts, rates):
    """Seconds for one run and step if nothing but the named limit held, from measured rates per second."""
    w = work(facts)
    other = (w["slots"] - 2 * facts["non_zeros"]) / rates["fma"]
    return {
        "fmas_alone": 2 * facts["non_zeros"] / rates["fma"],
        "all_arithmetic": w["slots"] / rates["fma"],
        "with_cache_traffic": facts["non_zeros"] / rates["load"] + facts["non_zeros"] / rates["update"] + other,
    }


def derivation(facts):
    w = work(facts)
    return [
        f"{facts['non_zeros']:,} non-zeros, each in 2 FMAs: one for ⟨a, w⟩, one for the sum of slopes times rows",
        f"{w['slopes']:,} rows, each a slope of {SLOPE} instructions",
        f"{w['normals']:,} coordinates, each a normal of {NORMAL} and an update of {UPDATE} instructions",
        f"{w['slots']:,} in all, per run and step, each a slot of the FMA units (one lane of a vector)",
        "with cache traffic: per FMA a product loads, and a sum loads and stores, one vector of the first-level cache",
    ]


def source(kind, dtype, lanes):
    """One loop in LLVM's language: void run(type* x, i64 vectors, i64 times)."""
    scalar, _ = TYPES[dtype]
    vec = f"<{lanes} x {scalar}>"
    fma = f"@llvm.fma.v{lanes}f{32 if dtype == 'float32' else 64}"
    a = f"<{', '.join([f'{scalar} 0.5'] * lanes)}>"
    phis, body, after = [], [], []
    for u in range(UNROLL):
        if kind != "update":
            phis.append(f"  %w{u} = phi {vec} [ zeroinitializer, %outer ], [ %n{u}, %inner ]")
        if kind == "fma":
            body.append(f"  %n{u} = call {vec} {fma}({vec} %w{u}, {vec} {a}, {vec} {a})")
            continue
        body.append(f"  %i{u} = add i64 %i, {u}")
        body.append(f"  %p{u} = getelementptr {vec}, ptr %x, i64 %i{u}")
        body.append(f"  %x{u} = load {vec}, ptr %p{u}, align 64")
        if kind == "load":
            body.append(f"  %n{u} = call {vec} {fma}({vec} %x{u}, {vec} {a}, {vec} %w{u})")
        else:
            body.append(f"  %y{u} = call {vec} {fma}({vec} {a}, {vec} {a}, {vec} %x{u})")
            body.append(f"  store {vec} %y{u}, ptr %p{u}, align 64")
    if kind != "update":
        last = "%n0"
        for u in range(1, UNROLL):
            after.append(f"  %s{u} = fadd {vec} {last}, %n{u}")
            last = f"%s{u}"
        after.append(f"  store {vec} {last}, ptr %x, align 64")
    lines = [
        f"declare {vec} {fma}({vec}, {vec}, {vec})", "define void @run(ptr %x, i64 %vectors, i64 %times) {",
        "entry:", "  br label %outer", "outer:", "  %t = phi i64 [ 0, %entry ], [ %t1, %done ]", "  br label %inner",
        "inner:", "  %i = phi i64 [ 0, %outer ], [ %next, %inner ]", *phis, *body,
        f"  %next = add i64 %i, {UNROLL}", "  %more = icmp slt i64 %next, %vectors",
        "  br i1 %more, label %inner, label %done", "done:", *after, "  %t1 = add i64 %t, 1",
        "  %again = icmp slt i64 %t1, %times", "  br i1 %again, label %outer, label %end", "end:", "  ret void", "}",
    ]  # fmt: skip
    return "\n".join(lines)


class Loop:
    """A compiled loop; calling it leaves the interpreter's lock."""

    def __init__(self, kind, dtype):
        self.dtype, self.lanes = dtype, (64 if machine.vectors() == "avx512f" else 32) // TYPES[dtype][1]
        target = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
        )
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(source(kind, dtype, self.lanes)), target)
        self.engine.finalize_object()
        signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self.run = signature(self.engine.get_function_address("run"))

    def rate(self, size, threads, seconds):
        """Elements per second, over `threads` threads with `size` bytes each."""
        step = self.lanes * TYPES[self.dtype][1] * UNROLL
        vectors = max(size // step, 1) * UNROLL
        rooms = [np.zeros(vectors * self.lanes + 64, self.dtype) for _ in range(threads)]
        starts = [room.ctypes.data + -room.ctypes.data % 64 for room in rooms]
        times = 1
        with ThreadPoolExecutor(threads) as pool:
            while True:
                started = perf_counter()
                list(pool.map(lambda start: self.run(start, vectors, times), starts))  # noqa: B023
                took = perf_counter() - started
                if took > seconds:
                    return threads * times * vectors * self.lanes / took
                times = max(2 * times, int(times * 1.2 * seconds / max(took, 1e-6)))


def measure(quick):
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    seconds, repeats = (0.02, 1) if quick else (0.2, 5)
    big = 2**26 if quick else 2**30
    rates = {}
    for dtype, (_, width) in TYPES.items():
        for threads in sorted({1, machine.cores()}):
            best = {}
            for kind, loop, size in (
                ("fma", Loop("fma", dtype), 2**16), ("load", Loop("load", dtype), 2**14),
                ("update", Loop("update", dtype), 2**14), ("read", Loop("load", dtype), big // threads),
            ):  # fmt: skip
                best[kind] = max(loop.rate(size, threads, seconds) for _ in range(repeats))
            rates[f"{dtype}, {threads} thread(s)"] = best | {
                "gflops": 2 * best["fma"] / 1e9,
                "cache_read_gb": best["load"] * width / 1e9,
                "memory_read_gb": best["read"] * width / 1e9,
            }
    return rates


def main():
    quick = "--quick" in sys.argv
    _, sites, graph = problem.pieces()
    facts = {
        "nodes": graph.n, "rows_per_node": int(sites.counts[0]), "d": sites.d, "non_zeros": sites.rows.matrix.nnz,
    }  # fmt: skip
    rates = measure(quick)
    out = {
        "rates": rates, "work": work(facts), "derivation": derivation(facts),
        "floors": {name: floors(facts, rate) for name, rate in rates.items()},
    }  # fmt: skip
    print(json.dumps(out))


if __name__ == "__main__":
    main()
