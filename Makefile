# Each target sets up its own environment in .venv: once, quick afterwards.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup demo test test-real attack lint bench clean

setup: $(READY)  ## install floatlens into .venv

demo: $(READY)  ## published claims about attention, checked on the bundled twins; writes floatlens-demo/
	$(BIN)/floatlens demo

test: lint  ## ruff, import-linter, pyright, pytest with doctests
	$(BIN)/pytest -n 2

test-real: $(READY)  ## the tests that run SmolLM2-135M for real (fetches 93 MB on first use; the questions take about two hours of one core)
	$(BIN)/pytest -m real

attack: $(READY)  ## damaged traces and folders, hostile checkpoints, prompts and programs, killed runs, fuzzing: every case (make test tries a sample)
	FLOATLENS_ATTACK=full $(BIN)/pytest -n 2 tests/attack

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright

bench: $(READY)  ## what observing costs: one table from one interleaved run (about half an hour on two cores)
	$(BIN)/python benchmarks/demo_time.py
	$(BIN)/python benchmarks/measure_cost.py
	$(BIN)/python benchmarks/evaluation_speed.py
	$(BIN)/python benchmarks/trace_cost.py
	$(BIN)/python benchmarks/tap_cost.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv
