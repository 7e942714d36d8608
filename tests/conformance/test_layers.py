"""Imports point left only: a piece never knows of what is built on it."""

import ast
from pathlib import Path

import sottovoce

ROOT = Path(sottovoce.__file__).parent
LAYERS = [
    ("errors", "arrays", "disk", "settings"),
    ("losses", "regularisers", "graphs", "privacy", "datasets", "schema"),
    ("kernels",),
    ("noise", "sampler", "secure", "rows"),
    ("sites", "argmin", "evaluation"),
    ("problem",),
    ("oracle",),
    ("compiled", "cuda"),
    ("algorithms",),
    ("engines",),
    ("plan", "models"),
    ("estimators", "experiments"),
    ("cli", "report"),
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("sottovoce."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.ImportFrom) and node.module == "sottovoce":
            yield from (alias.name for alias in node.names if alias.name in LEVEL)
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("sottovoce."))


def test_imports_point_left_only():
    files = [path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"]
    assert len(files) > 20
    for path in files:
        own = path.relative_to(ROOT).parts[0].removesuffix(".py")
        assert own in LEVEL, f"{own} has no layer yet: give it one here and in docs/design.md"
        for name in imported(path):
            same_package = name == own
            assert same_package or LEVEL[name] <= LEVEL[own], f"{path.relative_to(ROOT)} imports {name}"
