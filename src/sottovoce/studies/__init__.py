"""Studies on public data: cells that are run once and kept, panels of them, and claims that are tested by one rule.

    config, source, build, run, folder   one training run, from a file or from options to its folder
    cells, measured, store, fingerprint  one measured cell of a study, and when a stored one may be used again
    panels, suite, tuning, compare       which cells are shown together
    statistics, verdict, claims          what they say
    reproduce                            all of it, in one go

Tuning here looks at scores without paying for it. So it is for public rows, and says so on every figure.
"""
