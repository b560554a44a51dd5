# `make help` lists the targets. The environment lives in .venv, made by scripts/setup when needed.
SHELL := /bin/sh
.DEFAULT_GOAL := help

PYTHON_VENV := .venv/bin/python
INTERPRETED := PYTHONPATH="$(CURDIR)/src" TASKYARD_FORM=interpreted
# The compiled form that is tested: the quick one is the same C, optimized less.
FORM ?= compiled-quick
COMPILED := PYTHONPATH="$(CURDIR)/build/$(FORM)" TASKYARD_FORM=compiled
CHECKED := $(wildcard src tests benchmarks demo scripts/*.py scripts/mutation scripts/vendor)
ARGS ?=
# Tests start hundreds of processes: what they import is to be compiled once, not by each of them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run demo test test-long lint format bench docs reference compiled compiled-quick \
	interpreted-tests compiled-tests spark-tests spark-programs spark-session browser-tests simulate faults \
	interpreted-core compiled-core compiled-wire compiled-processes compiled-faults compiled-plain \
	fuzz mutate lock dist release-tests clean environment run-environment

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

environment: run-environment
	@scripts/setup dev

run-environment:
	@scripts/setup run

# Sets `form` to where the best form is that this machine can have.
BEST_FORM = if $(PYTHON_VENV) scripts/compile.py; then form=$(CURDIR)/build/compiled; else \
		echo "$@: the compiled form could not be built, so the interpreted one is started" >&2; \
		form=$(CURDIR)/src; \
	fi

run: run-environment ## start the server on ./data (ARGS="..." is appended)
	@$(BEST_FORM); PYTHONPATH="$$form" exec $(PYTHON_VENV) -m taskyard serve --data ./data $(ARGS)

demo: environment ## all five protocols at once, the lake and a report, for DEMO_SECONDS (60)
	@$(BEST_FORM); PYTHONPATH="$$form:$(CURDIR)" exec $(PYTHON_VENV) -m demo

# Packages without a compiled module: only the servers that they talk to have two forms.
PLAIN := tests/access tests/cli tests/client tests/shared tests/tasks tests/toq tests/worker \
	tests/meta/test_docs.py tests/meta/test_frameworks.py tests/meta/test_monitoring.py tests/meta/test_site.py
PROCESSES := tests/crash tests/server
FAULTS := tests/faults
WIRE := tests/protocols
SPARK := tests/pipeline
# Those that start programs on Spark of their own, and kill them; the rest has one session for all.
SPARK_PROGRAMS := $(SPARK)/test_workers_killed.py $(SPARK)/test_cluster.py \
	$(SPARK)/test_lake_beside.py $(SPARK)/test_lake_live.py $(SPARK)/test_tour.py
BROWSER := tests/dashboard
SIMULATION := tests/simulation
ELSEWHERE := $(PLAIN) $(PROCESSES) $(FAULTS) $(WIRE) $(SPARK) $(BROWSER) $(SIMULATION)

# Everything is tested on the compiled form, which is the one for production. Plain Python runs the
# same sources, so with quick effort it has the core, a few modules of each protocol, and real servers;
# with long effort all of the protocols, too, but for what takes longest.
LONG := $(wildcard tests/broker/test_random_*.py tests/protocols/*/test_*_differential.py \
	tests/protocols/*/test_*_fuzz.py tests/protocols/*/*/test_*_fuzz.py \
	tests/protocols/*/test_*_portions.py tests/protocols/*/test_*_restart.py \
	tests/protocols/*/test_*_transcripts.py)
ifeq ($(TEST_EFFORT),long)
ON_PLAIN_PYTHON := tests/broker tests/protocols tests/engine tests/fuzz/test_corpus.py tests/journal \
	tests/server/settings/test_config.py \
	$(filter-out $(PLAIN),$(wildcard tests/meta/test_*.py))
PLAIN_FORM := $(INTERPRETED)
else
ON_PLAIN_PYTHON := tests/broker tests/engine tests/fuzz/test_corpus.py tests/journal \
	tests/server/test_app_clients.py \
	$(wildcard tests/protocols/glovebox/test_bincode.py tests/protocols/glovebox/test_frames.py \
	tests/protocols/glovebox/test_glovebox_re*.py tests/protocols/glovebox/test_glovebox_sessions.py \
	tests/protocols/http/api/test_api_jobs.py tests/protocols/http/api/test_api_push.py \
	tests/protocols/http/monitoring/test_events.py tests/protocols/masenko/test_masenko_[afp]*.py \
	tests/protocols/resp/test_pqueue.py tests/protocols/resp/test_resp_[jlw]*.py \
	tests/protocols/workq/test_workq_[alr]*.py)
PLAIN_FORM := $(COMPILED)
endif

# The lanes of `make test`, begun in this order: the long ones first, so that none is left alone in the
# end. While tests wait for a process or a disk another lane has the core, so there are three more
# than cores. Spark takes all of them, and a server's lake gives way to everybody: it comes afterwards.
CORES := $(shell nproc 2>/dev/null || echo 2)
LANES := lint interpreted-core compiled-processes compiled-plain compiled-wire compiled-core \
	compiled-faults $(if $(wildcard $(BROWSER)),browser-tests) $(if $(wildcard $(SIMULATION)),simulate)

test: run-environment ## lint, and the tests in both forms
	@rm -rf build/lanes
	@$(MAKE) --no-print-directory -k -j$$(($(CORES) + 3)) $(LANES:%=lane-%); \
	$(MAKE) --no-print-directory -k lane-spark-tests; \
	scripts/lane --report

test-long: ## the same with many more examples, other ones each time, and all combinations
	@TEST_EFFORT=long $(MAKE) --no-print-directory test FORM=compiled

# A lane needs no more than it says, so that the compiler and the set-up run side by side.
lane-%:
	@scripts/lane $* $(MAKE) --no-print-directory $*

lane-lint lane-interpreted-core lane-spark-tests: lane-environment
lane-browser-tests lane-simulate lane-compiled-faults lane-compiled-core lane-compiled-wire lane-compiled-processes \
	lane-compiled-plain: lane-environment lane-$(FORM)

interpreted-core: environment
	$(INTERPRETED) $(PYTHON_VENV) -m pytest $(ON_PLAIN_PYTHON) $(LONG:%=--ignore=%) $(ARGS)

compiled-core: environment $(FORM)
	$(COMPILED) $(PYTHON_VENV) -m pytest $(ELSEWHERE:%=--ignore=%) $(ARGS)

compiled-wire: environment $(FORM)
	$(COMPILED) $(PYTHON_VENV) -m pytest $(WIRE) $(ARGS)

compiled-processes: environment $(FORM)
	$(COMPILED) $(PYTHON_VENV) -m pytest $(PROCESSES) $(ARGS)

compiled-faults: environment $(FORM)
	$(COMPILED) $(PYTHON_VENV) -m pytest $(FAULTS) $(ARGS)

compiled-plain: environment $(FORM)
	$(PLAIN_FORM) $(PYTHON_VENV) -m pytest $(PLAIN) $(ARGS)

browser-tests: environment $(FORM) ## the tests with a browser (ARGS="..." goes to pytest)
	$(COMPILED) $(PYTHON_VENV) -m pytest $(BROWSER) $(ARGS)

SIMULATED := PYTHONPATH="$(CURDIR)/build/$(FORM):$(CURDIR)/tests" TASKYARD_FORM=compiled
FROM ?= 0

simulate: environment $(FORM) ## servers on a simulated machine (SEEDS=N FROM=S: so many; POINTS=1: all points)
ifdef POINTS
	$(SIMULATED) $(PYTHON_VENV) -m simulation --points $(ARGS)
else ifdef SEEDS
	$(SIMULATED) $(PYTHON_VENV) -m simulation --seeds $(FROM)..$$(($(FROM) + $(SEEDS) - 1)) $(ARGS)
else
	$(COMPILED) $(PYTHON_VENV) -m pytest $(SIMULATION) $(ARGS)
endif

SECONDS ?= 60
TARGET ?=
INPUT ?=

fuzz: environment ## every parser under a fuzzer for SECONDS (60) each, or TARGET=one (see docs/internals/testing.md)
	@PYTHONPATH="$(CURDIR)/src:$(CURDIR)/tests" TASKYARD_FORM=interpreted $(PYTHON_VENV) -m fuzz.run \
		--seconds $(SECONDS) --target "$(TARGET)" $(if $(INPUT),--input "$(INPUT)") $(ARGS)

ROUNDS ?= 10
FIRST ?= 0
faults: environment $(FORM) ## real servers killed, cut off, on failing disks: each test ROUNDS times (10)
	FAULT_ROUNDS=$(ROUNDS) FAULT_FIRST=$(FIRST) $(COMPILED) $(PYTHON_VENV) -m pytest $(FAULTS) $(ARGS)

mutate: environment ## small wrong changes of engine and journal, and which no test notices (ARGS="...")
	$(INTERPRETED) nice -n 19 $(PYTHON_VENV) -m scripts.mutation $(ARGS)

interpreted-tests: environment ## the tests on plain Python (ARGS="..." goes to pytest)
	$(INTERPRETED) $(PYTHON_VENV) -m pytest $(ARGS)

compiled-tests: environment $(FORM) ## the tests on the compiled form (ARGS="..." goes to pytest)
	$(COMPILED) $(PYTHON_VENV) -m pytest $(ARGS)

# A program that starts or waits for another leaves a core idle, so these are two runs side by side.
spark-tests: environment ## the tests with Spark (ARGS="..." goes to pytest)
	@$(MAKE) --no-print-directory -k -j2 --output-sync=target spark-programs spark-session

spark-programs: environment
	$(INTERPRETED) $(PYTHON_VENV) -m pytest $(SPARK_PROGRAMS) $(ARGS)

spark-session: environment
	$(INTERPRETED) $(PYTHON_VENV) -m pytest $(SPARK) $(SPARK_PROGRAMS:%=--ignore=%) $(ARGS)

lint: environment ## ruff, mypy --strict, and which package may import which
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy --strict $(CHECKED)
	PYTHONPATH=src .venv/bin/lint-imports

format: environment ## let ruff format and fix what it can
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

compiled: run-environment ## build the compiled form into build/compiled
	@$(PYTHON_VENV) scripts/compile.py

compiled-quick: run-environment
	@$(PYTHON_VENV) scripts/compile.py quick

dist: environment ## a source archive and a wheel into dist/, tried out in an empty environment
	@$(PYTHON_VENV) scripts/dist.py

release-tests: environment ## the steps of the image, and what else takes minutes (ARGS="..." goes to pytest)
	TEST_RELEASE=on $(INTERPRETED) $(PYTHON_VENV) -m pytest tests/release $(ARGS)

bench: environment compiled ## Taskyard beside other servers, into docs/performance (ARGS="..." is appended)
	PYTHONPATH="$(CURDIR)/build/compiled:$(CURDIR)" $(PYTHON_VENV) -m benchmarks $(ARGS)

docs: environment ## build the documentation into build/site, its links checked
	@.venv/bin/mkdocs build
	@echo "docs: open build/site/index.html"

reference: run-environment ## write the table of settings into docs/configuration.md
	@$(PYTHON_VENV) scripts/reference.py

lock: environment ## regenerate the lock files (ARGS=--upgrade raises the versions)
	@scripts/lock $(ARGS)

clean: ## remove everything that was built, but neither .venv nor ./data
	rm -rf build src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests benchmarks demo -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
