"""What is shown together: a panel is a list of points, each of which is a cell and its place in a figure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from sottovoce.algorithms import registry
from sottovoce.algorithms.registry import Settings
from sottovoce.algorithms.rival import FORMS
from sottovoce.errors import SottovoceError
from sottovoce.simulation.history import NODES_SCORED
from sottovoce.studies.cells import Cell, Measured, ProblemSpec, cell
from sottovoce.studies.store import Runner

Shape = Literal["sweep", "curves", "categories"]
FORM_WORDS = {"fair": "fair", "published": "as published"}


@dataclass(frozen=True, kw_only=True)
class Point:
    """One cell and where it belongs: in which part of the figure, on which line, at which x."""

    facet: str
    series: str
    x: float | str
    algorithm: str
    form: str
    epsilon: float | None
    cell: Cell
    result: Measured | None = None
    picked: str = ""  # settings that were tuned, in words


@dataclass(kw_only=True)
class Panel:
    """A figure to be: its words, and the points that it shows.

    Args:
        name: of the file, and of the panel in studies.
        title, caption, xlabel, ylabel: its words.
        shape: "sweep" (lines over a number), "curves" (lines over rounds) or "categories" (dots side by side).
        points: cells, and where each is drawn.
        notes: what is missing from it, and why.
        log_x: whether x is drawn on a log scale.
        cut_at: where the y axis ends, as a multiple of the largest final mean; None for all of it.
        column: of the history that is shown.
    """

    name: str
    title: str
    caption: str
    xlabel: str
    shape: Shape
    points: list[Point] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    log_x: bool = False
    cut_at: float | None = None  # of the largest final mean: where early spikes would hide the rest
    column: str = "risk_last"
    ylabel: str = "risk: mean loss of the last broadcasts"

    def cells(self) -> list[Cell]:
        """All that has to be run."""
        return [point.cell for point in self.points]

    def measured(self) -> list[Point]:
        """The points that have a result."""
        return [point for point in self.points if point.result is not None]

    def fill(self, runner: Runner) -> None:
        """Run or fetch every point."""
        runner.fill(self.cells())
        self.points = [replace(point, result=runner.get(point.cell)) for point in self.points]
        for point in self.points:
            if point.cell in runner.refused:
                self.note(f"{point.series}, {point.facet or point.x}: refused ({runner.refused[point.cell]})")

    def note(self, text: str) -> None:
        """Say something once."""
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True, kw_only=True)
class StudySize:
    """How large an experiment is. Everything that the quick form makes smaller is here."""

    every: int = 1  # only every n-th row is used
    nodes: int = 100
    rounds: int = 100
    local_steps: int = 10
    runs: int = 10
    tuning_runs: int = 3
    tuning_scored: int = 20  # nodes whose models are scored while tuning
    quick: bool = False
    seed: int = 2  # of the noise; the partition has seed 0
    fresh_seed: int = 2002  # of the runs that judge what was tuned: no noise is used twice
    record: tuple[int, ...] = (1, 2, 3, 5, 8, 13, 20, 32, 50, 70, *range(90, 101))
    sparse_record: tuple[int, ...] = (1, 2, 3, 5, 8, 13, 20, 32, 50, 70, 100)  # where only the curve's shape matters
    late: int = 10  # rounds at the end over which steadiness is measured; all of them are recorded
    delta: float = 1e-5
    rho: float = 1e-3
    lam: float = 1e-6  # the paper's lambda / n, with its lambda = 1e-4 and n = 100

    def problem(self, **changes: object) -> ProblemSpec:
        """The paper's problem, or a variation of it."""
        return replace(ProblemSpec(nodes=self.nodes, every=self.every), **changes)  # type: ignore[arg-type]

    def common(self, epsilon: float | None = None, rounds: int | None = None) -> dict[str, float | int | str | bool]:
        """The settings that every algorithm of the study is given, where it has such fields."""
        told: dict[str, float | int | str | bool] = {
            "delta": self.delta,
            "rho": self.rho,
            "lam": self.lam,
            "rounds": rounds or self.rounds,
        }
        return told if epsilon is None else {**told, "epsilon": epsilon}


