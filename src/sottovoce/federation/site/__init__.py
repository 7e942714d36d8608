"""One site of a federation: its rounds, its messages, its files, and what it reports."""
