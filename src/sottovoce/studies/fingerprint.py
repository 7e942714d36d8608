"""Fingerprint of the code and the packages that a stored result depends on besides its settings.

All sources that a cell can reach by imports are hashed as they are, byte by byte. A changed comment therefore counts as
a change: computing once too often is cheap, reusing a stale result is not. Packaged data are covered by their
checksums, which stand in the sources and are compared whenever data are loaded.
"""

import ast
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parents[1]
PACKAGES = ("networkx", "numba", "numpy", "scipy")  # what the numbers come from besides our own lines
# These name every algorithm, and would tie each one's results to all others' files. What a cell takes from them is one
# algorithm with its settings, and that is in its key.
_LISTS = ("sottovoce", "sottovoce.algorithms", "sottovoce.algorithms.registry")


@cache
def fingerprint(*modules: str, root: Path = HERE) -> str:
    """A hash of these modules, of all modules of the package that they can reach, and of the packages' versions.

    Files are read once: they may change while this process runs, but what it runs does not.
    """
    digest = sha256(repr([(name, version(name)) for name in PACKAGES]).encode())
    for name in sorted(reached(modules, root)):
        content = _file(name, root).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def reached(modules: tuple[str, ...], root: Path = HERE) -> set[str]:
    """These modules and all that they import, directly or not, at any time."""
    found: set[str] = set()
    todo = set(modules)
    while todo:
        name = todo.pop()
        found.add(name)
        todo |= _imports(name, root) - found
    return found


@cache
def _imports(name: str, root: Path) -> set[str]:
    """The modules of the package that a module imports, and the packages that they lie in."""
    asked: set[str] = set()
    for node in _nodes(_file(name, root).read_bytes()):
        if isinstance(node, ast.Import):
            asked |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            # A name may be a module or stand in one; an import from a list as such reaches all that is listed.
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {one for one in inner if _exists(one, root)}
            asked |= modules | ({node.module} if modules != inner else set())
    ours = {one for one in asked if one.startswith("sottovoce.") and one != _LISTS[-1]}
    around = {".".join(one.split(".")[:depth]) for one in ours for depth in range(1, one.count(".") + 1)}
    return {one for one in ours | (around - set(_LISTS)) if _exists(one, root)}


def _nodes(source: bytes) -> Iterable[ast.AST]:
    """All nodes of the syntax tree of a source."""
    return ast.walk(ast.parse(source))


def _file(name: str, root: Path) -> Path:
    """Path of a module's source."""
    path = root.joinpath(*name.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _exists(name: str, root: Path) -> bool:
    """True if this is a module of the package."""
    return name.startswith("sottovoce") and _file(name, root).exists()
