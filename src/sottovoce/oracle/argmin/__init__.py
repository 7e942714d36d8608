"""Exact minimisation of a node's objective, plain and compiled. For the rivals and the yardstick only: IPADMM needs
none of it.
"""