FULL = StudySize()
QUICK = StudySize(
    every=20, nodes=9, rounds=6, local_steps=2, runs=3, tuning_runs=2, quick=True, record=(1, 2, 3, 4, 5, 6), late=4,
)  # fmt: skip


def add_point(
    panel: Panel,
    scale: StudySize,
    name: str,
    *,
    x: float | str,
    epsilon: float,
    form: str = "fair",
    facet: str = "",
    series: str | None = None,
    problem: ProblemSpec | None = None,
    own: Settings | None = None,
    rounds: int | None = None,
    record: tuple[int, ...] = (),
    scored: int = NODES_SCORED,
    seed: int | None = None,
    picked: str = "",
) -> None:
    """Add a point to the panel, or a note where the algorithm refuses its settings.

    Args:
        panel: where to.
        scale: how large the study is.
        name: of the algorithm, in the registry.
        x: where along the x axis.
        epsilon: the total that it may spend.
        form: "fair" or "published". Where it has no such form nothing is added.
        facet: in which part of the figure.
        series: on which line; None for the algorithm's label.
        problem: rows, partition and graph; None for the paper's.
        own: settings of this algorithm beyond the common ones.
        rounds: None for the study's.
        record: rounds whose scores are kept; empty for the last one only.
        scored: at how many nodes models are scored.
        seed: of the noise; None for the study's.
        picked: settings that were tuned, in words.
    """
    line = registry.entry(name)
    if form not in line.forms:
        return
    own = dict(own or {})
    # Only algorithms whose line sets local steps have any: the others take one step a round by definition.
    if "local_steps" in line.settings:
        own.setdefault("local_steps", scale.local_steps)
    try:
        made = cell(
            name,
            problem or scale.problem(),
            scale.common(epsilon, rounds),
            own,
            form=form,
            runs=scale.runs,
            seed=scale.seed if seed is None else seed,
            record=record,
            scored=scored,
        )
    # A rival that refuses a setting is a result too: it is named below the figure, not left out silently.
    except SottovoceError as error:
        panel.note(f"{line.label}, {FORM_WORDS[form]}, epsilon {epsilon:g}: refused ({error})")
        return
    panel.points.append(
        Point(
            facet=facet,
            series=series or line.label,
            x=x,
            algorithm=name,
            form=form,
            epsilon=epsilon if line.private else None,
            cell=made,
            picked=picked,
        )
    )


def in_group(*groups: str) -> list[str]:
    """The names of the algorithms in these groups, in the registry's order."""
    return [name for name, line in registry.REGISTRY.items() if line.group in groups]


def forms_of(name: str) -> Iterable[str]:
    """The forms that an algorithm has."""
    return [form for form in FORMS if form in registry.entry(name).forms]


# -- suite ------------------------------------------------------------------------------------------------------------
# The paper's figures and ours, as panels.
#
# Section 5 of the paper leaves t, D and the meaning of "empirical risk" open; what we chose is in the captions. A
# panel here is empty: it says which cells to run and where their results go.

_PRINTED = "IPADMM, noise and steps as printed"
_OURS = "IPADMM, exact noise, monotone steps"
LINES = {"fair": _OURS, "published": _PRINTED}
SMALL_DIAMETER = 30.0  # in Figure 2: a D that is too small for the noise, to see whether l makes up for it
EPSILONS = (0.5, 1.0)  # of the paper's Figure 3
COLLUDING = (0.0, 0.2, 0.5)  # of all sites, in the figures of masked sums


