"""Why a site stops before the end. Whatever the reason, all that it ever said is in its ledger and in its journal.

Each has an exit code of its own (`sottovoce.cli.app`), so that whoever runs a site can tell what may be resumed,
and what needs people to talk first.
"""

from sottovoce.errors import PrivacyError, SottovoceError


class LostNeighbourError(SottovoceError):
    """A neighbour was silent for too long, and what was agreed for that is to stop. The run can be resumed."""


class LeftBehindError(SottovoceError):
    """The others have gone on without this site. It has no further part in the run."""


class UsedTwiceError(PrivacyError):
    """Somebody else speaks, or has spoken, with this site's key: two processes, or a state put back from a copy."""


class DamagedError(PrivacyError):
    """Ledger or journal are damaged, in use, or do not belong together. Going on could release a round twice."""


class BehindError(PrivacyError):
    """The ledger lacks what this site has told others that it spent: it was set back, or there is another one."""


class ForkedError(SottovoceError):
    """Somebody tells different sites different things. What this run has learnt should not be used."""


class SpoiledError(SottovoceError):
    """A sum that honest sites cannot have made. What was learnt before it stands; the run cannot go on from it."""


class DivergedError(SottovoceError):
    """The site's own noisy model has left the agreed radius. Nobody would take it."""


class NotWrittenError(SottovoceError):
    """The run is over, and its results could not be written. They are in the journal."""
