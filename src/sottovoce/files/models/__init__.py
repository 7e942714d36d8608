"""Models as files: weights, schema, guarantee and provenance in one, which is safe to open from any sender; and in the
forms that other programs read.
"""

from sottovoce.files.models.file import load, save
from sottovoce.files.models.model import Model
from sottovoce.files.models.onnx_graph import to_onnx
from sottovoce.files.models.sklearn_model import to_sklearn
from sottovoce.files.models.tables import predict_table

__all__ = ["Model", "load", "predict_table", "save", "to_onnx", "to_sklearn"]
