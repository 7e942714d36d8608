"""What lies on disk: files of rows and their schemas, packaged data sets, and models."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["datasets", "models", "schema"])
