# Every target that needs the environment sets it up in .venv first; that is slow once and quick afterwards.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
HARNESSES := .venv-harnesses
HARNESSES_READY := $(HARNESSES)/.ready
DOCS_READY := .venv/.docs-ready
DOCS ?= mkdocs

.PHONY: setup demo test test-real test-release test-extras test-harnesses test-notebook test-ray attack lint bench docs web web-types web-check clean

setup: $(READY)  ## install floatlens into .venv

demo: $(READY)  ## check the claims of five papers on the bundled twins; writes floatlens-demo/
	$(BIN)/floatlens demo

test: lint  ## run ruff, import-linter, pyright and pytest with doctests: everything that must pass
	$(BIN)/pytest -n 2 --durations=20

test-real: $(READY)  ## run the tests that need SmolLM2-135M or AntiBERTy itself (downloads 190 MB on first use; about two hours on one core)
	$(BIN)/pytest -m real

test-release: $(READY)  ## build wheel and sdist, install the wheel into an empty environment, run its demo and open the page
	.ci/release

test-extras:  ## resolve every extra alone without installing it, and run a demo with the lowest versions that pyproject.toml allows (minutes)
	.ci/extras

test-harnesses: $(HARNESSES_READY)  ## test what lm-eval and inspect_ai call, with the real packages, in an environment of their own
	$(HARNESSES)/bin/pytest tests/harnesses src/floatlens/harnesses

test-notebook: $(READY)  ## install JupyterLab into .venv, and test the widget in it (make test does so where JupyterLab is installed)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[notebook]'
	$(BIN)/pytest tests/browser/test_jupyterlab.py

test-ray: $(READY)  ## run the tests that start a Ray cluster of several nodes on this machine
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,ray]'
	$(BIN)/pytest -m ray

attack: $(READY)  ## try every damaged file, hostile input, killed run and fuzzed command line (make test tries a sample)
	FLOATLENS_ATTACK=full $(BIN)/pytest -n 2 --dist worksteal -vv -rf --durations=40 tests/attack

lint: $(READY)  ## check style, types and the order of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright

bench: $(READY)  ## measure what tracing, measuring and asking cost; prints the tables of docs/benchmarks (half an hour on two cores)
	$(BIN)/python benchmarks/demo_time.py
	$(BIN)/python benchmarks/measure_cost.py
	$(BIN)/python benchmarks/evaluation_speed.py
	$(BIN)/python benchmarks/study_overhead.py
	$(BIN)/python benchmarks/host_cost.py
	$(BIN)/python benchmarks/trace_cost.py
	$(BIN)/python benchmarks/tap_cost.py
	$(BIN)/python benchmarks/precision.py
	$(BIN)/python benchmarks/page_speed.py

docs: $(DOCS_READY)  ## build the documentation into build/site; a warning is an error (DOCS=zensical builds it with the successor of Material for MkDocs)
	$(BIN)/python docs/gather_pages.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/$(DOCS) build --strict --config-file mkdocs.yml

web: web-types  ## build the page from web/ into the package (needs Node 20; users never do)
	cd web && npm ci --no-audit --no-fund && npm run build

web-types: $(READY)  ## write the page format as TypeScript
	$(BIN)/python -m floatlens.report.page.typescript > web/src/data/schema.ts

web-check: $(READY)  ## check the types of web/, build it from its lock file, and compare the result with the bundle in the package
	$(BIN)/python -m floatlens.report.page.typescript | diff - web/src/data/schema.ts
	cd web && npm ci --no-audit --no-fund && npm run check
	rm -rf build/app && cd web && npm run build -- ../build/app
	diff -r build/app src/floatlens/report/app

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

$(DOCS_READY): $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

$(HARNESSES_READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(HARNESSES)
	$(HARNESSES)/bin/pip install --quiet --constraint constraints.txt --editable '.[dev,lm-eval,inspect]'
	touch $@

clean:  ## remove .venv and .venv-harnesses
	rm -rf .venv $(HARNESSES)
