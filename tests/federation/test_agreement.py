"""Agreements: one content, one digest; nothing odd gets in."""

import math
import tomllib
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sottovoce as sv
from helpers.federations import ALGORITHMS, COMMON, REGRESSION, SOFTMAX, agreement, members
from sottovoce.algorithms import DPADMM, DPDSGD, IPADMM, RyuKim, registry
from sottovoce.errors import InputError, PrivacyError, SottovoceError
from sottovoce.federation.agreement import terms, toml_file
from sottovoce.federation.agreement.agreement import LostNeighbour, new_run, timestamp
from sottovoce.federation.agreement.identity import SigningKey
from sottovoce.files.models.from_site import model_of
from sottovoce.problem.losses import Huber, Poisson, Softmax
from sottovoce.problem.regularisers import ElasticNet
from sottovoce.settings.toml import inline, multiline

SCHEMA = """
version = 1
name = "table"
[label]
column = "ill"
classes = ["no", "yes"]
[[columns]]
name = "age"
kind = "numeric"
bounds = [0, 100]
scale = "unit"
[[columns]]
name = "smokes"
kind = "boolean"
"""


def reread(a):
    return toml_file.loads(toml_file.dumps(a))


def changed(text, old, new):
    assert text.count(old) >= 1
    return text.replace(old, new, 1)


# -- one content, one digest ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: type(a).__name__)
def test_a_file_holds_all_of_it(algorithm):
    lost = LostNeighbour(policy="go-on", wait_seconds=60, go_on_after_round=1)
    commitment = "sha256:" + "0a" * 32
    sites = tuple(replace(site, data_commitment=commitment) for site in members()[1])
    a = agreement(sites, algorithm=algorithm, name='Herz "Studie" \\ ü', grid_bits=20, lost_neighbour=lost)
    assert reread(a) == a
    assert reread(a).digest() == a.digest()
    assert len(a.digest()) == 32


def test_whole_numbers_and_numbers_of_numpy_are_the_same_agreement():
    sites = members()[1]
    exact = agreement(sites, run="ab" * 16)
    loose = agreement(
        tuple(replace(site, rows=np.int64(site.rows)) for site in sites),
        run="ab" * 16,
        data_norm=1,
        features=np.int32(5),
        algorithm=replace(exact.algorithm, diameter=np.float32(10), rounds=np.int64(3)),
    )
    assert loose.digest() == exact.digest() == reread(loose).digest()


def test_comments_and_order_do_not_matter():
    a = agreement(run="cd" * 16)
    text = toml_file.dumps(a)
    head, noise = text.split("[noise]")
    kind, bits, *rest = noise.strip().splitlines()
    shuffled = "# read me\n" + head + "[noise]\n" + "\n".join([bits + "  # fine", kind, *rest]) + "\n"
    flipped = changed(shuffled, '["berlin", "paris"]', '["paris", "berlin"]')
    assert toml_file.loads(flipped).digest() == a.digest()


def test_everything_else_matters():
    sites = members()[1]
    a = agreement(sites, run="ef" * 16)
    other = SigningKey.generate().public
    lost = LostNeighbour(policy="stop")
    variants = [
        replace(a, run="00" * 16),
        replace(a, created="2025-01-31T12:00:01Z"),
        replace(a, name="x"),
        replace(a, features=6),
        replace(a, data_norm=np.nextafter(1.0, 2)),
        replace(a, grid_bits=29),
        replace(a, radius=999.0),
        replace(a, lost_neighbour=lost),
        replace(a, lost_neighbour=replace(lost, wait_seconds=1.0)),
        replace(a, edges=(*a.edges, ("berlin", "rome"))),
        replace(a, sites=sites[::-1]),
        replace(a, sites=(replace(sites[0], rows=31), *sites[1:])),
        replace(a, sites=(replace(sites[0], public_key=other), *sites[1:])),
        replace(a, sites=(replace(sites[0], data_commitment="sha256:" + "1" * 64), *sites[1:])),
        replace(a, algorithm=DPADMM(**COMMON)),
    ]
    values = {
        "rounds": 4, "rho": 0.1, "lam": 0.2, "loss": Huber(), "regulariser": ElasticNet(), "max_grad_norm": 1.0,
        "epsilon": 2.0, "delta": 1e-6, "local_steps": 3, "diameter": 11.0, "schedule": "paper", "batch_size": 5,
        "radius": 1.0, "weights": "rows",
    }  # fmt: skip
    # Of calibration, sensitivity and moments only one value is allowed, and sampling is nothing without a batch.
    assert set(values) == {f.name for f in fields(IPADMM)} - {"calibration", "sampling", "sensitivity", "moments"}
    variants += [replace(a, algorithm=replace(a.algorithm, **{key: value})) for key, value in values.items()]
    digests = [a.digest(), *(variant.digest() for variant in variants)]
    assert len(set(digests)) == len(digests)


