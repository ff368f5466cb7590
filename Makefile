# All set-up and all checks. `make` alone lists the targets.
# PYTHON=…: the Python (3.11 or newer) that makes .venv.  PYTEST_ARGS=…: one pytest run with these, by `make test`.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
PACKAGES := account bootstrap cli contract images infra jobs provider rehearsal remote
PYTEST_ARGS ?=

.PHONY: help setup setup-all rehearse demo test check lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## .venv with what the commands need (nothing is downloaded when it is there already)
	@requirements/setup.sh dev

setup-all: ## the same, with torch and RLlib for training on this machine and for the tests
	@requirements/setup.sh all

rehearse: setup ## the three commands with no cloud account: up, submit, destroy (needs Docker)
	@$(BIN)/python -m rehearsal rehearse

demo: setup-all ## the quickest first look: PPO on an embedded local Ray, no Docker, no stack
	@$(BIN)/python -m jobs.submit ppo --local

test: setup-all ## every test; without Docker tests/lab is skipped, and says so (RAYRIG_FORBID_SKIPS=1: a skip fails)
	@if [ -n "$(PYTEST_ARGS)" ]; then exec $(BIN)/python -m pytest $(PYTEST_ARGS); fi; \
	$(BIN)/python -m pytest -n 2 tests/unit; \
	$(BIN)/python -m pytest tests/engine tests/lab

check: setup-all ## ruff, mypy --strict and the import rules; all three run, whatever the first ones find
	@failed=; \
	echo "ruff check"; $(BIN)/ruff check . || failed="$$failed ruff-check"; \
	echo "ruff format"; $(BIN)/ruff format --check . || failed="$$failed ruff-format"; \
	echo "mypy --strict"; $(BIN)/mypy --strict $(foreach package,$(PACKAGES),-p $(package)) || failed="$$failed mypy"; \
	echo "import rules"; $(BIN)/python -m pytest -q tests/unit/test_rooms_imports.py || failed="$$failed import-rules"; \
	if [ -n "$$failed" ]; then echo "check failed:$$failed" >&2; exit 1; fi

lock: setup-all ## remakes requirements/*.lock from pyproject.toml
	@requirements/lock.sh

clean: ## removes .venv, caches and the rehearsal's local state; first ends a running rehearsal
	@if [ -e .rayrig/rehearsal/world.json ] && [ -x $(BIN)/python ]; then $(BIN)/python -m rehearsal stop; fi
	rm -rf $(VENV) .rayrig .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info Pulumi.rehearsal.yaml
