"""A model as an ONNX graph, for runtimes that know nothing of this library.

In a row that a schema has encoded, each column has at most one feature that is not zero. So a graph need not make the
features: with (place, value) of every column, factor the row's share by `row_norm`, and W the weights,

    z = factor (sum over columns of value W[place] + intercept W[last]) + offset

and terms of the schema likewise: an interaction has the product of two values at a place that follows from two, and a
spline is a cubic of the value, whose coefficients are gathered by the piece that the value lies in.

Every column is an input of its own, (rows, 1): numbers as doubles, NaN where there is none; categories and truth values
as texts. A graph cannot refuse a file or drop a row: a row for which that would happen has `valid` = false, NaN as its
scores and the label "". The column itself encodes its texts, bins and missing values here, so that there is only one
encoding.

A graph differs from a file in two ways. It cannot take off spaces around a text, so they must be off before. And it
sees numbers, not their spellings. If "-9" is declared to mean a missing value, -9 does, however spelt.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from sottovoce.errors import InputError, UnsupportedError, expect
from sottovoce.files.models.by_columns import encoded, missing_numbers, obstacle
from sottovoce.files.models.model import Model
from sottovoce.files.schema import Boolean, Categorical, Column, Interaction, Numeric, Schema, Spline
from sottovoce.files.schema.encoding import slack
from sottovoce.files.schema.findings import Finding
from sottovoce.problem.losses import Poisson

if TYPE_CHECKING:
    import onnx

Inputs: TypeAlias = Literal["columns", "features"]
OPSET, ML_OPSET, IR_VERSION = 17, 3, 8  # old enough for runtimes that are in use
_NO_CLASS = -1
_ROWS = "rows"


class _Entry(NamedTuple):
    """Names of the tensors of one column, of shape (rows,), (rows, 1) and (rows, 1)."""

    place: str  # int64: which of the column's features
    value: str  # double, of that feature
    valid: str  # bool: True if the row can be used


def to_onnx(model: Model, inputs: Inputs | None = None) -> "onnx.ModelProto":
    """The model as a graph.

    Args:
        model: to be exported.
        inputs: "columns" takes the columns of the schema as a file has them, "features" the encoded matrix. None: the
            columns, if there is a schema that can be put into a graph.

    Formal guarantees: the outputs are those of `Model.outputs`, `probabilities` and `decide`, in double precision, but
    for the order in which a row's terms are added up.
    """
    expect(inputs in (None, *get_args(Inputs)), f"inputs among {', '.join(get_args(Inputs))}", inputs=inputs)
    if model.timed is not None:
        raise UnsupportedError("Expected a class, a number or a count, got times to an event. Use sottovoce predict.")
    graph = _Graph()
    reason = obstacle(model.schema)
    if inputs == "columns" and reason is not None:
        raise UnsupportedError(f"Expected columns that can be put into a graph, got {reason}. Use inputs='features'.")
    if inputs == "features" or reason is not None:
        product = graph.add("MatMul", graph.input("features", "DOUBLE", model.d), graph.constant(model.weights))
        z, valid = graph.add("Add", product, graph.constant(model.offset)), None
    else:
        assert model.schema is not None  # or there would be a reason
        z, valid = _of_columns(graph, model, model.schema)
    _answers(graph, model, z, valid)
    return graph.model(model)


class _Graph:
    """Collects the nodes, constants, inputs and outputs of one ONNX graph."""

    def __init__(self) -> None:
        try:
            import onnx
        except ImportError as error:
            raise InputError(
                "Expected the package onnx, got none. Install it with: pip install 'sottovoce[onnx]'."
            ) from error
        self._helper, self._kinds = onnx.helper, onnx.TensorProto
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, kind: str, width: int) -> str:
        """Declare an input matrix of `width` columns and return its name."""
        self._inputs.append(self._helper.make_tensor_value_info(name, getattr(self._kinds, kind), [_ROWS, width]))
        return name

    def output(self, name: str, of: str, kind: str, *shape: int) -> None:
        """Declare a tensor as an output of the graph under this name."""
        self._nodes.append(self._helper.make_node("Identity", [of], [name]))
        self._outputs.append(self._helper.make_tensor_value_info(name, getattr(self._kinds, kind), [_ROWS, *shape]))

    def constant(self, value: Any, kind: Any = np.float64) -> str:
        """Store a fixed array and return its name."""
        from onnx import numpy_helper

        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value, dtype=kind), name))
        return name

    def add(self, operator: str, *operands: str, domain: str = "", **attributes: Any) -> str:
        """Append an operator and return the name of its result."""
        name = f"t{len(self._nodes)}"
        self._nodes.append(self._helper.make_node(operator, list(operands), [name], domain=domain, **attributes))
        return name

    def cast(self, what: str, kind: str) -> str:
        return self.add("Cast", what, to=getattr(self._kinds, kind))

    def flat(self, column: str) -> str:
        """Turn a tensor of shape (rows, 1) into one of shape (rows,)."""
        return self.add("Squeeze", column, self.constant([1], np.int64))

    def model(self, model: Model) -> "onnx.ModelProto":
        """The finished graph, checked by onnx, with the privacy statement among its properties."""
        import onnx

        helper = self._helper
        graph = helper.make_graph(self._nodes, "sottovoce", self._inputs, self._outputs, self._constants)
        sets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        made: onnx.ModelProto = helper.make_model(
            graph, opset_imports=sets, ir_version=IR_VERSION, producer_name="sottovoce"
        )
        privacy = model.privacy
        promise = {"privacy": privacy.prose(), "epsilon": repr(privacy.promised), "delta": repr(privacy.delta)}
        helper.set_model_props(made, {**promise, "unit": privacy.unit.words, "features": "\n".join(model.names)})
        onnx.checker.check_model(made, full_check=True)
        return made


def _of_columns(graph: _Graph, model: Model, schema: Schema) -> tuple[str, str]:
    """Names of the scores of every row, and of which rows are valid."""
    weights, first, entries = graph.constant(model.weights), 0, dict[str, _Entry]()
    constant = schema.intercept * model.weights[-1] if schema.intercept > 0 else np.zeros(model.weights.shape[1])
    total, square, valid = graph.constant(constant[None, :]), graph.constant([[schema.intercept**2]]), None
    for column in schema.columns:
        if isinstance(column, Numeric):
            entry = _number(graph, column, graph.input(column.name, "DOUBLE", 1), schema)
        else:
            assert isinstance(column, Categorical | Boolean)  # others are refused
            entry = _text(graph, column, graph.input(column.name, "STRING", 1), schema.missing_values)
        entries[column.name] = entry
        total = graph.add("Add", total, _weighed(graph, weights, first, entry))
        square = graph.add("Add", square, graph.add("Mul", entry.value, entry.value))
        valid = entry.valid if valid is None else graph.add("And", valid, entry.valid)
        first += column.width
    for term, columns in schema.joined:
        sides, width = [entries[name] for name in term.of], term.width(columns)
        if isinstance(term, Interaction):
            entry = _product(graph, columns, sides)
            added, value = _weighed(graph, weights, first, entry), entry.value
        else:
            assert isinstance(term, Spline)  # there are no other terms
            value = _spline(graph, term, columns, sides[0])
            added = graph.add("MatMul", value, graph.constant(model.weights[first : first + width]))
        total = graph.add("Add", total, added)
        squares = graph.add("Mul", value, value)
        square = graph.add("Add", square, graph.add("ReduceSum", squares, graph.constant([1], np.int64), keepdims=1))
        first += width
    assert valid is not None  # a schema has a column
    z = graph.add("Mul", total, _factor(graph, schema, square))
    z = graph.add("Add", z, graph.constant(model.offset))
    return graph.add("Where", valid, z, graph.constant(np.nan)), valid


def _weighed(graph: _Graph, weights: str, first: int, entry: _Entry) -> str:
    """Name of the value times the weight of its feature; `first` is that of the column or term."""
    place = graph.add("Add", entry.place, graph.constant(first, np.int64))
    return graph.add("Mul", graph.add("Gather", weights, place), entry.value)


def _product(graph: _Graph, columns: Sequence[Column], sides: Sequence[_Entry]) -> _Entry:
    """The interaction of two columns, as `Interaction.entries` makes it."""
    row = graph.add("Mul", sides[0].place, graph.constant(columns[1].width, np.int64))
    place = graph.add("Add", row, sides[1].place)
    return _Entry(place, graph.add("Mul", sides[0].value, sides[1].value), "")


def _spline(graph: _Graph, term: Spline, columns: tuple[Column, ...], side: _Entry) -> str:
    """Name of the values of a spline's features, (rows, features), as `Spline.entries` makes them."""
    made, (least, width) = term.curve(columns), term.number(columns).encoded_range
    share = graph.add("Div", graph.add("Sub", side.value, graph.constant(least)), graph.constant(width))
    passed = graph.cast(graph.add("GreaterOrEqual", share, graph.constant(made.knots[None, :])), "INT64")
    piece = graph.add("ReduceSum", passed, graph.constant([1], np.int64), keepdims=0)
    start = graph.add("Gather", graph.constant(made.starts[:, None]), piece)
    distance, total = graph.add("Sub", share, start), graph.constant(0.0)
    for powers in made.powers[::-1]:
        own = graph.add("Gather", graph.constant(powers / made.reach), piece)
        total = graph.add("Add", graph.add("Mul", total, distance), own)
    number = graph.cast(graph.add("Equal", side.place, graph.constant(0, np.int64)), "DOUBLE")
    return graph.add("Mul", total, graph.add("Unsqueeze", number, graph.constant([1], np.int64)))


