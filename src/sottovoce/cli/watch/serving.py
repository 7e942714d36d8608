"""The server of the page, for this machine only: loopback only, GET only, behind a random path.

Whoever has a shell on the machine can reach a loopback port, and so can a web page in the reader's browser, which may
also have its own name point here (DNS rebinding). So the address holds a secret, requests that name another host or
come from another page are refused, and the browser is told to load nothing from anywhere. Nothing that is sent here is
looked at but the first line and the headers, and nothing here writes.
"""

import hmac
import json
import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, final

from sottovoce.cli.watch.page import security_policy

HOST = "127.0.0.1"
MOST_LISTENERS = 16  # pages that are open at a time
PAUSE = 0.5  # seconds between two looks at the logs
_BEAT = 10.0  # seconds after which a listener hears something, so that one who is gone is noticed
_STALLED = 10.0  # seconds that a reader may take for a request, or for what is sent
Parts = Mapping[str, str]


@final
class LivePage:
    """The parts of the page as they are now, for threads that wait for changes."""

    def __init__(self, parts: Parts) -> None:
        self._changed = threading.Condition()
        self._parts = {name: (1, html) for name, html in parts.items()}
        self._version, self._listeners = 1, 0
        self.closed = False

    def put(self, parts: Parts) -> None:
        """Replace the parts that have changed, and wake the threads that wait."""
        with self._changed:
            new = {name: html for name, html in parts.items() if self._parts[name][1] != html}
            if new:
                self._version += 1
                self._parts |= {name: (self._version, html) for name, html in new.items()}
                self._changed.notify_all()

    def after(self, version: int, seconds: float) -> tuple[int, dict[str, str]]:
        """The current version, and the parts that have changed since `version`; waits so many seconds for one."""
        with self._changed:
            self._changed.wait_for(lambda: self._version > version or self.closed, seconds)
            return self._version, {name: html for name, (since, html) in self._parts.items() if since > version}

    def close(self) -> None:
        """End all waiting."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    @contextmanager
    def listening(self) -> Iterator[bool]:
        """Count a listener for as long as this lasts; yields False if there is no room for it."""
        with self._changed:
            fits = self._listeners < MOST_LISTENERS
            self._listeners += fits
        try:
            yield fits
        finally:
            with self._changed:
                self._listeners -= fits


@final
class PageServer(ThreadingHTTPServer):
    """Serves one page and its changes.

    Args:
        port: to listen on; 0 for a free one.
        draw: the whole page.
        board: its changing parts.
    """

    daemon_threads = True  # a listener that hangs does not keep the program from ending
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, port: int, draw: Callable[[], str], board: LivePage) -> None:
        super().__init__((HOST, port), _Answer)
        self.draw, self.board, self.policy = draw, board, security_policy()
        self.path = f"/{secrets.token_urlsafe(16)}/"
        self.hosts = frozenset(f"{name}:{self.server_port}" for name in (HOST, "localhost"))

    @property
    def url(self) -> str:
        """Where the page is. It is a secret, like a password."""
        return f"http://{HOST}:{self.server_port}{self.path}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report errors, but not that a reader is gone."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


@final
class _Answer(BaseHTTPRequestHandler):
    """Handler of one request: sends the page or its changes, or refuses."""

    server: PageServer
    timeout = _STALLED
    protocol_version = "HTTP/1.1"

    def version_string(self) -> str:
        """Name of the server, without the version of Python."""
        return "sottovoce"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing: the path is a secret."""

    def parse_request(self) -> bool:
        """Refuse, before anything else, requests that neither the page itself nor the address bar has made."""
        self.close_connection = True
        if not super().parse_request():
            return False
        refused = self._refusal()
        if refused is not None:
            self._answer(*refused)
        return refused is None

    def _refusal(self) -> tuple[HTTPStatus, str] | None:
        hosts, sites = (self.headers.get_all(name) or [] for name in ("Host", "Sec-Fetch-Site"))
        if self.command != "GET":
            return HTTPStatus.METHOD_NOT_ALLOWED, "Expected GET."
        if len(hosts) != 1 or hosts[0].lower() not in self.server.hosts:
            return HTTPStatus.MISDIRECTED_REQUEST, "Expected the address that was printed."
        if not set(sites) <= {"none", "same-origin"}:
            return HTTPStatus.FORBIDDEN, "Expected to be asked by the page itself."
        return None

    def do_GET(self) -> None:
        """Send the page or its changes; any other path is not found."""
        path = self.path.encode("utf-8", "replace")
        if hmac.compare_digest(path, self.server.path.encode()):
            self._answer(HTTPStatus.OK, self.server.draw(), "text/html; charset=utf-8")
        elif hmac.compare_digest(path, f"{self.server.path}events".encode()):
            self._tell_changes()
        else:
            self._answer(HTTPStatus.NOT_FOUND, "Expected the address that was printed, whole.")

    def _answer(self, status: HTTPStatus, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        body = text.encode()
        self._head(status, kind)
        self.send_header("Content-Length", str(len(body)))
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")
        self.end_headers()
        self.wfile.write(body)

    def _head(self, status: HTTPStatus, kind: str) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind, "Content-Security-Policy": self.server.policy, "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
            "Connection": "close",
        }.items():  # fmt: skip
            self.send_header(name, value)

    def _tell_changes(self) -> None:
        """Server-sent events: first all parts, then those that change, for as long as the reader listens."""
        board = self.server.board
        with board.listening() as fits:
            if not fits:
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"Expected at most {MOST_LISTENERS} open pages.")
                return
            self._head(HTTPStatus.OK, "text/event-stream; charset=utf-8")
            self.end_headers()
            version = 0
            while not board.closed:
                version, parts = board.after(version, _BEAT)
                # JSON has no ends of lines within it, so it is one line of an event.
                event = f"event: parts\ndata: {json.dumps(parts)}\n\n" if parts else ": still here\n\n"
                self.wfile.write(event.encode())


@contextmanager
def serving(server: PageServer, look: Callable[[], Parts]) -> Iterator[Callable[[], None]]:
    """Serve, and look at the logs now and then, until the block is left. Yields what waits for the end: for an
    interruption, or for an error in looking, after which the page would stand still and nobody would know.
    """
    stopped, failed = threading.Event(), list[Exception]()

    def keep_looking() -> None:
        try:
            while not stopped.wait(PAUSE):
                server.board.put(look())
        except Exception as error:
            failed.append(error)
            stopped.set()

    def wait() -> None:
        while not stopped.wait(3600):
            pass
        for error in failed:
            raise error

    threads = [
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True),
        threading.Thread(target=keep_looking, daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield wait
    finally:
        stopped.set()
        server.board.close()
        server.shutdown()
        server.server_close()
        for thread in threads:
            thread.join(timeout=5.0)
