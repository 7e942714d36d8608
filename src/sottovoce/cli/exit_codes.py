"""Exit codes, one line of help each, and which error ends with which."""

from sottovoce.errors import BudgetError, SottovoceError

BAD_INPUT, BUDGET, LOST, TWICE, DAMAGED, UNREACHABLE, LEFT_BEHIND, INTERRUPTED = 2, 3, 4, 5, 6, 7, 8, 130

EXIT_CODES: dict[int, str] = {
    0: "done: the model and the privacy statement are written",
    BAD_INPUT: "bad input: an option, a file, a key or the data does not fit; nothing was released",
    BUDGET: "the run does not fit into what is left of the rows' privacy budget; nothing was released",
    LOST: "a neighbour was lost, and the agreement says to stop; run the same command again when it is back",
    TWICE: "this site's identity is used twice; find the other process, or the old copy of the state folder",
    DAMAGED: "ledger or journal are damaged or do not belong together; release nothing, restore them",
    UNREACHABLE: "the message server cannot be reached, or refuses us; run the same command again when it is back",
    LEFT_BEHIND: "the others went on without this site; it has no further part in this run",
    INTERRUPTED: "interrupted; run the same command again to go on",
}


def code_of(error: SottovoceError) -> int:
    """The exit code of an error that a command ends with."""
    from sottovoce.engines.network import stops, transport

    codes: tuple[tuple[type[SottovoceError], int], ...] = (
        (BudgetError, BUDGET),
        (stops.LostNeighbourError, LOST),
        (stops.UsedTwiceError, TWICE),
        (stops.DamagedError, DAMAGED),
        (transport.TransportError, UNREACHABLE),
        (stops.LeftBehindError, LEFT_BEHIND),
    )
    return next((code for kind, code in codes if isinstance(error, kind)), BAD_INPUT)


def epilog() -> str:
    """For the end of a help text; blank lines keep the lines apart."""
    lines = [f"{code}  {text}." for code, text in EXIT_CODES.items()]
    return "\n\n".join(["Exit codes:", *lines])
