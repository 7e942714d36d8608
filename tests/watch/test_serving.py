"""The page is served to the reader's own browser on this machine, and to nobody else."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager, suppress
from urllib.request import urlopen

import pytest

from helpers.programs import started
from sottovoce.cli.watch import serving
from sottovoce.cli.watch.command import WatchedSite
from sottovoce.cli.watch.serving import LivePage, PageServer
from watch.logs import began, done


@pytest.fixture
def log(tmp_path):
    file = tmp_path / "site.log"
    file.write_text(began() + done(1))
    return file


@contextmanager
def served(log, port=0):
    with closing(WatchedSite([log], None)) as watched:
        server = PageServer(port, lambda: watched.page(live=True), LivePage(watched.parts()))
        with serving.serving(server, watched.look):
            yield server


@pytest.fixture
def server(log):
    with served(log) as server:
        yield server


def ask(server, path=None, method="GET", host=None, headers=(), body=None):
    """An answer: its status, headers and text."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)) as connection:
        connection.putrequest(method, server.path if path is None else path, skip_host=True)
        for value in (f"127.0.0.1:{server.server_port}",) if host is None else host:
            connection.putheader("Host", value.replace("PORT", str(server.server_port)))
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()


def test_the_page_may_load_and_run_nothing_but_itself(server):
    status, headers, text = ask(server)
    assert status == 200
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert all(re.fullmatch(r"'sha256-[^']+'", policy[kind]) for kind in ("script-src", "style-src"))
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "Python" not in headers["Server"]
    assert not re.search(r"""(src|href|action)\s*=|url\(|@import|style=|\son\w+=""", text.split("<script>")[0])
    assert "https://" not in text
    assert "http://" not in text


def test_only_this_machine_is_listened_to(server):
    assert server.server_address[0] == "127.0.0.1"
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} - {"127.0.0.1"}
    for address in others:
        with socket.socket() as caller:
            caller.settimeout(2)
            assert caller.connect_ex((address, server.server_port)) != 0


@pytest.mark.parametrize(
    "host",
    [
        (), ("evil.example",), ("evil.example:PORT",), ("127.0.0.1",), ("127.0.0.1:1",), ("127.0.0.1.x.example:PORT",),
        ("127.0.0.1:PORT", "evil.example:PORT"), ("127.0.0.1:PORT", "127.0.0.1:PORT"), ("[::1]:PORT",),
        ("0.0.0.0:PORT",), ("127.0.0.1:PORT.",), ("evil.example@127.0.0.1:PORT",), (" ",),
    ],
)  # fmt: skip
def test_a_name_that_was_made_to_point_here_is_refused(server, host):
    for path in (server.path, f"{server.path}events"):
        status, _, text = ask(server, path, host=host)
        assert status == 421
        assert "berlin" not in text


def test_both_names_of_this_machine_are_answered(server):
    for host in ("127.0.0.1:PORT", "localhost:PORT", "LOCALHOST:PORT"):
        assert ask(server, host=(host,))[0] == 200


