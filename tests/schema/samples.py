"""A small schema with every kind of column, files for it, and an encoder of single cells that shares no code."""

import csv
import io
import math

SCHEMA = """
name = "clinic"
intercept = 0.5
row_norm = "bound"
missing_values = ["", "?", "NA"]

[label]
column = "outcome"
classes = ["well", "ill"]

[[columns]]
name = "age"
kind = "numeric"
bounds = [0, 100]
scale = "unit"

[[columns]]
name = "dose"
kind = "numeric"
bounds = [-10, 10]
scale = "symmetric"
missing = "fill"
fill = 5

[[columns]]
name = "pressure"
kind = "numeric"
bounds = [50, 250]
edges = [100, 120, 140]
missing = "indicator"

[[columns]]
name = "ward"
kind = "categorical"
categories = ["north", "south"]
other = true
missing = "row"

[[columns]]
name = "blood"
kind = "categorical"
categories = ["A", "B", "AB", "0"]
missing = "fill"
fill = "0"

[[columns]]
name = "smoker"
kind = "boolean"
missing = "indicator"
"""

HEADER = "age,dose,pressure,ward,blood,smoker,outcome\n"
ROWS = [
    "50,0,130,north,A,yes,ill",
    "25,10,99.5,south,B,no,well",
    "100,-10,100,east,AB,true,ill",
    "200,?,,north,,NA,well",
    "0,-99,250,south,0,0,well",
]
FILE = HEADER + "\n".join(ROWS) + "\n"

_TRUE, _FALSE = {"true", "yes", "t", "y", "1"}, {"false", "no", "f", "n", "0"}


def encode(text, data):
    """(features, labels, kept row numbers) of a CSV text, for a schema given as its dictionary."""
    width = {column["name"]: _width(column) for column in data["columns"]}
    rows, labels, kept = [], [], []
    for number, record in enumerate(csv.DictReader(io.StringIO(text)), start=1):
        cells = {name.strip(): value.strip() for name, value in record.items()}
        gone = lambda name: cells[name] in data["missing_values"]  # noqa: B023, E731
        if any(column.get("missing") == "row" and gone(column["name"]) for column in data["columns"]):
            continue
        if data["label"].get("missing") == "row" and gone(data["label"]["column"]):
            continue
        row = []
        for column in data["columns"]:
            own = [0.0] * width[column["name"]]
            _cell(column, None if gone(column["name"]) else cells[column["name"]], own)
            row += own
        row += [float(data["intercept"])] if data["intercept"] else []
        rows.append(_normed(row, data))
        labels.append(_label(data["label"], cells[data["label"]["column"]]))
        kept.append(number)
    return rows, labels, kept


def _width(column):
    own = {"numeric": len(column.get("edges", ())) + 1, "categorical": len(column.get("categories", ())), "boolean": 1}
    return own[column["kind"]] + bool(column.get("other")) + (column.get("missing") == "indicator")


def _cell(column, text, own):
    if text is None:
        if column["missing"] == "indicator":
            own[-1] = 1.0
            return
        text = str(column["fill"])
    if column["kind"] == "boolean":
        assert text.lower() in _TRUE | _FALSE
        own[0] = float(text.lower() in _TRUE)
    elif column["kind"] == "categorical":
        known = column["categories"]
        own[known.index(text) if text in known else len(known)] = 1.0
    else:
        low, high = column["bounds"]
        x = min(max(float(text), low), high)
        if "edges" in column:
            own[sum(x >= edge for edge in column["edges"])] = 1.0
        else:
            share = (x - low) / (high - low)
            own[0] = share if column["scale"] == "unit" else 2 * share - 1


def _normed(row, data):
    if data["row_norm"] == "bound":
        return [x / math.sqrt(len(data["columns"]) + float(data["intercept"]) ** 2) for x in row]
    norm = math.sqrt(math.fsum(x * x for x in row))
    return [x * min(1.0, data["row_norm"] / norm) if norm else x for x in row]


def _label(label, text):
    if "bounds" in label:
        return min(max(float(text), label["bounds"][0]), label["bounds"][1])
    place = label["classes"].index(text)
    return 2.0 * place - 1.0 if len(label["classes"]) == 2 else float(place)
