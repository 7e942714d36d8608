"""Figures, tables and one web page, made of the results of experiments.

A report reads what studies measured and draws it. It computes no score and runs nothing, and its pages fetch
nothing from anywhere.
"""