@pytest.mark.parametrize("method", ["POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "get"])
def test_nothing_but_get_is_answered(server, method):
    status, headers, text = ask(server, method=method, body=b"x" * 10)
    assert (status, headers["Allow"]) == (405, "GET")
    assert "berlin" not in text


@pytest.mark.parametrize("site", ["cross-site", "same-site", "CROSS-SITE", ""])
def test_another_page_of_the_browser_gets_nothing(server, site):
    assert ask(server, headers=[("Sec-Fetch-Site", site)])[0] == 403
    assert ask(server, headers=[("Sec-Fetch-Site", "none"), ("Sec-Fetch-Site", site)])[0] == 403
    assert ask(server, headers=[("Sec-Fetch-Site", "same-origin")])[0] == 200


def test_whoever_does_not_know_the_address_gets_nothing(server):
    secret = server.path.strip("/")
    assert len(secret) >= 20
    for path in (
        "/", "/events", "/favicon.ico", f"/{secret[:-1]}/", f"/{secret}", f"/{secret}/../{secret}/x", "/%2e%2e/passwd",
        f"/{secret.swapcase()}/", f"/{secret}/events/", "//", "http://127.0.0.1/", "*",
    ):  # fmt: skip
        status, _, text = ask(server, path)
        assert status == 404, path
        assert secret not in text
        assert "berlin" not in text


def test_two_servers_have_two_secrets(log):
    with served(log) as one, served(log) as other:
        assert one.path != other.path
        assert ask(one, other.path)[0] == 404


def test_rubbish_and_silence_stop_nobody(server, capsys):
    with socket.create_connection(("127.0.0.1", server.server_port)):  # says nothing, and stays
        for rubbish in (
            b"\0" * 3000 + b"\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET " + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
        ):
            with socket.create_connection(("127.0.0.1", server.server_port)) as caller:
                caller.settimeout(5)
                try:
                    caller.sendall(rubbish)
                    while caller.recv(4096):
                        pass
                except ConnectionError:
                    pass
        assert ask(server)[0] == 200
    assert capsys.readouterr().err == ""


# -- live -------------------------------------------------------------------------------------------------------------


@contextmanager
def listening(server):
    """Reads the events of a page one by one."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=15) as caller:
        request = f"GET {server.path}events HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n"
        caller.sendall(request.encode())
        with caller.makefile("rb") as lines:
            assert b"200" in lines.readline()
            head = b"".join(iter(lines.readline, b"\r\n"))
            assert b"text/event-stream" in head

            def following():
                for text in lines:
                    if text.startswith(b"data: "):
                        return json.loads(text[6:])
                return None

            yield following


def test_what_is_logged_reaches_the_page_and_nothing_else_is_sent(server, log):
    with listening(server) as following:
        first = following()
        assert set(first) >= {"status", "waits", "heard", "sums", "guarantee", "news", "spoken"}
        assert "<strong>1</strong> of 8" in first["status"]
        with log.open("a") as file:
            file.write(done(2))
        second = following()
        assert "<strong>2</strong> of 8" in second["status"]
        assert "guarantee" not in second  # it has not changed


def test_only_so_many_pages_are_open_at_a_time_and_one_that_is_closed_makes_room(server, monkeypatch):
    monkeypatch.setattr(serving, "MOST_LISTENERS", 2)
    monkeypatch.setattr(serving, "_BEAT", 0.05)
    events = f"{server.path}events"
    with listening(server) as one, listening(server) as two:
        assert one()
        assert two()
        assert ask(server, events)[0] == 503
        assert ask(server)[0] == 200
    until = time.monotonic() + 10
    while server.board._listeners and time.monotonic() < until:
        time.sleep(0.05)
    with listening(server) as three:
        assert three()


def test_the_end_is_clean(log):
    """Interrupted while pages are open: they end, the port is free, no thread is left."""
    before = set(threading.enumerate())

    with suppress(KeyboardInterrupt), served(log) as server, listening(server) as following:
        assert following()
        raise KeyboardInterrupt
    with socket.socket() as caller:
        assert caller.connect_ex(("127.0.0.1", server.server_port)) != 0
    until = time.monotonic() + 10
    while (left := set(threading.enumerate()) - before) and time.monotonic() < until:
        time.sleep(0.05)
    assert not left


def test_a_page_that_can_no_longer_be_drawn_ends_it_instead_of_standing_still(log):
    def look():
        raise RuntimeError("a bug")

    with closing(WatchedSite([log], None)) as watched:
        server = PageServer(0, lambda: watched.page(live=True), LivePage(watched.parts()))
        with pytest.raises(RuntimeError, match="a bug"), serving.serving(server, look) as wait:
            wait()


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_program_that_is_asked_to_end_ends_well(log, number):
    command = [sys.executable, "-m", "sottovoce.cli", "site", "watch", str(log)]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        url = re.search(r"http://127\.0\.0\.1:\d+/\S+/", program.stdout.readline())[0]
        with urlopen(url, timeout=10) as page:
            assert "<h1>Site berlin</h1>" in page.read().decode()
        program.send_signal(number)
        printed, told = program.communicate(timeout=30)
    assert (program.returncode, printed, told) == (0, "No longer served.\n", "")
