import pytest

from schema.samples import FILE, SCHEMA
from sottovoce.files.schema import Schema


@pytest.fixture
def schema():
    return Schema.loads(SCHEMA)


@pytest.fixture
def written(tmp_path):
    """Write a file, text or bytes, and give its path."""

    def write(content=FILE, name="rows.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write
