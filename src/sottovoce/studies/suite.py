"""The paper's figures and ours, as panels.

Section 5 of the paper leaves t, D and the meaning of "empirical risk" open; what we chose is in the captions. A
panel here is empty: it says which cells to run and where their results go.
"""

from collections.abc import Callable

from sottovoce.algorithms import registry
from sottovoce.algorithms.ipadmm import MOMENTS
from sottovoce.studies.panels import FORM_WORDS, Panel, StudySize, add_point, forms_of, in_group

_PRINTED = "IPADMM, noise and steps as printed"
_OURS = "IPADMM, exact noise, monotone steps"
LINES = {"fair": _OURS, "published": _PRINTED}
SMALL_DIAMETER = 30.0  # in Figure 2: a D that is too small for the noise, to see whether l makes up for it
EPSILONS = (0.5, 1.0)  # of the paper's Figure 3
COLLUDING = (0.0, 0.2, 0.5)  # of all sites, in the figures of masked sums
HEAD_STARTS = (0.5, 1.0, 2.0, 4.0)  # the epsilons with one: each takes as long as ten other cells


def setting(scale: StudySize) -> str:
    """The part of a caption that all panels share."""
    return (
        f"Adult, {scale.nodes} nodes, complete graph unless said, rho = {scale.rho:g}, lambda / n = {scale.lam:g}, "
        f"delta = {scale.delta:g}, t = {scale.rounds} rounds, l = {scale.local_steps} local steps of IPADMM, D = the "
        f"library's default (from public numbers). Risk: the mean over nodes of the mean loss, on all rows and without "
        f"regulariser, of each node's last broadcast. Lines are means of {scale.runs} runs, bands their 5 % to 95 % "
        f"quantiles."
    )


def figure_1(scale: StudySize) -> Panel:
    """Empty panel of the risk of IPADMM against epsilon, in the printed form and the default one."""
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
    """Empty panel of all algorithms on the official split, shown as a table."""
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
    """Empty panel of the risk against the diameter D."""
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
    """Empty panel of the risk on four graphs."""
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
            "hold against the message server and so many colluding sites; if none collude, they have the noise of a "
            "curator who goes by the same rule. The trusted curator that is drawn takes plain gradient steps. "
            "Beside IPADMM in the paper's setting stands the same with a head start: a tenth of the budget for moments "
            "of the rows, and tight noise, from epsilon 0.5 on: below, moments are lost in noise. Of these points the "
            "planner takes one at epsilon 4 alone. "
            + _consensus(scale)
        ),
        xlabel="epsilon (total, log scale)",
        shape="sweep",
        log_x=True,
        column="risk_consensus",
    )  # fmt: skip
    values = (0.1, 1.0) if scale.quick else (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
    for epsilon in values:
        for name in ("ipadmm", "dp-dsgd", "trusted-curator"):
            add_point(panel, scale, name, x=epsilon, epsilon=epsilon, scored=1)
        if epsilon in HEAD_STARTS:
            add_point(
                panel, scale, "ipadmm", x=epsilon, epsilon=epsilon, scored=1,
                own={"moments": MOMENTS, "sensitivity": "tight"}, series="IPADMM, head start",
            )  # fmt: skip
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
    """Names of the algorithms that are swept: without exact minimisation per round, and with the paper's trust."""
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