@given(st.text(), st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**60), 2**60))
def test_toml_reads_back_what_was_written(text, number, whole):
    table = {"text": text, "number": number, "list": [text, number, whole], "within": {"x": number}}
    lines = "".join(f"{key} = {inline(value)}\n" for key, value in table.items()) + f"long = {multiline(text)}\n"
    assert tomllib.loads(lines) == table | {"long": text}


# -- nothing odd gets in ----------------------------------------------------------------------------------------------


TEXT = toml_file.dumps(agreement(name="study"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("format = 5", "format = 4", r"of format=5, got format=4, where settings may mean other things\. Use"),
        ("format = 5", "format = true", "got format=True"),
        ("format = 5\n", "", "got format=None"),
        ('name = "study"', 'name = "study"\nsecret = 1', "Expected an agreement, got 'secret'"),
        ('name = "study"\n', "", "an agreement in full, got no name. Add it"),
        ('name = "study"', 'name = "study"\nname = "other"', "Expected TOML, got a mistake"),
        ('name = "study"', "name = 7", "text for name, got name=7"),
        ('name = "study"', f'name = "{"x" * 81}"', "a name of at most 80 printable characters"),
        ('run = "', 'run = "x', "a run of 32 hexadecimal digits"),
        ("2025-01-31T12:00:00Z", "2025-02-31T12:00:00Z", "a time in UTC such as"),
        ("2025-01-31T12:00:00Z", "2025-1-31T12:00:00Z", "a time in UTC such as"),
        ("[data]", "[data]\nrows = 3", "keys of data, got 'rows'"),
        ("features = 5", "features = 5.0", "a whole number for data.features, got features=5.0"),
        ("features = 5", "features = 0", "1 <= features <= 1000000"),
        ("features = 5\n", "", "keys of data in full, got no features"),
        ("data_norm = 1.0", "data_norm = inf", "a finite number for data.data_norm"),
        ("data_norm = 1.0", "data_norm = -1", "a finite data_norm > 0"),
        ("epsilon = 1.5", "epsilon = inf", "a finite number for algorithm.epsilon, got epsilon=inf"),
        ("epsilon = 1.5", "epsilon = nan", "a finite number for algorithm.epsilon"),
        ("epsilon = 1.5", "epsilon = 0", "epsilon > 0"),
        ("epsilon = 1.5", "epsilon = true", "a number for algorithm.epsilon, got epsilon=True"),
        ("epsilon = 1.5", "epsilon = " + "9" * 400, "a smaller number for algorithm.epsilon, got epsilon=an int of"),
        ("epsilon = 1.5", "epsilom = 1.5", "keys of algorithm, got 'epsilom'. Did you mean epsilon?"),
        ("epsilon = 1.5\n", "", "keys of algorithm in full, got no epsilon"),
        ("delta = 1e-05", "delta = 1", "0 < delta < 1"),
        ("diameter = 10.0\n", "", "Expected diameter, which must be the same number at all sites"),
        ('calibration = "exact"', 'calibration = "paper"', "calibration='exact' at real sites"),
        ('schedule = "monotone"', 'schedule = "fast"', "schedule among paper, monotone, constant, got schedule='fast'"),
        ("rounds = 3", "rounds = 0", "rounds >= 1"),
        ("rounds = 3", 'rounds = 3\nsampling = "poisson"', "a batch_size with sampling='poisson', got none"),
        ("rounds = 3", "rounds = 3\nbatch_size = 4", "got no sampling"),
        ('{ name = "logistic" }', '"logistic"', "a table for algorithm.loss, got loss='logistic'"),
        ('{ name = "logistic" }', '{ name = "logistic", threshold = 1 }', "keys of algorithm.loss, got 'threshold'"),
        ('{ name = "logistic" }', '{ name = "huber" }', "keys of algorithm.loss in full, got no threshold"),
        ('{ name = "logistic" }', '{ name = "huber", threshold = nan }', "a finite number for .*loss.threshold"),
        ('{ name = "logistic" }', '{ name = "softmax", classes = 2.0 }', "a whole number for algorithm.loss.classes"),
        ('{ name = "logistic" }', '{ name = "magic" }', "algorithm.loss.name among"),
        ('kind = "discrete"', 'kind = "float"', "noise.kind among discrete, got kind='float'"),
        ("grid_bits = 30", "grid_bits = 4", "8 <= grid_bits <= 40"),
        ("radius = 1000.0", "radius = 0.0", "a radius > 0, got radius=0.0"),
        ("radius = 1000.0", "radius = -1.0", "a radius > 0, got radius=-1.0"),
        ("radius = 1000.0", "radius = 1e13", "0 < radius <= 1e.12 of messages"),
        ("radius = 1000.0", "radius = inf", "radius"),
        ("[messages]\nradius = 1000.0\n", "", "a radius of messages in full, and none with masked sums"),
        ("rounds = 3", "rounds = 1000000000000", "rounds <= 1000000 at real sites"),
        ("grid_bits = 30", "grid_bits = 8", r"adds at most 0.001 delta .* got grid_bits=8, which adds .* more bits"),
        ('policy = "wait"', 'policy = "hope"', "policy among wait, stop, go-on"),
        ('policy = "wait"', 'policy = "go-on"', "go_on_after_round together with policy='go-on'"),
        ('policy = "wait"', 'policy = "go-on"\ngo_on_after_round = 3', "go_on_after_round < rounds=3"),
        ('policy = "wait"', 'policy = "wait"\ngo_on_after_round = 1', "and only then"),
        ("wait_seconds = 3600.0", "wait_seconds = 0", "0 < wait_seconds"),
        ("rows = 30", "rows = 0", "1 <= rows <= 100000000 at site berlin"),
        ("rows = 30", "rows = 30\nage = 3", "keys of sites.berlin, got 'age'"),
        ("rows = 30", 'rows = 30\ndata_commitment = "md5:1"', "a data_commitment of site berlin such as sha256:"),
        ('name = "berlin"', 'name = "paris"', "every site's name once, got name='paris', times=2"),
        ('name = "berlin"', 'name = "Berlin"', "a site's name"),
        ("ed25519:", "rsa:", "Expected a public key"),
        ('["berlin", "paris"]', '["berlin", "oslo"]', "edges between sites of this federation: berlin, paris, rome"),
        ('["berlin", "paris"]', '["berlin", "berlin"]', "two different sites"),
        ('["berlin", "paris"]', '["rome", "paris"]', "every edge once"),
        ('["berlin", "paris"]', '["berlin"]', r"a list of 2 for edges\[1\]"),
        ('    ["berlin", "paris"],\n', "", "a connected graph, got no way from berlin to paris, rome. Add edges"),
        ("edges = [", "edges = 3\nedges2 = [", "got 'edges2'"),
    ],
)  # fmt: skip
def test_odd_files_are_refused(old, new, message):
    with pytest.raises(SottovoceError, match=message):
        toml_file.loads(changed(TEXT, old, new))


