"""Where and when a benchmark ran, in words."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def describe(packages=("sottovoce", "numpy", "scipy", "numba")):
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cpu": _from_file("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": cores(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "vectors": vectors(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: found for name in packages if (found := _version(name))},
    }


def cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def vectors():
    flags = _from_file("/proc/cpuinfo", "flags").split()
    return next((name for name in ("avx512f", "avx2", "avx") if name in flags), "unknown")


def busy():
    """Load before we start: a figure taken beside other work says little."""
    return round(os.getloadavg()[0], 2)


def _from_file(path, key):
    if not Path(path).exists():
        return ""
    lines = (line.partition(":") for line in Path(path).read_text().splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == key), "")


def _version(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None
