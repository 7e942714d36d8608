"""Logs of sites that never were."""

import json

RUN, AGREEMENT = "ab" * 16, "cd" * 32
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202e"


def line(event, second=0.0, logger="sottovoce.site", **fields):
    """A line, so many seconds after noon."""
    whole = int(second)
    time = f"2026-01-02T12:{whole // 60:02d}:{whole % 60:02d}.{round(1000 * (second - whole)):03d}+00:00"
    return json.dumps({"time": time, "level": "INFO", "logger": logger, "event": event, **fields}) + "\n"


def began(site="berlin", second=0.0, **fields):
    told = {
        "run": RUN, "agreement": AGREEMENT, "site": site, "neighbours": ["oslo", "rome"], "rounds": 8, "done": 0,
        "policy": "stop", "wait_seconds": 60.0, "epsilon": 1.0, "delta": 1e-5, "spent": 0.5, "cap": 2.0,
        "cap_delta": 1e-4, "left": 1.6,
    }  # fmt: skip
    return line("began", second, **(told | fields))


def digest(number):
    return f"{number:064x}"


def done(k, second=0.0, **fields):
    told = {
        "round": k, "spent": 0.5 + k / 16, "cap": 2.0, "cap_delta": 1e-4, "left": 1.6 - k / 16,
        "way": "masked sums", "transcript": digest(k),
        "heard": {name: digest(100 * k + i) for i, name in enumerate(("berlin", "oslo", "rome"))}, "size": 1 / k,
    }  # fmt: skip
    return line("round done", second, **(told | fields))
