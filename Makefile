# What a person types. Every target can be run again.
SHELL := /bin/sh
VENV := .venv
PY := $(VENV)/bin/python
BIN := $(VENV)/bin

.PHONY: help venv deps demo down test lint sanity unit bed-tests molecule bench clean

help:  ## Say what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

venv:  ## Make .venv with the pinned tools (finds or makes a Python 3.12 or newer)
	@testbed/bootstrap

deps: venv  ## Install the system packages that the bed needs (root)
	@testbed/bed deps

demo: deps  ## Two nodes on this machine serve a model through the real playbooks
	@$(PY) testbed/demo.py

down:  ## Take the demo's nodes down again
	@testbed/bed down

test: lint sanity unit bed-tests molecule  ## All tests

lint: venv
	$(BIN)/yamllint .
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/typecheck.py
	$(BIN)/ansible-lint

sanity: venv
	$(PY) tests/sanity.py

unit: venv
	$(BIN)/pytest -n auto tests/unit tests/hub

bed-tests: deps
	$(BIN)/pytest tests/testbed

molecule: deps
	$(PY) tests/scenarios.py

bench: venv  ## Figures that need no bed; the head of each file in benchmarks/ says how to run it
	$(PY) benchmarks/cards.py
	$(PY) benchmarks/fabric_start.py

clean: down
	rm -rf .cache .bed
