# Everything below sets itself up: the first `make run` or `make test` makes the virtual environment from
# requirements.lock. `make test PYTHON=python3.13` does the same for another Python, in .venv-3.13.
.DEFAULT_GOAL := help
SHELL := /bin/bash

runs = $(shell $(1) -c 'import sys; sys.version_info >= (3, 11) and print("%d.%d" % sys.version_info[:2])' 2>/dev/null)

# python3.11 if it runs (a shim may be there without its Python), else a python3 that is new enough.
DEFAULT_PYTHON := $(if $(call runs,python3.11),python3.11,python3)
PYTHON ?= $(DEFAULT_PYTHON)
VERSION := $(call runs,$(PYTHON))
VENV := $(if $(filter $(VERSION),$(call runs,$(DEFAULT_PYTHON))),.venv,.venv-$(VERSION))
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CODE := $(wildcard src tests bench examples)
UV := uv>=0.13,<0.14

.PHONY: help run demo test soak check format bench lock clean

help: ## say what there is to make
	@echo "make TARGET [PYTHON=python3.13] [ARGS='…']"
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

run: $(READY) ## serve agents, offline at once, and open the page (ARGS='--port 0' and more: quell serve --help)
	@$(BIN)/quell serve $(ARGS)

demo: $(READY) ## kill -9 quell over a tree that tries to escape, and see that nothing is left
	@$(BIN)/python examples/demo.py $(ARGS)

test: $(READY) ## run the tests (ARGS='-k name' goes to pytest)
	$(BIN)/python -m pytest -m "not soak" $(ARGS)

soak: export QUELL_REPEATS ?= 20
soak: $(READY) ## run the long tests: the escape matrix QUELL_REPEATS times (20), starts and stops QUELL_CYCLES times (10000), cancels and storms for longer
	$(BIN)/python -m pytest -m soak $(ARGS)
	QUELL_CANCEL_BUDGET=60 QUELL_STORM=20 $(BIN)/python -m pytest tests/supervise/test_everywhere.py tests/supervise/test_storm.py
	QUELL_CANCEL_BUDGET=15 $(BIN)/python -m pytest tests/kernel/test_everywhere.py tests/toolbox/test_everywhere.py

check: $(READY) ## lint, formatting and types
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy --strict $(CODE)

format: $(READY) ## put the code into its form
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

bench: $(READY) ## measure Quell beside its peers
	$(BIN)/python -m bench $(ARGS)

lock: $(READY) ## choose the newest versions that pyproject.toml allows and write requirements.lock
	$(BIN)/python -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check '$(UV)'
	.venv-lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --extra dev --generate-hashes \
		--no-annotate --no-emit-index-url --custom-compile-command "make lock" -o requirements.lock pyproject.toml

clean: ## remove what make and the tools made
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache build dist
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

# Two stamps, so that a change of pyproject.toml reinstalls only Quell itself.
$(VENV)/.locked: requirements.lock
	@test -n "$(VERSION)" || { echo "make: $(PYTHON) is not a Python 3.11 or newer; name one with PYTHON=…" >&2; exit 1; }
	@echo "setting up $(VENV) for Python $(VERSION)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

$(READY): $(VENV)/.locked pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@
