"""`sottovoce site watch` and `federation watch`: which logs are read, and whether the page is served or written."""

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, final

import typer

from sottovoce.errors import InputError, expect

if TYPE_CHECKING:
    from sottovoce.cli.watch.page import PageTerms
    from sottovoce.cli.watch.story import SiteStory

LOG, AGREEMENT = "site.log", "federation.toml"

_Federation = Annotated[
    Path | None,
    typer.Option(
        help="The agreement: shows the guarantee, and against whom it holds. Default: federation.toml in the folder."
    ),
]
_Port = Annotated[int, typer.Option(help="Port on this machine; 0 for a free one.")]
_Out = Annotated[Path | None, typer.Option(help="Write the page to this file, as it is now, and serve nothing.")]
_Once = Annotated[bool, typer.Option("--once", help="Print the page, as it is now, and serve nothing.")]


def site_watch(
    log: Annotated[Path, typer.Argument(help=f"The log of `site run --log`, or the folder with {LOG}.")],
    federation: _Federation = None,
    port: _Port = 0,
    out: _Out = None,
    once: _Once = False,
) -> None:
    """Look at a site in a browser of this machine, while it runs or later: one page, from its log.

    Shows rounds, who is awaited, spent and left, transcript digests, and the size of what was opened. Only this machine
    can reach it, and only with the whole address that is printed.
    """
    logs = _logs([log])
    expect(len(logs) == 1, "the log of one site; for several: sottovoce federation watch", logs=list(map(str, logs)))
    _watch(logs, federation or _beside(log), port, out, once)


def federation_watch(
    logs: Annotated[list[Path], typer.Argument(help=f"Logs, folders with {LOG}, or a folder of such folders.")],
    federation: _Federation = None,
    port: _Port = 0,
    out: _Out = None,
    once: _Once = False,
) -> None:
    """Look at several sites side by side, as `site watch` does at one, and whether all have heard the same."""
    given = federation or next((found for path in logs if (found := _beside(path)) is not None), None)
    _watch(_logs(logs), given, port, out, once)


def _watch(logs: Sequence[Path], federation: Path | None, port: int, out: Path | None, once: bool) -> None:
    from sottovoce.cli.demo.processes import ending_gently
    from sottovoce.settings.disk import writable, write_whole

    expect(0 <= port <= 65535, "0 <= port <= 65535", port=port)
    with closing(WatchedSite(logs, None if federation is None else read_terms(federation))) as watched:
        if not once and out is None:
            with ending_gently():
                _serve(watched, port)
            return
        watched.expect_lines()
        page = watched.page(live=False)
        if once:
            print(page)
        if out is not None:
            with writable(out):
                write_whole(out, page.encode())


def _serve(watched: "WatchedSite", port: int) -> None:
    """Serve the page until Ctrl-C; refuses a port that is not free."""
    from sottovoce.cli.watch.serving import LivePage, PageServer, serving

    try:
        server = PageServer(port, lambda: watched.page(live=True), LivePage(watched.parts()))
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"Expected a port that is free, got port={port}: {reason}. Leave --port out.") from None
    try:
        with serving(server, watched.look) as wait_for_the_end:
            print(f"Open {server.url} in a browser of this machine. Ctrl-C ends it.", flush=True)
            wait_for_the_end()
    except KeyboardInterrupt:
        print("No longer served.")


# -- what is watched --------------------------------------------------------------------------------------------------


@final
class WatchedSite:
    """Logs, what was read of them so far, and the page that shows it. Several threads may use it at once."""

    def __init__(self, logs: Sequence[Path], terms: "PageTerms | None") -> None:
        from threading import Lock

        from sottovoce.cli.watch.reading import LogReader
        from sottovoce.cli.watch.story import SiteStory, clean

        self._terms, self._lock = terms, Lock()
        # Until a log says whose it is, a site is called like its folder, or like its log.
        names = [clean(log.parent.name if log.name == LOG else log.stem) for log in logs]
        self._sites = [(LogReader(log), SiteStory(name)) for log, name in zip(logs, names, strict=True)]
        self._read()

    def look(self) -> dict[str, str]:
        """Read what is new in the logs, and return the parts of the page, HTML by id."""
        with self._lock:
            self._read()
        return self.parts()

    def parts(self) -> dict[str, str]:
        """The parts of a live page, HTML by id, without reading on."""
        from sottovoce.cli.watch.page import parts

        with self._lock:
            return parts(self._stories(), self._terms, time.time(), live=True, remarks=self._remarks())

    def page(self, *, live: bool) -> str:
        """The whole page as HTML; a live one takes in changes."""
        from sottovoce.cli.watch.page import page

        with self._lock:
            return page(self._stories(), self._terms, time.time(), live=live, remarks=self._remarks())

    def close(self) -> None:
        """Close the logs."""
        with self._lock:
            for reader, _ in self._sites:
                reader.close()

    def expect_lines(self) -> None:
        """Refuse logs in which no site has said anything: there is nothing to write down."""
        empty = [str(reader.path) for reader, story in self._sites if story.last is None]
        expect(not empty, "logs with lines of a site, from: sottovoce site run --log", without=empty[:5])

    def _stories(self) -> "list[SiteStory]":
        return [story for _, story in self._sites]

    def _read(self) -> None:
        for reader, story in self._sites:
            for event in reader.events():
                story.take(event)

    def _remarks(self) -> list[str]:
        """Sentences on logs that were not read as a whole."""
        remarks = []
        for reader, story in self._sites:
            if reader.skipped:
                remarks.append(
                    f"The log of {story.name} is long: its first {reader.skipped / 2**20:,.0f} MiB were left out."
                )
            if reader.left_out:
                remarks.append(
                    f"Lines in the log of {story.name} that no site has written, and that were left out: "
                    f"{reader.left_out:,}."
                )
        return remarks


def read_terms(file: Path) -> "PageTerms":
    """The guarantee of an agreement file, with what it assumes."""
    from sottovoce.cli.watch.page import PageTerms
    from sottovoce.federation.agreement import toml_file
    from sottovoce.files.models.from_site import statement_of
    from sottovoce.privacy.words import guarantee

    agreement = toml_file.load(file)
    privacy = statement_of(agreement, agreement.names[0])  # the same at all sites: it follows from agreed numbers
    return PageTerms(
        digest=agreement.digest().hex(),
        name=agreement.name,
        way=agreement.algorithm.way.label,
        guarantee=guarantee(privacy),
    )


def _logs(paths: Sequence[Path]) -> list[Path]:
    """The logs at these paths, each once."""
    found: dict[Path, None] = {}
    for path in paths:
        for log in _within(path):
            found[log.resolve()] = None
    return list(found)


def _within(path: Path) -> list[Path]:
    """The logs at a path: a log itself, that of a site's folder, or those of the folders within a folder."""
    if not path.is_dir():
        # A pipe or a device is no log. A file that is not there yet will be made by a site that has not begun.
        known = path.is_file() if path.exists() else path.parent.is_dir()
        expect(known, "a log, or a folder that it will be in", log=str(path))
        return [path]
    if (path / LOG).is_file():
        return [path / LOG]
    inner = sorted(path.glob(f"*/{LOG}"))
    expect(bool(inner), f"a folder with {LOG}, or with folders that have one", folder=str(path))
    return inner


def _beside(path: Path) -> Path | None:
    """The agreement in the folder of a path, or in the one above; None if there is none."""
    folder = path if path.is_dir() else path.parent
    return next((file for file in (folder / AGREEMENT, folder.parent / AGREEMENT) if file.is_file()), None)
