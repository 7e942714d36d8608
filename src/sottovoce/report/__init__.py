"""Figures, tables and one web page, made of the results of experiments."""
