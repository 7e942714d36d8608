"""How messages travel: their form, the mailboxes of a server that nobody trusts, and the connection to it."""
