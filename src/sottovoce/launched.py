"""Plain output under a launcher such as mpirun."""

import os

# Variables that Open MPI's, MPICH's and Slurm's launchers set for the processes that they start.
_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


def print_plainly() -> None:
    """Turn Numba's coloured messages off if an MPI launcher started this process, unless the user has set them.

    Launchers give processes a terminal to write to, so Numba would colour what is meant for a file. It reads the
    variable when it is imported.
    """
    if any(name in os.environ for name in _VARIABLES):
        os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")