def setting(scale: StudySize) -> str:
    """The fixed part of every caption."""
    return (
        f"Adult, {scale.nodes} nodes, complete graph unless said, rho = {scale.rho:g}, lambda / n = {scale.lam:g}, "
        f"delta = {scale.delta:g}, t = {scale.rounds} rounds, l = {scale.local_steps} local steps of IPADMM, D = the "
        f"library's default (from public numbers). Risk: the mean over nodes of the mean loss, on all rows and without "
        f"regulariser, of each node's last broadcast. Lines are means of {scale.runs} runs, bands their 5 % to 95 % "
        f"quantiles."
    )


def figure_1(scale: StudySize) -> Panel:
    """Risk against epsilon."""
    panel = Panel(
        name="fig1",
        title="Figure 1. Risk against epsilon",
        caption="IPADMM, the printed form and this library's default. " + setting(scale),
        xlabel="epsilon (total, log scale)",
        shape="sweep",
        log_x=True,
    )
    values = (0.1, 1.0, 8.0) if scale.quick else (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 8.0)
    for form, label in LINES.items():
        for epsilon in values:
            add_point(panel, scale, "ipadmm", x=epsilon, epsilon=epsilon, form=form, series=label)
    return panel


def figure_2(scale: StudySize) -> Panel:
    """Risk against the number of local steps."""
    budget = scale.rounds * scale.local_steps
    panel = Panel(
        name="fig2",
        title="Figure 2. Risk against the local steps l",
        caption=(
            f"epsilon = 1. The paper does not say whether t changes with l. Three lines keep t = {scale.rounds} "
            f"rounds: more local steps then mean more computation, and more noise per step. One of them has a small D, "
            f"the same for all l (the default D follows l). The fourth keeps t l = {budget} gradients: more local "
            f"steps then mean fewer rounds. " + setting(scale)
        ),
        xlabel="local steps l",
        shape="sweep",
    )
    values = (1, 2, 3) if scale.quick else (1, 2, 3, 5, 7, 10, 15, 20, 25)
    for l in values:
        for form, label in LINES.items():
            add_point(
                panel, scale, "ipadmm", x=float(l), epsilon=1.0, form=form, own={"local_steps": l},
                series=f"{label}, t = {scale.rounds}",
            )  # fmt: skip
        add_point(
            panel, scale, "ipadmm", x=float(l), epsilon=1.0, form="published",
            own={"local_steps": l, "diameter": SMALL_DIAMETER},
            series=f"{_PRINTED}, t = {scale.rounds}, D = {SMALL_DIAMETER:g}",
        )  # fmt: skip
        add_point(
            panel, scale, "ipadmm", x=float(l), epsilon=1.0, own={"local_steps": l}, rounds=max(1, round(budget / l)),
            series=f"{_OURS}, t l = {budget}",
        )  # fmt: skip
    return panel


def figure_3(scale: StudySize) -> Panel:
    """Risk over rounds, all algorithms of the paper."""
    panel = Panel(
        name="fig3",
        title="Figure 3. Risk over communication rounds",
        caption=(
            "The same rho, lambda and rounds for all. Fair: every algorithm keeps the same total epsilon and delta, "
            " by the best accountant known for it, and IPADMM is this library's default. As published: every "
            "algorithm's own noise and its own total, and IPADMM has the printed noise and steps. " + setting(scale)
        ),
        xlabel="communication rounds",
        shape="curves",
    )
    for epsilon in EPSILONS:
        for form, words in FORM_WORDS.items():
            for name in in_group("paper"):
                known = form if form in registry.entry(name).forms else "fair"  # ADMM has one form
                facet = f"{words}, epsilon {epsilon:g}"
                add_point(panel, scale, name, x=0.0, epsilon=epsilon, form=known, facet=facet, record=scale.record)
    return panel


