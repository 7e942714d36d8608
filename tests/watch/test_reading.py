"""A log is read line by line, whatever becomes of its file."""

import os
from contextlib import ExitStack, closing

import pytest

from sottovoce.cli.watch import reading
from sottovoce.cli.watch.reading import LogReader
from watch.logs import began, done, line


@pytest.fixture
def opened():
    """Readers, which let go of their files at the end."""
    with ExitStack() as stack:
        yield lambda path, **options: stack.enter_context(closing(LogReader(path, **options)))


def names(reader):
    return [event.name for event in reader.events()]


def test_a_line_that_is_still_being_written_waits_for_its_end(opened, tmp_path):
    log = tmp_path / "site.log"
    reader = opened(log)
    assert names(reader) == []  # nor is the file there yet
    text = began() + line("published", round=1) + done(1)
    for cut, new in ((30, []), (len(began()) - 1, []), (len(began()), ["began"]), (len(text) - 1, ["published"])):
        log.write_text(text[:cut])
        assert names(reader) == new
    log.write_text(text)
    assert names(reader) == ["round done"]
    assert (names(reader), reader.left_out) == ([], 0)


@pytest.mark.parametrize("size", [1, 7, 100])
def test_the_size_of_the_parts_does_not_matter(opened, tmp_path, monkeypatch, size):
    monkeypatch.setattr(reading, "_CHUNK", size)
    log = tmp_path / "site.log"
    log.write_text(began() + done(1) + done(2))
    assert names(opened(log)) == ["began", "round done", "round done"]


def test_a_log_that_was_moved_away_is_read_to_its_end_and_then_its_successor(opened, tmp_path):
    log = tmp_path / "site.log"
    log.write_text(began())
    reader = opened(log)
    assert names(reader) == ["began"]
    with log.open("a") as old:
        os.replace(log, tmp_path / "site.log.1")
        old.write(done(1))
    assert names(reader) == ["round done"]  # its name is gone, and it is still written to
    log.write_text(done(2) + done(3))
    with (tmp_path / "site.log.1").open("a") as old:
        old.write(line("published"))
    assert names(reader) == ["published", "round done", "round done"]


@pytest.mark.parametrize("again", [1, 40])
def test_a_log_that_was_cut_off_is_read_anew_even_if_it_has_grown_past_the_old_end(opened, tmp_path, again):
    log = tmp_path / "site.log"
    log.write_text(began() + done(1))
    reader = opened(log)
    assert len(names(reader)) == 2
    log.write_text("".join(done(k) for k in range(2, 2 + again)))  # the same file, as copytruncate leaves it
    assert names(reader) == ["round done"] * again


def test_of_a_huge_log_the_end_is_read_from_a_whole_line_on(opened, tmp_path):
    log = tmp_path / "site.log"
    text = "".join(done(k) for k in range(1, 400))
    log.write_text(began() + text)
    reader = opened(log, most=10_000)
    found = [event.fields["round"] for event in reader.events()]
    assert found == list(range(found[0], 400))
    assert 10_000 / len(done(399)) - 2 < len(found) <= 10_000 / len(done(1))
    assert reader.skipped == log.stat().st_size - 10_000
    assert reader.left_out == 0


def test_a_line_without_end_takes_no_memory(opened, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_LINE", 1000)
    monkeypatch.setattr(reading, "_CHUNK", 300)
    log = tmp_path / "site.log"
    log.write_text("x" * 50_000)
    reader = opened(log)
    assert names(reader) == []
    assert len(reader._line) <= 1000
    with log.open("a") as file:
        file.write("x\n" + done(1))
    assert names(reader) == ["round done"]
    assert reader.left_out > 0


@pytest.mark.parametrize(
    "text",
    [
        "no JSON", "[]", "3", "null", '"x"', "{}", "[" * 100_000, '{"logger": "sottovoce.site"}',
        '{"logger": "sottovoce.site", "time": 3, "event": "began"}',
        '{"logger": "sottovoce.site", "time": "2026-01-02T12:00:00", "event": "began"}',
        '{"logger": "sottovoce.site", "time": "2026-01-02T12:00:00+00:00", "event": ["began"]}',
        '{"logger": "sottovoce.site", "time": "0001-01-01T00:00:00+23:00", "event": "began", "size": NaN}',
        '{"logger": "sottovoce.site", "time": "2026-01-02T12:00:00+00:00", "event": "x", "n": ' + "9" * 5000 + "}",
    ],
)  # fmt: skip
def test_a_line_of_nobody_is_left_out_and_counted(opened, tmp_path, text):
    log = tmp_path / "site.log"
    log.write_bytes(b"\xff\xfe\n\n" + text.encode() + b"\n" + done(1).encode())
    reader = opened(log)
    assert names(reader) == ["round done"]
    assert reader.left_out == 2


def test_lines_of_libraries_are_not_shown_and_not_counted(opened, tmp_path):
    log = tmp_path / "site.log"
    log.write_text(line("rows: 1, 2, 3", logger="asyncio") + done(1))
    reader = opened(log)
    assert (names(reader), reader.left_out) == (["round done"], 0)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no pipes with names")
def test_a_pipe_is_not_waited_for(opened, tmp_path):
    os.mkfifo(tmp_path / "site.log")
    assert names(opened(tmp_path / "site.log")) == []


def test_a_log_that_cannot_be_read_for_a_while_is_read_on(opened, tmp_path, monkeypatch):
    log = tmp_path / "site.log"
    log.write_text(began())
    reader = opened(log)
    assert names(reader) == ["began"]

    def broken(*_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(reading.os, "fstat", broken)
        log.write_text(began() + done(1))
        assert names(reader) == []
    assert names(reader) == ["round done"]
