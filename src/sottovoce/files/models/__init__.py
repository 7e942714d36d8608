"""Models as files: weights, schema, guarantee and provenance in one, safe to open whoever sent it."""

from sottovoce.files.models.model import Model, load, save

__all__ = ["Model", "load", "save"]
