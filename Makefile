# Everything happens in .venv; nothing global, no root. `make help` lists the targets.
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := check
.PHONY: help install demo test test-slow lint check pins golden clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## install podium and its pinned dependencies into .venv

$(STAMP): requirements-dev.txt pyproject.toml
	@scripts/bootstrap requirements-dev.txt $(VENV)
	@touch $@

demo: $(STAMP) ## real MNIST, prepared, swept, trained, evaluated and promoted on this machine
	@$(BIN)/podium run tune_and_promote

test: $(STAMP) ## the fast tests
	@$(BIN)/pytest -m "not slow and not cluster"

test-slow: $(STAMP) ## the slow tests: whole pipelines, kills, races, big files
	@$(BIN)/pytest -m "slow and not cluster"

lint: $(STAMP) ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy src/podium trainer components pipelines

check: lint test ## lint and fast tests

pins: $(STAMP) ## renew the pinned requirement files from pyproject.toml
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --extra dev --no-header --no-annotate --no-emit-index-url pyproject.toml -o requirements-dev.txt
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url -c requirements-dev.txt pyproject.toml -o requirements.txt

golden: $(STAMP) ## write the compiled pipelines the tests compare with; look at the difference before you commit it
	@for name in tune_and_promote train_and_promote; do \
	  $(BIN)/podium compile $$name -o tests/golden/pipelines/$$name.yaml; done

clean: ## remove what a run left here
	rm -rf podium-work local_outputs build *.egg-info src/*.egg-info .pytest_cache .ruff_cache .mypy_cache
