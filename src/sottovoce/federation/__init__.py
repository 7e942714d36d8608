"""Runs between real sites: one process at each site, next to its rows, and a message server that nobody has to trust.

    before a run   identity, exchange, certificates, agreement, signing, commitment; operator (the message server)
    one site       seat (what it has), runner (its rounds), journal (its memory), part (own_noise or masked_sums)
    masked sums    keyring (shared keys), masks, summing, lost (repeating a sum without a site), confirmation (the end)
    messages       wire (bytes), letters (payloads), mail (sends and reads), board (notices), witness (testimonies)
    the way there  transport (the interface), jetstream (its implementation), with link, connection and frames
    trouble        absent (silent neighbours), stops (errors that end a run early)
    what it tells  events, watchers (who hears them), log, status

docs/how-to/masked-federation.md explains the words of masked sums. Noise and prices are not set here: they come from
the algorithm and from `sottovoce.privacy`.
"""
