"""`sottovoce federation demo`: five sites and a server as processes of one machine, and how good their models are."""
