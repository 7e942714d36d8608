"""Rows bound to an objective: the only code that touches a row, in plain NumPy, compiled for the CPU, and on a GPU."""
