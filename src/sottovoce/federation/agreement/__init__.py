"""The agreement of a federation: terms, members and their keys, signatures, certificates."""