def test_split(scale: StudySize) -> Panel:
    """All algorithms on the official split, for the table."""
    panel = Panel(
        name="table",
        title="All algorithms at epsilon 1",
        caption=(
            "Learnt from the official training rows of Adult, tested on the official test rows. Means with 95 % "
            "intervals (Student's t over runs). Messages: vectors sent by all nodes in one run, each to one neighbour. "
            "Sigma: noise of one private step over its sensitivity (a standard deviation, or a Laplace law's scale in "
            "published forms). Seconds: of one run, with other cells beside it. " + setting(scale)
        ),
        xlabel="",
        shape="categories",
    )
    problem = scale.problem(split="official")
    for name in in_group("paper", "beyond", "bound"):
        for form in forms_of(name):
            add_point(panel, scale, name, x=form, epsilon=1.0, form=form, problem=problem)
    return panel


def diameter(scale: StudySize) -> Panel:
    """Risk against D."""
    panel = Panel(
        name="diameter",
        title="Risk against the diameter D",
        caption="IPADMM. D scales the steps; the paper does not give it. " + setting(scale),
        xlabel="diameter D (log scale)",
        shape="sweep",
        log_x=True,
    )
    values = (10.0, 100.0) if scale.quick else (5.0, 10.0, 20.0, 40.0, 80.0, 120.0, 200.0, 400.0)
    for epsilon in EPSILONS:
        for D in values:
            add_point(
                panel, scale, "ipadmm", x=D, epsilon=epsilon, own={"diameter": D}, series=f"IPADMM, epsilon {epsilon:g}"
            )
    return panel


def graph(scale: StudySize) -> Panel:
    """Risk on four graphs."""
    panel = Panel(
        name="graph",
        title="Risk on different graphs",
        caption="epsilon = 1. The algorithms that need no exact minimisation; random regular has degree 4. "
        + setting(scale),
        xlabel="graph",
        shape="categories",
    )
    kinds: dict[str, tuple[tuple[str, int], ...]] = {
        "ring": (), "grid": (), "random-regular": (("degree", 4),), "complete": (),
    }  # fmt: skip
    for kind, options in kinds.items():
        problem = scale.problem(graph=kind, graph_options=options)
        for name in _light():
            add_point(panel, scale, name, x=kind, epsilon=1.0, problem=problem)
    return panel


def skew(scale: StudySize) -> Panel:
    """Risk when nodes hold different mixes of labels."""
    panel = Panel(
        name="skew",
        title="Risk when sites differ",
        caption=(
            "epsilon = 1. Labels dealt out by a Dirichlet distribution (small alpha: most sites hold one label), at "
            "least 100 rows per site; sizes differ too, and small sites need more noise. " + setting(scale)
        ),
        xlabel="how rows are dealt out",
        shape="categories",
    )
    deals: dict[str, tuple[str, tuple[tuple[str, float], ...]]] = {
        "Dirichlet 0.1": ("dirichlet", (("alpha", 0.1), ("minimum", 100))),
        "Dirichlet 1": ("dirichlet", (("alpha", 1.0), ("minimum", 100))),
        "even": ("even", ()),
    }
    for words, (kind, options) in deals.items():
        problem = scale.problem(partition=kind, partition_options=options)
        for name in _light():
            add_point(panel, scale, name, x=words, epsilon=1.0, problem=problem)
    return panel


def choices(scale: StudySize) -> Panel:
    """Exact against printed noise, monotone against printed steps."""
    panel = Panel(
        name="choices",
        title="Where we leave the printed algorithm",
        caption="IPADMM with either noise and either step schedule; the same noise seeds throughout. " + setting(scale),
        xlabel="noise, steps",
        shape="categories",
    )
    for epsilon in EPSILONS:
        for calibration in ("paper", "exact"):
            for schedule in ("paper", "monotone"):
                add_point(
                    panel, scale, "ipadmm", x=f"{calibration} noise,\n{schedule} steps", epsilon=epsilon,
                    own={"calibration": calibration, "schedule": schedule}, series=f"epsilon {epsilon:g}",
                )  # fmt: skip
    return panel


