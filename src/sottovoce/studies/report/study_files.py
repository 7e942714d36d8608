"""Writes the files of a report. Every file is replaced whole, so a reader never sees half of one."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from sottovoce.errors import InputError
from sottovoce.settings import plain
from sottovoce.settings.disk import write_whole
from sottovoce.studies.report import tables
from sottovoce.studies.report.panel_figures import draw_panel, draw_parts
from sottovoce.studies.report.study_page import study_page
from sottovoce.studies.report.svg import picture
from sottovoce.studies.reproduce import Study
from sottovoce.studies.verdict import LEVEL, RULE

PAGE = "index.html"


def write_study(study: Study, out: Path) -> None:
    """Figures, tables, verdict and page into the folder `out`, which is made if need be."""
    drawn = [panel for panel in study.panels.values() if panel.measured() and panel.name != "table"]
    try:
        (out / "figures").mkdir(parents=True, exist_ok=True)
        parts: dict[str, list[str]] = {}
        for panel in drawn:
            figure = draw_panel(panel, study.optimum)
            # The page holds its figures, which fit a telephone; the files are for papers.
            parts[panel.name] = [picture(part, "svg").decode() for part in draw_parts(panel, study.optimum)]
            write_whole(out / "figures" / f"{panel.name}.svg", picture(figure, "svg"))
            write_whole(out / "figures" / f"{panel.name}.png", picture(figure, "png"))
        panels = list(study.panels.values())
        for name, every_round in (("results", False), ("curves", True)):
            _table(out, name, tables.columns(panels, every_round=every_round))
        write_whole(out / "verdict.json", json.dumps(verdict(study), indent=2, allow_nan=False).encode() + b"\n")
        write_whole(out / PAGE, study_page(study, parts).encode())
    except OSError as error:
        raise InputError(f"Expected a folder that can be written, got out={str(out)!r}: {error.strerror}.") from error


def verdict(study: Study) -> dict[str, Any]:
    """The claims as strict JSON data."""
    data: dict[str, Any] = plain(
        {
            "title": study.title,
            "quick": study.quick,
            "level": LEVEL,
            "rule": RULE,
            "claims": study.claims,
            "left_out": study.notes(),
            "optimum_risk": study.optimum,
            "cells": study.cells,
        }
    )
    return data


def _table(out: Path, name: str, columns: dict[str, list[Any]]) -> None:
    """One table, as a Parquet and as a CSV file."""
    buffer = io.BytesIO()
    parquet.write_table(pa.table(columns), buffer)
    write_whole(out / f"{name}.parquet", buffer.getvalue())
    text = io.StringIO()
    lines = csv.writer(text)
    lines.writerow(columns)
    lines.writerows(zip(*columns.values(), strict=True))
    write_whole(out / f"{name}.csv", text.getvalue().encode())
