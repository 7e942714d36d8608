"""Real federations: one process per site, over a message server that is trusted with nothing but delivery."""