def _factor(graph: _Graph, schema: Schema, square: str) -> str:
    """Name of the factor that every row is multiplied by, as in `encoding.shorten`."""
    room = 1 + slack(schema.most_entries)
    if schema.row_norm == "bound":
        return graph.constant(1 / (schema.encoded_norm * room))
    longest = graph.constant(schema.data_norm / room)
    return graph.add("Div", longest, graph.add("Max", graph.add("Sqrt", square), longest))


def _number(graph: _Graph, column: Numeric, x: str, schema: Schema) -> _Entry:
    missing, (place_of, value_of, found) = graph.add("IsNaN", x), encoded(column, [None])
    for marked in missing_numbers(schema):
        missing = graph.add("Or", missing, graph.add("Equal", x, graph.constant(marked)))
    finite = graph.add("Less", graph.add("Abs", x), graph.constant(np.inf))  # NaN is not below infinity
    low, high = column.bounds
    kept = graph.add("Where", missing, graph.constant(low), x)
    kept = graph.add("Max", graph.add("Min", kept, graph.constant(high)), graph.constant(low))
    if column.edges is not None:
        # By the bin of the number, from tables: the reference has no feature.
        places, values, _ = encoded(column, [repr(float(start)) for start in (column.bounds[0], *column.edges)])
        passed = graph.cast(graph.add("GreaterOrEqual", kept, graph.constant([list(column.edges)])), "INT64")
        number = graph.add("ReduceSum", passed, graph.constant([1], np.int64), keepdims=1)
        tables = graph.constant(places, np.int64), graph.constant(values)
        place, value = (graph.add("Gather", table, number) for table in tables)
    else:
        share = graph.add("Div", graph.add("Sub", kept, graph.constant(low)), graph.constant(high - low))
        twice, less = (1.0, 0.0) if column.scale == "unit" else (2.0, 1.0)
        value = graph.add("Sub", graph.add("Mul", share, graph.constant(twice)), graph.constant(less))
        place = graph.constant(0, np.int64)
    place = graph.add("Where", missing, graph.constant(int(place_of[0]), np.int64), place)
    value = graph.add("Where", missing, graph.constant(float(value_of[0])), value)
    if found[0] < Finding.DROPPED:
        return _Entry(graph.flat(place), value, graph.add("Or", finite, missing))
    return _Entry(graph.flat(place), value, graph.add("And", finite, graph.add("Not", missing)))


