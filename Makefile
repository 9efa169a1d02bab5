# Everything a developer does here. `make help` lists it.
# Python 3.11, Java 17, Maven and Go (or a Consul on the PATH) have to be there; the rest is fetched.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.installed
CELERY_STAMP := $(VENV)/.installed-celery
# The docs site has an environment of its own, so that the main one has only what Muster is run and tested with.
DOCS_VENV := .venv-docs
DOCS_STAMP := $(DOCS_VENV)/.installed
# And so have the tools that look at a release.
RELEASE_VENV := .venv-release
RELEASE_STAMP := $(RELEASE_VENV)/.installed
ACTIONLINT := v1.7.12
# `make release-check RELEASE=1` fails as long as the project has no place.
RELEASE ?=
# The Spark connector, which Maven builds and tests.
CONNECTOR := include/muster/consumer/muster-connector.jar
# The Python to make the environment with. The lock file is for 3.11.
BASE_PYTHON ?= $(firstword $(foreach name,python3.11 python3,$(shell command -v $(name))))
# `make demo KEEP=0` (or `incident`) stops everything at its end, KEEP=1 stays up. The default is to stay up in a terminal.
KEEP ?=
# `make env CELERY=1` adds what Airflow needs for PostgreSQL and the Celery executor.
CELERY ?=
# More arguments for a benchmark: `make bench-assignors BENCH="--rounds 5"`.
BENCH ?=
# `make test-mutants COUNT=20` draws fewer mutants, and SEED=7 the same ones as the run that printed this seed.
COUNT ?=
SEED ?=
# The tests that start no server and no JVM.
QUICK := -m "not stack and not spark and not airflow"
# The Python of `make test-python`.
OTHER ?= 3.13
# More arguments for pytest: `make test PYTEST="-k coordinator -x"`.
PYTEST ?=

# `make test LONG=1` runs what is slow and rarely breaks, too; `make test-faults LONG=1` plays many more histories, and
# injects each real fault five times.
LONG ?=

export PYTHONPATH := $(CURDIR)/include:$(CURDIR)

.PHONY: help env wheel fetch up down status demo incident test test-celery test-faults test-mutants test-hosts test-week test-install test-python bench-assignors bench-throughput bench-state bench-scale bench-failover \
  bench-airflow-share bench-airflow-growth bench-many-clusters bench picture screenshots docs release-check check \
  format lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: $(STAMP) $(CONNECTOR) $(if $(CELERY),$(CELERY_STAMP)) ## Make the Python environment in .venv, with exactly what requirements.txt says

$(STAMP): requirements.txt pyproject.toml
	@if [ -z "$(BASE_PYTHON)" ] || ! "$(BASE_PYTHON)" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then \
	  echo "Error: Python 3.11 is needed, because requirements.txt is for it. Install it (Debian: python3.11-venv)," \
	    "or name it: make env BASE_PYTHON=/path/to/python3.11" >&2; exit 1; fi
	@command -v java > /dev/null || \
	  { echo "Error: 'java' is not on the PATH; Spark, Maven and the local servers need a JDK, 17 or later (Debian: openjdk-17-jdk-headless)" >&2; exit 1; }
	@if [ ! -x $(PYTHON) ]; then \
	  echo "Making $(VENV) with $(BASE_PYTHON)"; \
	  "$(BASE_PYTHON)" -m venv $(VENV) || \
	    { echo "Error: 'python3 -m venv' failed; install it (Debian: python3.11-venv)" >&2; rm -rf $(VENV); exit 1; }; fi
	@# uv installs in seconds what takes pip minutes. It comes from the lock file itself, its hash checked.
	@awk '/^uv==/ {on = 1; print; next} on && /^    --hash/ {print; next} {on = 0}' requirements.txt > $(VENV)/uv.txt
	@[ -x $(VENV)/bin/uv ] && [ "$$($(VENV)/bin/uv --version | cut -d' ' -f2)" = "$$(sed -n 's/^uv==\([^ ]*\).*/\1/p' requirements.txt)" ] || \
	  $(PYTHON) -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $(VENV)/uv.txt
	@# Copies rather than links, which work wherever uv's cache is.
	@# Compiled once here, because every process would do it again where Python may not write bytecode.
	@echo "Installing requirements.txt in $(VENV): the first time some 600 MB to download, 1.5 GB on the disk, a few minutes"
	@# With its progress, and without its list of 200 packages.
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 $(VENV)/bin/uv pip sync --require-hashes requirements.txt \
	  2> >(grep --line-buffered -vE '^ [-+~] ' >&2)
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) UV_LINK_MODE=copy $(VENV)/bin/uv pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

$(CONNECTOR): $(STAMP) $(shell find sparkjobs/connector -name target -prune -o -type f -print)
	@$(PYTHON) -c "from devstack.connector import connector_jar; connector_jar()"
	@touch $@

$(CELERY_STAMP): $(STAMP) requirements-celery.txt
	@echo "Installing requirements-celery.txt"
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 \
	  $(VENV)/bin/uv pip install --quiet --no-deps --require-hashes --requirement requirements-celery.txt
	@touch $(CELERY_STAMP)

