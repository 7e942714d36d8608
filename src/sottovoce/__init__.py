"""sottovoce: differentially private, decentralised convex learning.

Sites on a graph hold private rows and fit one model together by convex optimisation. What anyone learns about a row is
(epsilon, delta)-differentially private, and no server has to be trusted. With noise of its own, every message of a site
is private by itself. With masked sums, only sums over all sites are private. Single messages are not:
cryptographic keys protect them, against a stated number of colluding sites.
"""

from typing import Any

import lazy_loader

from sottovoce.launched import print_plainly

__version__ = "0.1.0"

print_plainly()  # before anything imports Numba
# The names of __init__.pyi. Each is imported when first asked for: `sottovoce --help` should not wait for numba.
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _load(name)
