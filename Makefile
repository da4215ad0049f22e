# Everything starts from a fresh machine with Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo install test lint imports docs docs-pages docs-serve bench bench-ways bench-gpu bench-dask bench-peers claims paper efficiency asked neural clean

# Installs no more than the demo needs, unless more is there.
demo:
	test -e $(BIN)/tightset || $(MAKE) --no-print-directory $(VENV)/demo
	PYTHONPATH=src $(BIN)/python -m tightset demo

# The command line with tables and reports.
install: $(VENV)/command-line

# Two workers with a thread each: threads of two workers would wait for each other.
test: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

lint: $(VENV)/installed imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Who may import whom; pre-commit runs it too.
imports: $(VENV)/installed
	$(BIN)/lint-imports

# The site, into site/; a link that leads nowhere is an error. Nothing is fetched from elsewhere.
docs: $(VENV)/installed
	$(BIN)/mkdocs build --strict

# The same in a browser, built anew at every change.
docs-serve: $(VENV)/installed
	$(BIN)/mkdocs serve --strict

# Pages and pictures that programs write: the command line's reference, the examples with their output, figures.
docs-pages: $(VENV)/installed
	$(BIN)/python tools/cli_reference.py
	$(BIN)/python tools/examples_page.py
	$(BIN)/python tools/figures.py
	$(BIN)/python tools/architecture.py

# Speed as ratios, side by side (under 10 minutes on 2 cores), and docs/performance.md from them.
bench: $(VENV)/installed
	PYTHONPATH=. $(BIN)/python benchmarks/run.py

# Coverage for every pair of types of rows, and every gain that is told of counted again on rows that nobody has seen
# (about 40 minutes on 2 cores; the paper's data too where TIGHTSET_DATA points to them; TABLES='--table FILE.csv:TARGET'
# adds tables of yours).
claims: $(VENV)/installed
	PYTHONPATH=. $(BIN)/python claims/coverage.py
	PYTHONPATH=. $(BIN)/python claims/gains.py $(TABLES)

# Ways to run a training step; torch, numexpr and numba are compared where they are installed.
bench-ways: $(VENV)/installed
	PYTHONPATH=. $(BIN)/python benchmarks/ways.py

# The same descents on a GPU, which must be there, with torch; and networks.
bench-gpu: $(VENV)/installed
	PYTHONPATH=. $(BIN)/python benchmarks/gpu.py
	PYTHONPATH=. $(BIN)/python benchmarks/page.py
	PYTHONPATH=. $(BIN)/python benchmarks/neural_speed.py cuda
	$(BIN)/python -m studies neural report --results results/neural --out docs/neural.md

# Fifty million rows, generated block by block, on two Dask workers (about 15 minutes on 2 cores).
bench-dask: $(VENV)/installed
	PYTHONPATH=. $(BIN)/python benchmarks/dask_scale.py
	PYTHONPATH=. $(BIN)/python benchmarks/page.py

# The paper's tables, measured anew (about 40 minutes on 2 cores; raw data: python -m studies data fetch) and written up.
paper: $(VENV)/installed
	$(BIN)/python -m studies paper run --out results/paper
	$(BIN)/python -m studies paper report --results results/paper --elsewhere results/paper-h200 --out docs/paper.md

# Set sizes against tuned logistic regression (about an hour on 2 cores; raw data: python -m studies data fetch).
efficiency: $(VENV)/installed
	$(BIN)/python -m studies efficiency run --out results/efficiency
	$(BIN)/python -m studies efficiency report --results results/efficiency --out docs/efficiency.md

# Training by label, by group, for costs, intervals and single labels (many hours on 2 cores; it goes on where it was broken off).
asked: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group ordered
	$(BIN)/python -m studies asked run --out results/asked
	$(BIN)/python -m studies asked report --results results/asked --elsewhere results/asked-h200 --out docs/asked.md

# Networks trained for small sets (some hours on 2 cores; it goes on where it was broken off; needs torch, and fashion_mnist
# among the raw data), each split by itself: python -m studies neural run --split 10 --out results/neural/10.
neural: $(VENV)/installed
	$(BIN)/python -m studies neural run --out results/neural
	$(BIN)/python -m studies neural report --results results/neural --out docs/neural.md

# MAPIE, crepes and puncc on the same classifiers (one to two hours on 2 cores; raw data: python -m studies data fetch).
bench-peers: $(VENV)/installed
	$(BIN)/python -m studies peers run --out results/peers
	$(BIN)/python -m studies peers report --results results/peers --out docs/peers.md

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tightset needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check rich typer \
		$$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"])')
	touch $@

$(VENV)/command-line: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cli]'
	touch $@

$(VENV)/installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt \
		--editable '.[cli,dask,io,lightgbm,onnx,plots]' --group dev
	touch $@

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
