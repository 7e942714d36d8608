"""Engines: what runs an algorithm on a network."""