wheel: env ## Build the package in dist/, with the Spark connector in it
	@$(PYTHON) -m devstack.wheel

fetch: env ## Fetch Kafka and ZooKeeper, and build Consul if there is none; once, into ~/.cache/muster
	@$(PYTHON) -m devstack fetch

up: env ## Start Kafka, ZooKeeper, Consul and Airflow; what already runs is left alone
	@$(PYTHON) -m devstack up

down: env ## Stop consumers, Airflow and the servers, the demo's too; the data in .devstack stays
	@$(PYTHON) -m devstack down

status: env ## Show what runs, where the UI is, and how to log in
	@$(PYTHON) -m devstack status

demo: env ## The main job on real flights, from nothing to a proof; KEEP=0 stops everything at the end
	@$(PYTHON) -m devstack.demo $(if $(filter 0,$(KEEP)),--no-keep,$(if $(KEEP),--keep))

incident: env ## Bad records, a handler that hangs, a sink that is away or flaps, tables that go back: a story with a proof; KEEP=0 as above
	@$(PYTHON) -m devstack.incident $(if $(filter 0,$(KEEP)),--no-keep,$(if $(KEEP),--keep))

test: fetch ## Run all tests, in three processes; they start servers of their own (PYTEST="-n 0": in one)
	@$(PYTHON) -m pytest --numprocesses 3 --dist loadscope --no-loadscope-reorder $(PYTEST)

test-celery: fetch $(CELERY_STAMP) ## Those tests that have an Airflow of their own, on PostgreSQL and Celery (root installs them on Debian)
	@MUSTER_DEVSTACK_EXECUTOR=celery $(PYTHON) -m pytest tests/e2e/test_end_to_end.py tests/dags/test_running_airflow.py $(PYTEST)

test-faults: fetch ## A model of the whole system, its mutations, and real faults on real servers; LONG=1: many more
	@rm -f artifacts/faults.json
	@status=0; LONG=$(LONG) MUSTER_TEST_FAULTS=all $(PYTHON) -m pytest tests/faults $(PYTEST) || status=$$?; \
	  $(PYTHON) -m tests.support.fault_score faults || [ $$status -ne 0 ] || status=1; exit $$status

test-mutants: fetch ## 150 small mistakes in the code that decides who reads and commits, of which tests miss 3 at most; COUNT=20, SEED=7
	@$(PYTHON) -m tests.mutants $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED))

test-hosts: fetch ## Three hosts out of network namespaces (as root), cut off, killed and emptied in turn, with real servers
	@rm -f artifacts/hosts.json
	@status=0; MUSTER_TEST_HOSTS=long $(PYTHON) -m pytest tests/hosts $(PYTEST) || status=$$?; \
	  $(PYTHON) -m tests.support.fault_score hosts || [ $$status -ne 0 ] || status=1; exit $$status

test-week: fetch ## A week of two clusters in half an hour, in which all that expires does, with real servers and Spark
	@rm -f artifacts/week.json
	@status=0; MUSTER_TEST_WEEK=long $(PYTHON) -m pytest -v tests/week $(PYTEST) || status=$$?; \
	  $(PYTHON) -m tests.support.fault_score week || [ $$status -ne 0 ] || status=1; exit $$status

test-install: fetch ## The wheel in fresh environments, both ends of Python and Spark, and an upgrade, with real servers
	@rm -f artifacts/install.json
	@status=0; MUSTER_TEST_INSTALL=long $(PYTHON) -m pytest tests/install $(PYTEST) || status=$$?; \
	  $(PYTHON) -m tests.install.proof || [ $$status -ne 0 ] || status=1; exit $$status

bench-assignors: fetch ## Planning times of Muster's assignors and Kafka's, side by side (BENCH="--quick": a minute)
	@$(PYTHON) -m benchmarks assignors $(BENCH)

bench-throughput: fetch ## Muster's Spark source beside Spark's own: records/s, latency, memory, CPU (BENCH="--quick": two minutes)
	@$(PYTHON) -m benchmarks throughput $(BENCH)

bench-state: fetch ## State by key beside Spark's own operator: records/s, CPU, memory, restore, kills, failover (BENCH="--quick": ten minutes)
	@$(PYTHON) -m benchmarks state $(BENCH)

bench-scale: fetch ## What the coordinator's tasks cost with 1,000 topics and 1,000 consumers (BENCH="--quick": a minute)
	@$(PYTHON) -m benchmarks scale $(BENCH)

bench-failover: fetch ## Kills, freezes, leaves and joins, beside Kafka's own groups (BENCH="--quick": five minutes)
	@$(PYTHON) -m benchmarks failover $(BENCH)

bench-airflow-share: fetch ## What Airflow costs and adds, beside its own defaults (BENCH="--quick": six minutes)
	@$(PYTHON) -m benchmarks airflow_share $(BENCH)

bench-airflow-growth: fetch $(CELERY_STAMP) ## What 100,000 runs and thousands of deferrals leave in Airflow, pruned and not (BENCH="--quick": ten minutes)
	@$(PYTHON) -m benchmarks airflow_growth $(BENCH)

