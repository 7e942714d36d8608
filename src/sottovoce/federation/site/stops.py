"""Errors that stop a site before the end of a run. In every case, all its messages are in its ledger and its journal.

Each error has an exit code of its own (`sottovoce.cli.exit_codes`). It tells whoever runs the site whether the run may
be resumed, or people have to talk first.
"""

from sottovoce.errors import PrivacyError, SottovoceError


class LostNeighbourError(SottovoceError):
    """A neighbour was silent for too long, and the agreement says to stop then. The run can be resumed."""


class LeftBehindError(SottovoceError):
    """The others have gone on without this site. It takes no further part in the run."""


class UsedTwiceError(PrivacyError):
    """Another process uses or has used this site's key: two processes, or a state folder restored from a copy."""


class DamagedError(PrivacyError):
    """Ledger or journal are damaged, in use, or do not belong together. Going on could release a round twice."""


class BehindError(PrivacyError):
    """The ledger lacks spending that this site has told others of: it was set back, or there is another one."""


class ForkedError(SottovoceError):
    """A site or the server has told different sites different things. The model of this run should not be used."""


class SpoiledError(SottovoceError):
    """A sum that honest sites cannot have made. Earlier sums stay valid; the run cannot go on from this one."""


class DivergedError(SottovoceError):
    """The norm of the site's own noisy model exceeds the agreed radius, so other sites would refuse it."""


class NotWrittenError(SottovoceError):
    """The run is over, and its results could not be written. They can be recomputed from the journal."""