def _text(graph: _Graph, column: Categorical | Boolean, texts: str, markers: Sequence[str]) -> _Entry:
    known = [*dict.fromkeys((*column.words(), *markers))]
    strange = "?"
    while strange in known:
        strange += "?"
    # A row of three tables for every text that means something, and one for all others.
    place, value, found = encoded(column, [*known, strange], markers)
    code = graph.add(
        "LabelEncoder", texts, domain="ai.onnx.ml", keys_strings=known, values_int64s=list(range(len(known))),
        default_int64=len(known),
    )  # fmt: skip
    tables = (place, np.int64), (value, np.float64), (found < Finding.DROPPED, np.bool_)
    places, values, valid = (graph.add("Gather", graph.constant(*one), code) for one in tables)
    return _Entry(graph.flat(places), values, valid)


def _answers(graph: _Graph, model: Model, z: str, valid: str | None) -> None:
    """Declare the outputs: scores, probabilities, labels, and which rows are valid."""
    graph.output("scores", z, "DOUBLE", model.weights.shape[1])
    if isinstance(model.loss, Poisson):
        rate, most = graph.add("Exp", z), graph.constant(model.loss.most)
        # The largest count bounds the mean of a row, and not the rate of one unit of exposure.
        named = ("rate", rate) if model.exposed else ("mean", graph.add("Min", rate, most))
        graph.output(*named, "DOUBLE", 1)
    if model.classes is not None:
        odds = z
        if model.weights.shape[1] == 1:  # of two classes: 0 for the first, z without the class weights for the second
            second = graph.add("Sub", z, graph.constant(model.tilt))
            odds = graph.add("Concat", graph.add("Sub", z, z), second, axis=1)
        if model.has_probabilities:
            graph.output("probabilities", graph.add("Softmax", odds, axis=1), "DOUBLE", len(model.classes))
        graph.output("label", _label(graph, model.classes, z, valid, model.weights.shape[1]), "STRING")
    if valid is not None:
        graph.output("valid", graph.flat(valid), "BOOL")


def _label(graph: _Graph, classes: Sequence[str], z: str, valid: str | None, outputs: int) -> str:
    if outputs > 1:
        number = graph.add("ArgMax", z, axis=1, keepdims=0)
    else:
        number = graph.flat(graph.cast(graph.add("GreaterOrEqual", z, graph.constant(0.0)), "INT64"))
    if valid is not None:
        number = graph.add("Where", graph.flat(valid), number, graph.constant(_NO_CLASS, np.int64))
    return graph.add(
        "LabelEncoder", number, domain="ai.onnx.ml", keys_int64s=list(range(len(classes))),
        values_strings=list(classes), default_string="",
    )  # fmt: skip