bench-many-clusters: fetch $(CELERY_STAMP) ## Slots, CPU and speed of a hundred clusters on one Airflow, beside one (BENCH="--clusters 1 --clusters 10")
	@$(PYTHON) -m benchmarks many_clusters $(BENCH)

bench: bench-assignors bench-throughput bench-state bench-failover bench-scale bench-airflow-share ## All benchmarks, and benchmarks/report.md with the line of each
	@$(PYTHON) -m benchmarks report

picture: env ## Draw docs/assignors.svg again; a test fails when it is not what the assignors say
	@$(PYTHON) -m docs.pictures.assignors

screenshots: fetch ## Make docs/images again: the dashboard on a real stack, in Chromium (root installs it on Debian)
	@$(PYTHON) -m docs.pictures.dashboard

$(DOCS_STAMP): $(STAMP) requirements-docs.txt
	@echo "Installing requirements-docs.txt in $(DOCS_VENV)"
	@$(VENV)/bin/uv venv --quiet --allow-existing --python $(PYTHON) $(DOCS_VENV)
	@VIRTUAL_ENV=$(CURDIR)/$(DOCS_VENV) UV_LINK_MODE=copy $(VENV)/bin/uv pip sync --quiet --require-hashes requirements-docs.txt
	@touch $(DOCS_STAMP)

docs: env $(DOCS_STAMP) ## Build the docs site in artifacts/site; a broken link or a page that is in no menu fails it
	@# Without --quiet, which would keep mkdocs from counting warnings.
	PATH=$(CURDIR)/$(DOCS_VENV)/bin:$$PATH NO_MKDOCS_2_WARNING=1 mkdocs build --strict

$(RELEASE_STAMP): $(STAMP) requirements-release.txt
	@echo "Installing requirements-release.txt and actionlint $(ACTIONLINT) in $(RELEASE_VENV)"
	@$(VENV)/bin/uv venv --quiet --allow-existing --python $(PYTHON) $(RELEASE_VENV)
	@VIRTUAL_ENV=$(CURDIR)/$(RELEASE_VENV) UV_LINK_MODE=copy $(VENV)/bin/uv pip sync --quiet --require-hashes requirements-release.txt
	@GOBIN=$(CURDIR)/$(RELEASE_VENV)/bin go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT)
	@touch $(RELEASE_STAMP)

release-check: env $(RELEASE_STAMP) ## Whether a release would be in order: the wheel, its description, a bill of materials, the workflows
	@$(PYTHON) -m devstack.release $(RELEASE_VENV)/bin $(if $(RELEASE),--release)

test-python: env ## The quick tests on another Python, with the versions of requirements.txt (OTHER=3.12)
	@$(VENV)/bin/uv venv --quiet --allow-existing --python $(OTHER) .venv-$(OTHER)
	@grep -oE '^[A-Za-z0-9_.-]+==[^ ]+' requirements.txt > .venv-$(OTHER)/pinned.txt
	@VIRTUAL_ENV=$(CURDIR)/.venv-$(OTHER) UV_LINK_MODE=copy $(VENV)/bin/uv pip install --quiet \
	  --constraint .venv-$(OTHER)/pinned.txt --requirement requirements.in --editable .
	.venv-$(OTHER)/bin/python -m pytest -q $(QUICK) $(PYTEST)

check: env docs ## Formatter, linter, strict types, layers, the docs site and the quick tests
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache
	$(PYTHON) -m pytest -q $(QUICK) $(PYTEST)

format: env ## Format the code, and mend what the linter can
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

lock: env ## Pin what requirements.in asks for in requirements.txt, with hashes (UPGRADE=1: the newest)
	$(VENV)/bin/uv pip compile --quiet --generate-hashes --python-version 3.11 --no-emit-index-url \
	  --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade) --output-file requirements.txt requirements.in
	@# Only what comes on top, at versions that go with requirements.txt.
	$(VENV)/bin/uv pip compile --quiet --generate-hashes --python-version 3.11 --no-emit-index-url \
	  --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade) \
	  $$(grep -oE '^[a-z0-9][a-z0-9._-]*' requirements.txt | sed 's/^/--no-emit-package /') \
	  --output-file requirements-celery.txt requirements-celery.in
	$(VENV)/bin/uv pip compile --quiet --generate-hashes --python-version 3.11 --no-emit-index-url \
	  --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade) --output-file requirements-docs.txt requirements-docs.in
	$(VENV)/bin/uv pip compile --quiet --generate-hashes --python-version 3.11 --no-emit-index-url \
	  --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade) --output-file requirements-release.txt requirements-release.in

clean: ## Stop everything, and remove the stack's data, the environment and all that tools have left
	@if [ -x $(PYTHON) ] && [ -d .devstack ]; then $(PYTHON) -m devstack down; fi
	rm -rf .devstack $(VENV) $(DOCS_VENV) $(RELEASE_VENV) .venv-3.* .pytest_cache .mypy_cache .ruff_cache .hypothesis include/*.egg-info logs spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
