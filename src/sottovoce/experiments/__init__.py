"""One experiment described in a file (`config`), run (`run`), and kept in a folder (`folder`)."""
