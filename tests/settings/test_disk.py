"""Files on the disk: whole or not at all, synced before and after they take their name, with their own mode."""

import os
import stat

import pytest

from sottovoce.errors import InputError
from sottovoce.settings.disk import replacing, writable, write_new, write_whole


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def calls(monkeypatch):
    """What is synced and renamed, in this order."""
    seen, fsync, rename = [], os.fsync, os.replace

    def synced(handle):
        seen.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def renamed(*names, **more):
        seen.append("name")
        rename(*names, **more)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    return seen


def test_a_replaced_file_is_synced_then_named_then_its_folder_is_synced(tmp_path, calls):
    path = tmp_path / "a"
    for content in (b"old", b"new"):
        calls.clear()
        write_whole(path, content, 0o600)
        assert (path.read_bytes(), mode_of(path), calls) == (content, 0o600, ["file", "name", "folder"])
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_not_finished_is_never_seen(tmp_path):
    path = tmp_path / "a"
    write_whole(path, b"old")

    def broken():
        with replacing(path, encoding="utf-8") as file:
            file.write("half")
            file.flush()
            assert path.read_bytes() == b"old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_never_replaces_another(tmp_path, calls):
    path = tmp_path / "a"
    write_new(path, b"first", 0o600)
    assert (path.read_bytes(), mode_of(path), calls) == (b"first", 0o600, ["file", "folder"])
    with pytest.raises(FileExistsError):
        write_new(path, b"second")
    assert path.read_bytes() == b"first"


def test_a_new_file_that_could_not_be_written_is_not_there(tmp_path, monkeypatch):
    def full(_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_new(tmp_path / "a", b"content")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_what_is_no_plain_file_is_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for out in (pipe, tmp_path):
        with pytest.raises(InputError, match=r"can be written, got out=.*, which is no plain file"), writable(out):
            write_whole(out, b"")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
