"""Exit codes, one line of help each, and which error ends with which."""

from sottovoce.errors import BudgetError, SottovoceError

BAD_INPUT, BUDGET, LOST, TWICE, DAMAGED, UNREACHABLE, LEFT_BEHIND = 2, 3, 4, 5, 6, 7, 8
NOT_WRITTEN, FORKED, DIVERGED, SPOILED, BEHIND, INTERRUPTED = 9, 10, 11, 12, 13, 130

EXIT_CODES: dict[int, str] = {
    0: "done: the model and the privacy statement are written",
    BAD_INPUT: "bad input: an option, a file, a key or the data does not fit",
    BUDGET: "the run does not fit into what is left of the rows' privacy budget",
    LOST: "a neighbour was lost, and the agreement says to stop, or those who are left are no longer connected; "
    "run the same command again when it is back",
    TWICE: "this site's identity is used twice; find the other process, or the old copy of the state folder",
    DAMAGED: "ledger or journal are damaged or do not belong together; release nothing, restore them",
    UNREACHABLE: "the message server cannot be reached, or refuses this site; run the same command again when "
    "it is back",
    LEFT_BEHIND: "the others went on without this site; it has no further part in this run",
    NOT_WRITTEN: "the run is over, but its model or statement could not be written; make room, or give another --out, "
    "and run the same command again",
    FORKED: "different sites were sent different messages; do not use the model, and ask the sites that are named",
    DIVERGED: "this site's models have left the agreed radius; agree on shorter steps, or on a larger radius",
    SPOILED: "a masked sum is impossible if all sites are honest; the run is over, ask the other sites",
    BEHIND: "the ledger lacks runs that others have seen: it is an old copy, or one of two for these rows; restore the "
    "newest one, or run: sottovoce ledger catch-up",
    INTERRUPTED: "interrupted; run the same command again to go on",
}


def code_of(error: SottovoceError) -> int:
    """The exit code of an error that a command ends with."""
    from sottovoce.federation.site import stops
    from sottovoce.federation.transport import transport

    codes: tuple[tuple[type[SottovoceError], int], ...] = (
        (BudgetError, BUDGET),
        (stops.LostNeighbourError, LOST),
        (stops.UsedTwiceError, TWICE),
        (stops.DamagedError, DAMAGED),
        (transport.TransportError, UNREACHABLE),
        (stops.LeftBehindError, LEFT_BEHIND),
        (stops.NotWrittenError, NOT_WRITTEN),
        (stops.ForkedError, FORKED),
        (stops.DivergedError, DIVERGED),
        (stops.SpoiledError, SPOILED),
        (stops.BehindError, BEHIND),
    )
    return next((code for kind, code in codes if isinstance(error, kind)), BAD_INPUT)


def epilog() -> str:
    """The exit codes as the end of a help text; blank lines keep the lines apart."""
    lines = [f"{code}  {text}." for code, text in EXIT_CODES.items()]
    return "\n\n".join(
        ["Exit codes; the error says what was released until then, and the model of that is written:", *lines]
    )
