"""Models as files: weights, schema, guarantee and provenance in one, safe to open whoever sent it."""

from sottovoce.models.file import load, save
from sottovoce.models.model import Model

__all__ = ["Model", "load", "save"]
