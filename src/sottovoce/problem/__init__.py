"""What is to be learnt: losses, regularisers, rows at sites, who hears whom, and the `Problem` that binds them once."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["graphs", "losses", "regularisers"])
