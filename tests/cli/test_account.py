import pytest

from sottovoce.privacy import Gaussian, Repeated, SampledGaussian, Sampling, epsilon, sigma_for, steps_for
from sottovoce.settings import plain


def test_known_figure(answer):
    said = answer("account", "--epsilon", 1, "--steps", 1)
    assert said["sigma"] == pytest.approx(3.7306, abs=5e-5)
    assert (said["delta"], said["calibration"], said["found"], said["holds"]) == (1e-5, "exact", "sigma", True)


@pytest.mark.parametrize("calibration", ["exact", "moments", "paper"])
def test_sigma(answer, calibration):
    said = answer("account", "--epsilon", 0.5, "--steps", 1000, "--delta", 1e-6, "--calibration", calibration)
    assert said["sigma"] == sigma_for(0.5, 1e-6, 1000, calibration)
    assert said["spent"] <= 0.5


def test_steps(answer):
    said = answer("account", "--epsilon", 1, "--sigma", 100)
    assert said["steps"] == steps_for(1.0, 1e-5, 100.0) > 0
    assert said["found"] == "steps"


def test_epsilon(answer):
    said = answer("account", "--sigma", 100, "--steps", 50)
    assert said["epsilon"] == said["spent"] == epsilon(Repeated(Gaussian(100.0), 50), 1e-5)


def test_there_and_back(answer):
    sigma = answer("account", "--epsilon", 1, "--steps", 200)["sigma"]
    assert answer("account", "--epsilon", 1, "--sigma", repr(sigma))["steps"] == 200


def test_sampled(answer):
    batch = ["--rows", 452, "--batch-size", 20, "--sampling", "poisson"]
    said = answer("account", "--sigma", 2, "--steps", 100, *batch)
    sampling = Sampling("poisson", 452, 20)
    assert said["epsilon"] == epsilon(Repeated(SampledGaussian(2.0, sampling), 100), 1e-5)
    assert said["sampling"] == plain(sampling)
    assert said["epsilon"] < answer("account", "--sigma", 2, "--steps", 100)["epsilon"]


def test_all_three_are_checked(answer, cli):
    held = answer("account", "--epsilon", 1, "--sigma", 4, "--steps", 1)
    assert held["holds"]
    broken = answer("account", "--epsilon", 1, "--sigma", 3.7, "--steps", 1, code=1)
    assert not broken["holds"]
    assert broken["found"] is None
    assert broken["spent"] > 1
    assert "Within the budget" in cli("account", "--epsilon", 1, "--sigma", 4, "--steps", 1)[1]
    code, out, err = cli("account", "--epsilon", 1, "--sigma", 3.7, "--steps", 1)
    assert (code, err) == (1, "")
    assert "The budget is EXCEEDED" in out


def test_not_even_one(answer, cli):
    assert answer("account", "--epsilon", 0.01, "--sigma", 1)["steps"] == 0
    assert "Not even one step" in cli("account", "--epsilon", 0.01, "--sigma", 1)[1]


def test_the_table_rounds_up_what_it_computed_and_nothing_else(cli):
    code, out, err = cli("account", "--epsilon", 0.4, "--steps", 3)
    assert (code, err) == (0, "")
    lines = {line.split()[0]: line.split()[1] for line in out.splitlines()}
    assert (lines["epsilon"], lines["delta"], lines["steps"]) == ("0.4", "1e-05", "3")
    assert sigma_for(0.4, 1e-5, 3) <= float(lines["sigma"]) < sigma_for(0.4, 1e-5, 3) * (1 + 1e-5)


# -- masked sums ------------------------------------------------------------------------------------------------------


def test_epsilon_over_the_number_of_colluding_sites(answer, cli):
    asked = ["--epsilon", 1, "--steps", 11, "--sites", 100, "--colluding", 20]
    lines = answer("account", *asked)["observers"]
    told = [line["epsilon"] for line in lines]
    assert [line["colluding"] for line in lines] == list(range(100))
    assert told == sorted(told)
    assert told[20] == pytest.approx(1.0)
    assert (round(told[50], 2), round(told[99], 1)) == (1.30, 12.5)
    fewer = answer("account", *asked, "--least-sites", 80)["observers"]
    assert (round(fewer[50]["epsilon"], 2), round(fewer[79]["epsilon"], 1)) == (1.47, 10.5)
    code, out, _ = cli("account", *asked)
    assert code == 0
    assert "colluding sites, with the message server" in out


def test_without_sites_there_is_no_such_table(answer):
    assert answer("account", "--epsilon", 1, "--steps", 11)["observers"] == []


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["--colluding", 3], "Expected --sites for masked sums, got colluding=3"),
        (["--sites", 4, "--colluding", 4], "colluding < least_sites=4"),
        (["--sites", 6, "--colluding", 2, "--least-sites", 4], "2 least_sites > n + colluding = 8"),
        (["--sites", 0], "1 <= sites <= 1000000000, got sites=0"),
        (["--sites", 10**23], "1 <= sites <= 1000000000"),
        (["--sites", 3, "--rows", 10, "--batch-size", 2], "sums over all rows with sites=3"),
    ],
)
def test_what_no_sum_allows_is_one_line(cli, asked, told):
    code, _, err = cli("account", "--epsilon", 1, "--steps", 11, *asked)
    assert code == 2
    assert told in " ".join(err.split())
