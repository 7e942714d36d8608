"""Imports point left only: a piece never knows of what is built on it."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import sottovoce

ROOT = Path(sottovoce.__file__).parent
LAYERS = [
    ("errors", "arrays", "launched", "settings", "document", "drawing", "numerals", "progress"),
    (
        "problem.losses",
        "problem.answers",
        "problem.regularisers",
        "problem.graphs",
        "problem.dataset",
        "problem.factors",
        "problem.people",
        "problem.share",
        "problem.shuffle",
        "privacy",
        "files.schema",
    ),
    ("oracle.kernels",),
    ("noise", "problem.rows", "problem.partition"),
    ("files.datasets", "problem.sites", "problem.evaluation", "problem.figures", "oracle.argmin"),
    ("problem.problem",),
    ("oracle", "tally"),
    ("sums",),
    ("algorithms",),
    ("simulation",),
    ("tables",),
    ("federation.agreement",),
    ("federation.transport",),
    ("federation.site",),
    ("federation.operator",),
    ("plan", "files.models", "auditing"),
    ("estimators", "studies"),
    ("cli",),
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def place(module):
    """The entry of LAYERS that a module belongs to: the longest that its dotted name begins with."""
    parts = module.split(".")
    return next((name for k in (2, 1) if (name := ".".join(parts[:k])) in LEVEL), None)


def imported(path):
    """The modules of the package that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "sottovoce":
            inner = node.module.split(".")[1:]
            yield from (".".join([*inner, alias.name]) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (a.name.partition(".")[2] for a in node.names if a.name.startswith("sottovoce."))


def modules():
    files = [path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"]
    assert len(files) > 100
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}


def test_imports_point_left_only():
    for own, path in modules().items():
        if path.name == "__init__.py" and place(own) is None:
            continue  # a room whose parts have layers of their own
        assert place(own) is not None, f"{own} has no layer yet: give it one here and in docs/design.md"
        for name in imported(path):
            left = place(name)
            allowed = left is None or LEVEL[left] <= LEVEL[place(own)]
            assert allowed, f"{path.relative_to(ROOT)} imports {name}"


def test_the_design_page_has_the_same_layers():
    page = (Path(__file__).parents[2] / "docs" / "design.md").read_text(encoding="utf-8")
    section = page.split("\n## Layers\n")[1].split("\n## ")[0]
    shown = [line.partition(". ")[2] for line in section.splitlines() if line[:1].isdigit()]
    assert [tuple(line.split(", ")) for line in shown] == LAYERS


def test_no_module_needs_itself():
    """Imports at the top of modules make no circle, so each can be read after those that it names."""
    known = modules()

    def at_the_top(path):
        tree = ast.parse(path.read_text())
        tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sottovoce"):
                inner = node.module.split(".")[1:]
                for alias in node.names:
                    full = ".".join([*inner, alias.name])
                    yield full if full in known else ".".join(inner)

    needs = {own: {name for name in at_the_top(path) if name in known} for own, path in known.items()}
    tuple(TopologicalSorter(needs).static_order())  # CycleError names the circle


def test_numba_is_used_through_its_public_interface():
    """Its modules below `numba.core` change from version to version."""
    used = set()
    for path in modules().values():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                used.add(node.module)
            elif isinstance(node, ast.Import):
                used.update(alias.name for alias in node.names)
    assert {name for name in used if name.split(".")[0] == "numba"} == {"numba", "numba.extending"}
