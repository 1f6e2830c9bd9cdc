# Every target sets up what it needs. `make` alone lists them.
#
#   BUILD=plain|compiled   which build `serve`, `sim` and `bench` run on (default: compiled)
#   ARGS="..."             passed on to the program a target runs
#   SEED=n, SEEDS=n        for `sim`: the one seed to replay, or how many fresh ones
#   N=n, SEED=n            for `mutants`: how many, and the seed that draws their places
#   PYTHON=...             the interpreter .venv is made with (3.11 or newer)

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help setup serve test test-plain test-compiled originals compile lint types check fmt sim
.PHONY: check-fast coverage test-sim test-spark pipeline mutants bench bench-spark libraries clean
.PHONY: test-compiled-rooms test-compiled-servers

BIN := .venv/bin
# The small environment, or the whole one where that is there already.
SERVING := $(if $(wildcard .venv/ready),.venv/ready,.venv/serving)
BUILD ?= compiled
SEEDS ?= 2000
N ?= 50
ARGS ?=
REQUIRE_COMPILED ?=

PLAIN := PYTHONPATH=src
COMPILED := PYTHONPATH=build/compiled
# A compiled copy that could not be made is not there, and Python passes on to the sources.
CHOSEN := $(if $(filter plain,$(BUILD)),$(PLAIN),$(COMPILED))
# Debian's programs and Valkey, when they had to be fetched; what is installed comes first.
export PATH := $(PATH):$(CURDIR)/build/debian/usr/bin:$(CURDIR)/build/valkey

PLAIN_TESTS := $(addprefix tests/,unit spark lake transcripts recovery fuzz acceptance/doors)

# With the programs that clients and benchmark are compared with.
SERVER_TESTS := tests/acceptance tests/unit/bench

CHECKED := $(wildcard src tests sim bench fuzz tools examples conftest.py setup.py)

define on_compiled
if [ -d build/compiled ]; then \
	set -x; $(COMPILED) $(BIN)/python -m pytest $(1); \
else \
	echo "jobyard: nothing was compiled, so there is no compiled build to test" >&2; \
fi
endef

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  \033[1m%-14s\033[0m %s\n", $$1, $$2 }' Makefile

setup: .venv/ready compile ## make .venv with the compiled package and everything for development

serve: $(if $(filter plain,$(BUILD)),$(SERVING),compile) ## run a server on 127.0.0.1, ports 11300, 6789, 6790 and 6379, data in ./jobyard-data
	@$(CHOSEN) exec $(BIN)/python -m jobyard serve $(ARGS)

# Every real server and client, and the benchmark, are run on the compiled build, which is the one that
# ships; of them the plain half tries one part, at all doors. Tools are tested by the plain half only.
# Three parts at a time keep two cores busy: those that start servers wait for them half of the time.
test: test-plain test-compiled $(if $(ARGS),,test-sim) ## run the tests on the plain and on the compiled build

test-plain: .venv/ready originals ## run the tests on the plain sources: all of ARGS=tests, else without most servers
	$(PLAIN) $(BIN)/python -m pytest $(or $(ARGS),--ignore tests/unit/bench $(PLAIN_TESTS))

test-sim: .venv/ready ## run the tests of the simulator on the plain sources
	$(PLAIN) $(BIN)/python -m pytest tests/sim

test-spark: build/spark/ready ## run the tests of the Spark part with Spark itself, in an environment of its own
	$(PLAIN) build/spark/bin/python -m pytest $(or $(ARGS),tests/spark)

pipeline: build/spark/ready $(if $(filter plain,$(BUILD)),,compile) ## show the pipeline: a server, jobs of four protocols, tables, a fleet, an archive, a report
	@$(CHOSEN) build/spark/bin/python -m tools.pipeline_demo $(ARGS)

test-compiled: $(if $(ARGS),,test-compiled-servers) test-compiled-rooms ## run the tests on the compiled build

test-compiled-rooms: .venv/ready compile originals
	@$(call on_compiled,$(or $(ARGS),tests $(addprefix --ignore ,$(SERVER_TESTS))))

test-compiled-servers: .venv/ready compile originals
	@$(call on_compiled,$(SERVER_TESTS))

originals: ## fetch what the tests compare with into build/, where that is possible
	@tools/bootstrap.sh beanstalkd
	@tools/bootstrap.sh bunqueue
	@tools/bootstrap.sh wrk
	@tools/bootstrap.sh redis-tools
	@tools/bootstrap.sh valkey

compile: $(SERVING) ## compile the package into build/compiled, if it changed
	@$(PLAIN) $(BIN)/python -m tools.compiled_build $(if $(REQUIRE_COMPILED),--require)

lint: .venv/ready ## check style, spelling, size budgets and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell $(CHECKED) $(wildcard docs *.md)
	$(PLAIN) $(BIN)/python -m tools.tidy
	$(PLAIN) $(BIN)/python -m tools.imports
	$(PLAIN) $(BIN)/python -m tools.module_map --check

types: .venv/ready ## check all types, strictly
	$(BIN)/mypy $(CHECKED)

check: lint types test ## everything CI runs

check-fast: lint types ## the quick part of it: lint, types, unit tests on the plain sources, some seeds
	$(PLAIN) $(BIN)/python -m pytest -q --numprocesses 2 --dist worksteal --ignore tests/unit/bench tests/unit
	$(PLAIN) $(BIN)/python -m sim --start 1 --seeds 20

coverage: .venv/ready ## measure branch coverage of the plain sources (20 minutes), and fail below the floor
	$(PLAIN) $(BIN)/coverage run -m pytest -q tests/unit tests/transcripts tests/recovery
	$(BIN)/coverage report --skip-covered --sort=cover

fmt: .venv/ready ## format the code and mend what can be mended mechanically
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .
	$(PLAIN) $(BIN)/python -m tools.module_map

sim: .venv/ready compile ## run the simulator: SEEDS=n fresh seeds, or SEED=n to replay one
	$(CHOSEN) $(BIN)/python -m sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(ARGS)

mutants: .venv/ready ## plant N=50 mistakes in engine and journal, one at a time, and tell who notices; SEED=n repeats
	$(PLAIN) $(BIN)/python -m tools.mutants --count $(N) $(if $(SEED),--seed $(SEED)) $(ARGS)

bench: .venv/ready compile originals ## measure, against the originals where they are installed; with Spark if build/spark is there
	$(CHOSEN) $(BIN)/python -m bench $(ARGS)

bench-spark: .venv/ready build/spark/ready compile ## measure reads and writes of Spark, which is installed first
	$(CHOSEN) $(BIN)/python -m bench --scenarios spark $(ARGS)

libraries: .venv/ready compile ## measure our codecs against the libraries that could replace them
	$(CHOSEN) $(BIN)/python -m bench.libraries

clean: ## remove everything that was made; data of a server stays
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What a server and its compiling need; a quarter of what development does.
.venv/serving: pyproject.toml
	@tools/bootstrap.sh environment
	@touch $@

.venv/ready: pyproject.toml $(if $(wildcard .venv/ready),,.venv/serving)
	@tools/bootstrap.sh development
	@touch $@

# Nothing is shared with .venv: Spark brings half a gigabyte, and another package of the same name.
build/spark/ready: pyproject.toml
	@tools/bootstrap.sh spark
	@touch $@
