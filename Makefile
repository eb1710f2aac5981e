# Everything sets up what it needs: a machine with Python 3.11 and a package index is enough.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup demo test verify bench docs lint format clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,images]'
	touch $(READY)

demo: $(READY)
	rm -rf demo-run
	$(BIN)/momentree demo --out demo-run

test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

verify: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --verify

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python benchmarks/run.py --quick

docs: $(READY)
	$(BIN)/python docs/build.py

clean:
	rm -rf .venv demo-run build dist
