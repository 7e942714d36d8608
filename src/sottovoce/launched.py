"""Whether a launcher such as mpirun has started this process, and what follows for what it prints."""

import os

# Variables that Open MPI's, MPICH's and Slurm's launchers set for the processes that they start.
_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


def launched() -> bool:
    """Whether one has."""
    return any(name in os.environ for name in _VARIABLES)


def print_plainly() -> None:
    """Keep terminal codes out of what is printed, unless somebody has asked for them: launchers give processes
    terminals to write to, where Numba would colour, and reset at the end, what is meant for a file. It reads this when
    it is imported.
    """
    if launched():
        os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")
