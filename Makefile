# Targets for people and for .ci/run. Needs git, make and Python 3.11 to 3.13; a C compiler makes the record kernel fast, but is
# not needed. Everything is installed into .venv/: `up` installs what runs, the other targets also what tests and checks need.
#
#   make up                       start everything and show it at work    make up ARGS="--kafka-port 19092"
#   make test                     all tests                               make test ARGS="tests/metadata -x"
#   make test-kube                install the chart on a real cluster, and use it   make test-kube TESTS=tests/kube/test_kube_install.py
#   make check                    format, lint, types, import contracts
#   make docs                     the documentation as a site, in build/site; every link is checked
#   make fuzz                     hostile inputs for every decoder and route   make fuzz ARGS="--inputs 10000000 --report fuzz.md"
#   make bench, make conformance  measure; run other people's suites      make conformance ARGS="--suite kgo --quick"
#   make venv                     only .venv                              make venv PYTHON=/usr/bin/python3.12
#   make clean                    remove what was built (not .venv)

PYTHON ?=
ARGS ?=
# Four on two cores: tests that start servers and clients mostly wait (`tests/fixtures/run_order.py`).
WORKERS ?= 4
BIN := .venv/bin
INSTALLED := .venv/installed
RUNNABLE := .venv/runnable
CLUSTER := tests/kube/cluster/cluster.py
TESTS ?= tests/kube
KERNEL_SOURCES := $(wildcard $(foreach kind,c h,servers/bearlake/kernel/*.$(kind) servers/bearlake/kernel/*/*.$(kind)))

SHOW_KERNEL = @$(BIN)/python -c "from bearlake import kernel; print('Record kernel:', 'native' if kernel.IS_NATIVE else 'Python (no C compiler or no Python headers were found)')"

# Compiled files are kept wherever make runs: the tests start Python a thousand times, and each process would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help venv up test test-kube check format docs fuzz fuzz-kernel bench conformance clean
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

help:
	@sed -n '4,13s/^# *//p' Makefile

venv: $(INSTALLED)

$(BIN)/python:
	@tools/make-venv .venv $(PYTHON)

$(INSTALLED): $(BIN)/python pyproject.toml hatch_build.py $(KERNEL_SOURCES)
	@echo "Installing Bearlake and its development tools into .venv (2 GB) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev]'
	$(SHOW_KERNEL)
	@$(BIN)/python -m compileall -qq -j 0 .venv/lib || true # on all cores; packages may hold what does not compile
	@$(BIN)/python -m compileall -q servers operator
	@touch $(RUNNABLE) $@

# Without the development tools: half of the size and of the time.
$(RUNNABLE): $(BIN)/python pyproject.toml hatch_build.py $(KERNEL_SOURCES)
	@echo "Installing Bearlake with Spark and Java into .venv (1.2 GB) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[examples]'
	$(SHOW_KERNEL)
	@touch $@

up: $(RUNNABLE)
	@exec $(BIN)/bearlake up $(ARGS)

test: venv
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --durations=25 $(ARGS)

check: venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=tests $(BIN)/lint-imports --no-logo

format: venv
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: venv
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

fuzz: venv
	$(BIN)/python tests/fuzz/run.py $(ARGS)

# The kernel under AddressSanitizer and UndefinedBehaviorSanitizer, in build/fuzz/; `fuzz` and the tests build it as well.
fuzz-kernel: venv
	@$(BIN)/python tests/fuzz/sanitized.py

bench: venv
	$(BIN)/python bench/run.py $(ARGS)

# A real Kubernetes cluster on this machine (Debian, as root, with Go), our images, the chart. It runs on afterwards: `$(CLUSTER) down` ends it.
test-kube: venv
	$(BIN)/python $(CLUSTER) build
	$(BIN)/python $(CLUSTER) up
	$(BIN)/python $(CLUSTER) images
	BEARLAKE_TEST_KUBE=1 $(BIN)/python -m pytest -q $(TESTS) --junitxml=.cache/kube.xml $(ARGS)

conformance: venv
	$(BIN)/python tests/conformance/run.py $(ARGS)

clean:
	rm -rf build dist .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	rm -f servers/bearlake/kernel/_native*.so $(INSTALLED) $(RUNNABLE)
	find operator servers tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