def trust(scale: StudySize) -> Panel:
    """Risk against epsilon, for whoever trusts nobody, most others, or a curator."""
    panel = Panel(
        name="trust",
        title="What trust is worth",
        caption=(
            "IPADMM and its rivals hold against everybody: each site's messages are private by themselves. DP-DSGD "
            "is drawn for them: of those without exact minimisation it had the lowest risk in three runs at epsilon "
            "0.5, which is a rough pick, and none of them was tuned. Masked sums "
            "hold against the relay and so many colluding sites; where nobody colludes, they have the noise of a "
            "curator who goes by the same rule. The trusted curator that is drawn takes plain gradient steps. "
            + _consensus(scale)
        ),
        xlabel="epsilon (total, log scale)",
        shape="sweep",
        log_x=True,
        column="risk_consensus",
        ylabel="risk: mean loss of the mean of the last broadcasts",
    )  # fmt: skip
    values = (0.1, 1.0) if scale.quick else (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
    for epsilon in values:
        for name in ("ipadmm", "dp-dsgd", "trusted-curator"):
            add_point(panel, scale, name, x=epsilon, epsilon=epsilon, scored=1)
        for share in COLLUDING:
            _add_masked(panel, scale, epsilon, epsilon, scale.nodes, share)
    return panel


def sites(scale: StudySize) -> Panel:
    """Risk against the number of sites, which hold the same rows between them."""
    panel = Panel(
        name="sites",
        title="The same rows at more sites",
        caption=(
            "epsilon = 1. All rows of Adult, dealt out to more and more sites. With noise of its own at every site the "
            "risk grows with their number; a masked sum has the noise of one. One site is a curator. "
            + _consensus(scale)
        ),
        xlabel="sites (log scale)",
        shape="sweep",
        log_x=True,
        column="risk_consensus",
        ylabel="risk: mean loss of the mean of the last broadcasts",
    )  # fmt: skip
    for nodes in (1, 9) if scale.quick else (1, 3, 10, 30, 100, 300, 1000):
        problem = scale.problem(nodes=nodes)
        for name in ("ipadmm", "dp-dsgd"):
            add_point(panel, scale, name, x=float(nodes), epsilon=1.0, problem=problem, scored=1)
        for share in COLLUDING:
            _add_masked(panel, scale, float(nodes), 1.0, nodes, share)
    return panel


def _add_masked(panel: Panel, scale: StudySize, x: float, epsilon: float, nodes: int, share: float) -> None:
    words = f"up to {100 * share:g} % of the sites collude" if share else "nobody colludes"
    add_point(
        panel, scale, "masked", x=x, epsilon=epsilon, problem=scale.problem(nodes=nodes), scored=1,
        own={"colluding": int(share * nodes)}, series=f"Masked sums, {words}",
    )  # fmt: skip


def _consensus(scale: StudySize) -> str:
    """The fixed part of a caption where models are judged by their mean."""
    return (
        f"Adult, {scale.nodes} nodes unless said, complete graph, delta = {scale.delta:g}, lambda / n = {scale.lam:g}; "
        f"{scale.rounds} rounds, rho = {scale.rho:g}, but masked sums take as many exchanges as follow from public "
        f"numbers, about ten. Risk: the mean loss, on all rows and without regulariser, of the mean of all last "
        f"broadcasts. Lines are means of {scale.runs} runs, bands their 5 % to 95 % quantiles."
    )


def _light() -> list[str]:
    """Who can be swept: no exact minimisation per round, no other trust than the paper's."""
    return [name for name in in_group("paper", "beyond") if not registry.entry(name).exact]


PANELS: dict[str, Callable[[StudySize], Panel]] = {
    "trust": trust,
    "sites": sites,
    "fig1": figure_1,
    "fig2": figure_2,
    "fig3": figure_3,
    "table": test_split,
    "diameter": diameter,
    "graph": graph,
    "skew": skew,
    "choices": choices,
}
