"""The learning problem: losses, regularisers, rows at sites, the network, and the `Problem` that binds them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["graphs", "losses", "regularisers"])
