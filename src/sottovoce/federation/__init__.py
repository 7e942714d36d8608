"""Real sites: a process next to its rows, a message server that nobody has to trust, and nothing else.

    before a run   identity, exchange, certificates, agreement, signing, commitment; server for the operator
    one site       seat (what it has), runner (what it does), journal (what it remembers); masks and summing for sums
    what is said   letters in wire, sent and opened by mail; notices about the run itself; witness compares testimonies
    the way there  transport (the contract), jetstream and memory (two of them), link, connection and frames below
    trouble        absent (silent neighbours), stops (why a site ends early), events (who is told)

A layer knows those below it, not those above. Nothing here sets noise or a price: those come from the algorithm and
from `sottovoce.privacy`.
"""
