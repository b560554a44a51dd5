# `make help` lists the targets. The environment lives in .venv, made by scripts/setup when needed.
SHELL := /bin/sh
.DEFAULT_GOAL := help

PYTHON_VENV := .venv/bin/python
INTERPRETED := PYTHONPATH="$(CURDIR)/src" TASKYARD_FORM=interpreted
# The compiled form that is tested: the quick one is the same C, optimized less.
FORM ?= compiled-quick
COMPILED := PYTHONPATH="$(CURDIR)/build/$(FORM)" TASKYARD_FORM=compiled
CHECKED := $(wildcard src tests benchmarks scripts/compile.py)
ARGS ?=

.PHONY: help run test test-long lint format bench compiled compiled-quick interpreted-tests \
	compiled-tests spark-tests lock clean environment run-environment \
	lint-and-plain interpreted-core compiled-rest compiled-processes

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

environment:
	@scripts/setup dev

run-environment:
	@scripts/setup run

run: run-environment ## start the server on ./data (ARGS="..." is appended)
	@if $(PYTHON_VENV) scripts/compile.py; then form=$(CURDIR)/build/compiled; else \
		echo "run: the compiled form could not be built, so the interpreted one is started" >&2; \
		form=$(CURDIR)/src; \
	fi; \
	PYTHONPATH="$$form" exec $(PYTHON_VENV) -m taskyard serve --data ./data $(ARGS)

# Packages without a compiled module are tested on plain Python, what is about processes, sockets and
# clients in the form that is used in production, and the core in both, but for its longest tests.
PLAIN := tests/access tests/cli tests/client tests/tasks tests/toq tests/test_docs.py \
	tests/test_frameworks.py
CORE := tests/broker tests/dialects tests/engine tests/journal tests/server/test_config.py \
	$(filter-out $(PLAIN),$(wildcard tests/test_*.py))
LONG := $(wildcard tests/broker/test_random_*.py tests/dialects/test_*_differential.py \
	tests/dialects/test_*_fuzz.py tests/dialects/test_*_portions.py tests/dialects/test_*_restart.py \
	tests/dialects/test_*_transcripts.py)
PROCESSES := tests/crash tests/http_server tests/server
SPARK := tests/spark

# Two of these run at a time, in this order, so that both cores have work to the end. Spark takes both
# of them, so its tests come afterwards.
test: environment ## lint, and the tests in both forms
	@$(MAKE) --no-print-directory -k -j2 --output-sync=target \
		lint-and-plain compiled-rest interpreted-core compiled-processes
	@$(MAKE) --no-print-directory spark-tests

test-long: ## the same with many more examples, other ones each time, and all combinations
	@TEST_EFFORT=long $(MAKE) --no-print-directory test FORM=compiled

lint-and-plain: lint
	$(INTERPRETED) $(PYTHON_VENV) -m pytest $(PLAIN) $(ARGS)

interpreted-core: environment
	$(INTERPRETED) $(PYTHON_VENV) -m pytest $(CORE) $(LONG:%=--ignore=%) $(ARGS)

compiled-rest: $(FORM)
	$(COMPILED) $(PYTHON_VENV) -m pytest $(patsubst %,--ignore=%,$(PLAIN) $(PROCESSES) $(SPARK)) $(ARGS)

compiled-processes: $(FORM)
	$(COMPILED) $(PYTHON_VENV) -m pytest $(PROCESSES) $(ARGS)

interpreted-tests: environment ## the tests on plain Python (ARGS="..." goes to pytest)
	$(INTERPRETED) $(PYTHON_VENV) -m pytest $(ARGS)

compiled-tests: $(FORM) ## the tests on the compiled form (ARGS="..." goes to pytest)
	$(COMPILED) $(PYTHON_VENV) -m pytest $(ARGS)

spark-tests: environment ## the tests with Spark (ARGS="..." goes to pytest)
	@if [ -d $(SPARK) ]; then $(INTERPRETED) $(PYTHON_VENV) -m pytest $(SPARK) $(ARGS); fi

lint: environment ## ruff and mypy --strict
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy --strict $(CHECKED)

format: environment ## let ruff format and fix what it can
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

compiled: environment ## build the compiled form into build/compiled
	@$(PYTHON_VENV) scripts/compile.py

compiled-quick: environment
	@$(PYTHON_VENV) scripts/compile.py quick

bench: compiled ## run the benchmarks on the compiled form (ARGS="..." is appended)
	PYTHONPATH="$(CURDIR)/build/compiled:$(CURDIR)" $(PYTHON_VENV) -m benchmarks $(ARGS)

lock: environment ## regenerate the lock files (ARGS=--upgrade raises the versions)
	@scripts/lock $(ARGS)

clean: ## remove everything that was built, but neither .venv nor ./data
	rm -rf build src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
