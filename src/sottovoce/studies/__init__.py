"""Studies on public data: cells that are run once and kept, panels of them, and claims that are tested by one rule.

    config, choices, build               one training run: its settings, and what they describe
    run, scores, interruption, folder    the run itself, how good its models are, and the folder that it leaves
    cells, measured, store, fingerprint  one measured cell of a study, and when a stored one may be used again
    panels, suite, tuning, compare       which cells are shown together
    statistics, verdict, claims          what they say
    reproduce                            all of it, in one go

Tuning here looks at scores without paying for it. So it is for public rows, and says so on every figure.
"""
