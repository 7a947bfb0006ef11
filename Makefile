# Every target that needs the environment sets it up in .venv first; that is slow once and quick afterwards.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup demo test test-real attack lint bench clean

setup: $(READY)  ## install floatlens into .venv

demo: $(READY)  ## check the claims of five papers on the bundled twins; writes floatlens-demo/
	$(BIN)/floatlens demo

test: lint  ## run ruff, import-linter, pyright and pytest with doctests: everything that must pass
	$(BIN)/pytest -n 2

test-real: $(READY)  ## run the tests that need SmolLM2-135M itself (downloads 93 MB on first use; about two hours on one core)
	$(BIN)/pytest -m real

attack: $(READY)  ## try every damaged file, hostile input, killed run and fuzzed command line (make test tries a sample)
	FLOATLENS_ATTACK=full $(BIN)/pytest -n 2 tests/attack

lint: $(READY)  ## check style, types and the order of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright

bench: $(READY)  ## measure what tracing, measuring and asking cost; prints the tables of docs/benchmarks (half an hour on two cores)
	$(BIN)/python benchmarks/demo_time.py
	$(BIN)/python benchmarks/measure_cost.py
	$(BIN)/python benchmarks/evaluation_speed.py
	$(BIN)/python benchmarks/host_cost.py
	$(BIN)/python benchmarks/trace_cost.py
	$(BIN)/python benchmarks/tap_cost.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:  ## remove .venv
	rm -rf .venv