def test_one_key_is_one_site():
    sites = members()[1]
    shared = replace(sites[2], public_key=sites[0].public_key)
    with pytest.raises(InputError, match="a key of its own for every site, got one key for berlin, rome"):
        agreement((*sites[:2], shared))


def test_a_federation_has_at_least_two_sites():
    with pytest.raises(InputError, match="2 to 1000 sites, got sites=1"):
        agreement(members()[1][:1], edges=())


def test_sizes_are_limited():
    with pytest.raises(InputError, match="at most 4000000 characters"):
        toml_file.loads("x" * 4_000_001)
    with pytest.raises(InputError, match="at most 1000 entries of sites"):
        toml_file.loads(TEXT.replace("[data]", '[[sites]]\nname = "x"\n' * 1000 + "[data]"))
    with pytest.raises(InputError, match=r"nested too deeply|Expected TOML"):
        toml_file.loads("format = " + "[" * 100_000)


def test_files_are_named_in_messages_and_never_replaced(tmp_path):
    path = tmp_path / "federation.toml"
    path.write_text(changed(TEXT, "features = 5", "features = 0"))
    with pytest.raises(InputError, match=r"In file '.*federation\.toml': Expected 1 <= features"):
        toml_file.load(path)
    path.write_bytes(b"\xff")
    with pytest.raises(InputError, match="text in UTF-8"):
        toml_file.load(path)
    with pytest.raises(InputError, match="a file that does not exist yet"):
        toml_file.save(agreement(), path)


def test_runs_are_never_the_same():
    assert len({new_run() for _ in range(100)}) == 100
    assert agreement(run=new_run(), created=timestamp())


# -- which algorithms -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("pvp", "its noise has no exact discrete form here"),
        ("dvp", "its noise has no exact discrete form here"),
        ("radmm", "its noise has no exact discrete form here"),
        ("madmm", "its noise has no exact discrete form here"),
        ("fixed-point", "its noise has no exact discrete form here"),
        ("admm", "it is not private"),
        ("trusted-curator", "private only as an average"),
        ("noisy-averaged-gd", "no single site can run it"),
        ("magic", "the name of an algorithm"),
    ],
)
def test_other_algorithms_are_refused_with_the_reason(name, reason):
    with pytest.raises(InputError, match=f"{reason}.*Choose among ipadmm, dpadmm, ryu-kim, dp-dsgd, masked"):
        toml_file.loads(changed(TEXT, 'name = "ipadmm"', f'name = "{name}"'))


def test_an_algorithm_that_does_not_say_so_is_not_for_real_sites():
    assert terms.ALLOWED == ("ipadmm", "dpadmm", "ryu-kim", "dp-dsgd", "masked", "least-squares", "hazards")
    silent = registry.Entry(at="pvp.PVP", label="", colour="", group="paper", grid={})
    assert silent.not_at_sites is not None


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (RyuKim(**COMMON, form="published"), "form='fair' at real sites"),
        (DPADMM(**COMMON, form="published"), "form='fair' at real sites"),
        (IPADMM(**COMMON, calibration="moments"), "calibration='exact' at real sites"),
        (IPADMM(**(COMMON | {"epsilon": float("inf")})), "a finite epsilon at real sites"),
        (IPADMM(**(COMMON | {"diameter": None})), "Expected diameter, which must be the same number at all sites"),
        (DPDSGD(**COMMON), "Expected largest_degree, which must be the same number"),
        (DPDSGD(**COMMON, largest_degree=1), "largest_degree >= 2, which this graph has"),
        (sv.PVP(rounds=3), "got PVP: the others add noise that has no exact discrete form here"),
        (sv.TrustedCurator(rounds=3), "got TrustedCurator"),
    ],
)
def test_settings_that_promise_less_are_refused(algorithm, message):
    with pytest.raises(InputError, match=message):
        agreement(algorithm=algorithm)


# -- schemas ----------------------------------------------------------------------------------------------------------


def test_a_schema_goes_with_it():
    a = agreement(schema=SCHEMA, features=3)
    assert reread(a) == a
    assert a.encoding is not None
    assert a.encoding.feature_names == reread(a).encoding.feature_names
    assert a.digest() != agreement(a.sites, run=a.run, features=3).digest()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "features=3, which the schema makes, got features=5"),
        ({"features": 3, "data_norm": 2.0}, r"data_norm=1.0, as in the schema, got data_norm=2.0"),
        ({"features": 3, "algorithm": REGRESSION}, "a loss for classes where the schema's label is a class"),
        ({"features": 3, "algorithm": SOFTMAX}, "labels among 0"),
        ({"schema": SCHEMA.replace('["no", "yes"]', '["no", "yes", "maybe"]'), "features": 3}, "labels -1 or"),
        ({"schema": SCHEMA.replace('["no", "yes"]', '["a", "b", "c", "d"]'), "features": 3,
          "algorithm": IPADMM(**COMMON, loss=Softmax(5))}, "classes=4, as in the schema"),
        ({"schema": "version = 1", "features": 3}, "Expected"),
    ],
)  # fmt: skip
def test_a_schema_must_fit(changes, message):
    with pytest.raises(InputError, match=message):
        agreement(**({"schema": SCHEMA} | changes))


def test_counts_go_with_the_poisson_loss_alone():
    counts = SCHEMA.replace('classes = ["no", "yes"]', "bounds = [0, 20]\ncounts = true")
    numbers = SCHEMA.replace('classes = ["no", "yes"]', "bounds = [0, 20]")
    poisson = IPADMM(**COMMON, loss=Poisson())
    a = agreement(schema=counts, features=3, algorithm=poisson)
    assert reread(a).algorithm.loss == Poisson()
    model = model_of(a, a.sites[0].name, np.array([0.5, -1.0, 0.25]), {})
    row = np.array([[0.2, 0.4, 0.6]])
    assert model.decide(row).item() == pytest.approx(20 * math.exp(0.1 - 0.4 + 0.15))
    for schema, loss in [(counts, Huber()), (counts, Poisson(20.0)), (numbers, Poisson())]:
        with pytest.raises(InputError, match="loss poisson, most = 1, where the schema's label counts, and only there"):
            agreement(schema=schema, features=3, algorithm=IPADMM(**COMMON, loss=loss))


def test_a_schema_must_be_reviewed():
    unreviewed = SCHEMA.replace('name = "table"', 'name = "table"\nunreviewed = ["columns.age.bounds"]')
    with pytest.raises(PrivacyError, match="a reviewed schema"):
        agreement(schema=unreviewed, features=3)
