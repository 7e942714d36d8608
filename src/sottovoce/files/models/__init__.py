"""Models as files: weights, schema, guarantee and provenance in one, safe to open whoever sent it; and in the forms
that others read.
"""

from sottovoce.files.models.file import load, save
from sottovoce.files.models.model import Model
from sottovoce.files.models.onnx_graph import to_onnx
from sottovoce.files.models.sklearn_model import to_sklearn
from sottovoce.files.models.tables import predict_table

__all__ = ["Model", "load", "predict_table", "save", "to_onnx", "to_sklearn"]
