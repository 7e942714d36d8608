from dataclasses import replace

import ours
from problem import pieces


class Contender:
    dtype = "float32"

    def __init__(self, problem, variant, _threads):
        self.device = variant
        self.algorithm, self.sites, self.graph = pieces(nodes=problem.n, local_steps=problem.l)

    def last(self, noise):
        return self._simulate(len(noise), runs=noise.shape[1], noise=lambda k: noise[k - 1]).last

    def seconds(self, runs, rounds):
        options = {"runs": runs, "device": self.device, "dtype": self.dtype}
        return rounds * ours.seconds_per_round(self._with_rounds, self.sites, self.graph, rounds, **options)

    def _with_rounds(self, rounds):
        return replace(self.algorithm, rounds=rounds)

    def _simulate(self, rounds, **options):
        algorithm = self._with_rounds(rounds)
        return ours.simulate(algorithm, self.sites, self.graph, device=self.device, dtype=self.dtype, **options)
