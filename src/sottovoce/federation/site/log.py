"""The log of a running site: each event is a record of the logger `sottovoce.site`, and one line of JSON in a file."""

import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import final

from sottovoce.federation.site.events import SiteEvent
from sottovoce.federation.site.watchers import Reminders, Watcher, say
from sottovoce.settings import plain

LOG = logging.getLogger("sottovoce.site")


@final
class LogWatcher(Watcher):
    """Writes events to the logger `sottovoce.site`, each with its name and its fields."""

    def __init__(self) -> None:
        self._reminders = Reminders()

    def tell(self, event: SiteEvent) -> None:
        if self._reminders.due(event):
            LOG.log(event.level, event.name, extra={"fields": event.fields()})


@final
class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON: time, level, logger, event, and the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Strict JSON in ASCII, so that text from outside cannot end the line or colour the terminal."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": time, "level": record.levelname, "logger": record.name, "event": record.getMessage(),
        }  # fmt: skip
        fields = record.__dict__.get("fields", {})
        return json.dumps(line | plain(fields) | line, allow_nan=False)


@final
class LogFile(logging.FileHandler):
    """A handler that appends such lines to a file. If it cannot write, as on a full disk, the run goes on."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="ascii")
        self.setFormatter(JsonLines())
        self._complained = False

    def handleError(self, record: logging.LogRecord) -> None:
        """Print one line, once, that the log cannot be written. Python would print a traceback for every record."""
        del record
        self._complain(sys.exc_info()[1])

    def close(self) -> None:
        """Close the file; what is still buffered may not fit on the disk either."""
        try:
            super().close()
        except OSError as error:
            self._complain(error)

    def _complain(self, error: BaseException | None) -> None:
        """Print the first error; the run goes on without its log."""
        if not self._complained:
            self._complained = True
            reason = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
            say(f"cannot write the log {self.baseFilename}: {reason}; going on without it")
