# Everything runs in .venv, which is made on first use. `make train` and `make test` need only python3 and make.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: train test lint clean

train: .venv/.cli
	$(BIN)/sottovoce train

test: .venv/.dev lint
	$(BIN)/python -m pytest

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.venv/bin/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

.venv/.cli: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e '.[cli]'
	touch $@

.venv/.dev: .venv/.cli
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch $@

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache
