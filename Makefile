# Run `make help`. Everything lives in .venv; delete it to start over.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help install quickstart test test-exhaustive lint bench docs clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("specops needs Python 3.11 or newer, found " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	touch $@

install: $(STAMP) ## Make .venv with pinned versions

quickstart: $(STAMP) ## Play the whole story on this machine (about 5 minutes)
	$(BIN)/specops quickstart

test: $(STAMP) ## Run the tests
	$(BIN)/python -m pytest --cov=specops --cov-branch --cov-report=term:skip-covered
	$(BIN)/python -m coverage report --include='specops/core/*,specops/stats/*' --fail-under=95 --format=total

test-exhaustive: $(STAMP) ## Run the long suites that make test leaves out
	$(BIN)/python -m pytest -m exhaustive --timeout=1800

lint: $(STAMP) ## ruff, mypy --strict, import contracts, docstrings
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/interrogate -q specops

bench: $(STAMP) ## Run benchmarks (NAME=quickstart for one); JSON goes to build/bench
	$(BIN)/python -m tests.benchmarks.run $(NAME)

docs: $(STAMP) ## Rewrite docs/reference/cli.md from --help
	$(BIN)/python -m specops.cli.reference > docs/reference/cli.md

clean: ## Remove the environment and what runs left behind
	rm -rf $(VENV) build specops-data
