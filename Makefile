# qpidha: 'make demo' and 'make test' prepare what they need themselves (.ci/setup); a second run is quick.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo quick test docs man mutants lint format bench bench-check bench-pipeline bench-recovery bench-kinds bench-growth bench-crowd bench-tail bench-console bench-pressure test-migrate sim soak soak-chain verify lab lab-down lab-exec lab-test lab-verify lab-measure lock wheels deb test-deb image test-image clean

BIN := .venv/bin
SECONDS_OF_DEMO ?= 20
DEMO_DIR ?= demo
SOAK_ROUNDS ?= 5
SEEDS ?= 1000
START ?= 0
DEPTH ?= both
SOAK_MINUTES ?= 10
CHAIN_MINUTES ?= 5
SIM_SEEDS ?= 20000
VERIFY_MINUTES ?= 2
VERIFY_FAULTS ?= kill,stop,terminate,partition,switchover
VERIFY_DIR ?= verify
SECURE ?=
LAB_RUNS ?= 5
SECONDS_OF_PRESSURE ?= 60
CONTAINERS ?= podman
HOST ?= ha1
COMMAND ?=
FAULTS := kill stop kill-backup stop-backup
PYTEST_ARGS ?=
BENCH_ARGS ?=
BASE ?=
MUTANTS ?= 8
ROOM ?=
# Tests without a process, a socket or a wait.
QUICK := tests/test_architecture.py $(addprefix tests/,model broker ha store amqp management scenarios sim conformance)

help: ## list what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)$$/  make \1	\2/p' Makefile

demo: ## start three brokers, kill the primary under load, check that nothing acknowledged is lost
	@.ci/setup demo
	@$(BIN)/qpid-ha demo --seconds $(SECONDS_OF_DEMO) --dir $(DEMO_DIR)

quick: lint ## what to run before each commit: style, types, the rooms, pure tests, plays, and some simulated histories
	$(BIN)/python -m pytest -q -n 2 $(QUICK) $(PYTEST_ARGS)

mutants: ## change MUTANTS places of each file of the rooms that must not fail, and see whether a test notices; ROOM=qpidha/store
	@.ci/setup demo
	@$(BIN)/python -m tests.mutants --count $(MUTANTS) $(ROOM)

test: ## lint, then every test
	@.ci/setup test
	@$(MAKE) --no-print-directory lint
	$(BIN)/python -m pytest -n 3 --dist loadgroup --no-loadscope-reorder $(PYTEST_ARGS)

docs: ## the documents as a site with search in build/site, and man pages in build/man, without one warning
	@.ci/setup docs
	@$(BIN)/python -m sphinx -q -W -E -j auto -c docs -d build/pages . build/site
	@$(MAKE) --no-print-directory man
	@echo "build/site/index.html   man -l build/man/qpid-ha.1   man -l build/man/qpidhad.8"

man: # what packages need of the documents
	@.ci/setup docs
	@packages/man

lint: ## ruff and mypy
	@.ci/setup demo
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: ## let ruff rewrite the sources
	@.ci/setup demo
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: ## three brokers beside RabbitMQ and NATS (where they are installed), interleaved, in one table; BENCH_ARGS='--cases window-1,kept', '--list'
	@.ci/setup bench
	$(BIN)/python -m tests.bench.run $(BENCH_ARGS)

bench-check: ## does this working copy cost over 5 % more CPU a message than BASE (default: origin/main, or the commit before); interleaved; BENCH_ARGS='--cases ...'
	@.ci/setup bench
	$(BIN)/python -m tests.bench.check $(if $(BASE),--base $(BASE)) $(BENCH_ARGS)

sim: ## play SEEDS simulated histories from START on; DEPTH is model, wire or both
	@.ci/setup demo
	@$(BIN)/python -m tests.sim --seeds $(SEEDS) --start $(START) --depth $(DEPTH) --jobs 2

soak: ## minutes of random faults, and of the fuzzer, the demo with each fault, SIM_SEEDS simulated histories, every order of the scripts' calls, and 20 kills of a Spark job
	@.ci/setup demo
	$(BIN)/python -m tests.soak --minutes $(SOAK_MINUTES)
	$(BIN)/python -m tests.fuzz --seconds $$(( 60 * $(SOAK_MINUTES) )) --seed $$(date +%s)
	@for round in $$(seq $(SOAK_ROUNDS)); do for fault in $(FAULTS); do \
	    echo "soak: round $$round of $(SOAK_ROUNDS), fault $$fault"; \
	    $(BIN)/qpid-ha demo --fault $$fault --seconds $(SECONDS_OF_DEMO) --dir $(DEMO_DIR) -o json; \
	done; done
	$(BIN)/python -m tests.sim --seeds $(SIM_SEEDS) --jobs 2
	QPIDHA_SOAK=1 $(BIN)/python -m pytest -q tests/agents
	@.ci/setup verify
	QPIDHA_SOAK=1 $(BIN)/python -m pytest -q tests/pipeline/spark/test_connector_kill.py

soak-chain: ## CHAIN_MINUTES of a chain of routes from a broker over a cluster to another, 10,000 messages a second offered, the primary killed every 10 s; without and with deduplication
	@.ci/setup demo
	$(BIN)/python -m tests.soak.chain --minutes $(CHAIN_MINUTES)
	$(BIN)/python -m tests.soak.chain --minutes $(CHAIN_MINUTES) --dedup

verify: ## VERIFY_MINUTES of clients and faults, everything written down in VERIFY_DIR, judged on Spark, and a report; SECURE=1 with TLS, SCRAM, an acl-file and two networks
	@.ci/setup verify
	@out=$(VERIFY_DIR)/$$(date -u +%Y%m%d-%H%M%S); \
	    ran=0; $(BIN)/qpid-ha verify run --minutes $(VERIFY_MINUTES) --faults $(VERIFY_FAULTS) \
	        $(if $(SECURE),--secure) --out $$out || ran=$$?; \
	    $(BIN)/qpid-ha pipeline check --report --out $$out/check $$out; exit $$ran

lab: ## bring up three hosts with Pacemaker and brokers in namespaces (as root), and leave them to play with; SECURE=1 as below
	@.ci/setup lab
	@QPIDHA_LAB_SECURE=$(SECURE) $(BIN)/python -m tests.lab up

lab-exec: ## run COMMAND in HOST of the lab (ha1, ha2, ha3, or switch, where clients are); a shell without COMMAND
	@$(BIN)/python -m tests.lab exec $(HOST) $(COMMAND)

lab-down: ## end the lab
	@$(BIN)/python -m tests.lab down

lab-test: ## play every scenario of tests/lab on real Pacemaker, in the lab that is up or in one of its own; SECURE=1 with TLS, SCRAM and an acl-file
	@.ci/setup lab
	QPIDHA_LAB_SECURE=$(SECURE) $(BIN)/python -m pytest tests/lab --durations=20 $(PYTEST_ARGS)

lab-verify: ## VERIFY_MINUTES of clients, power cuts and cut cables in the lab that is up or in one of its own, judged; SECURE=1 as above
	@.ci/setup lab
	@QPIDHA_LAB_SECURE=$(SECURE) $(BIN)/python -m tests.lab.verify $(VERIFY_MINUTES) $(VERIFY_DIR)/lab-$$(date -u +%Y%m%d-%H%M%S)

lab-measure: ## time the failovers of LAB_RUNS runs of each event in the lab
	@.ci/setup lab
	@$(BIN)/python -m tests.lab.measure --runs $(LAB_RUNS)

bench-pipeline: ## judge synthetic histories of 1 to 10 million operations on Spark, without and with journals, and time each check
	@.ci/setup verify
	$(BIN)/python -m tests.bench.pipeline
	$(BIN)/python -m tests.bench.pipeline --journals
	$(BIN)/python -m tests.bench.pipeline --files

bench-recovery: ## start-up, catch-up, rejoin and memory with millions of durable messages
	@.ci/setup bench
	$(BIN)/python -m tests.bench.startup
	$(BIN)/python -m tests.bench.catchup
	$(BIN)/python -m tests.bench.memory

bench-kinds: ## what a message costs on a queue of each kind, beside one in the order of arrival: in a broker, and in the queue alone; and a selector that finds nothing
	@.ci/setup bench
	$(BIN)/python -m tests.bench.run --kinds $(BENCH_ARGS)
	$(BIN)/python -m tests.bench.queue_cost --kinds
	$(BIN)/python -m tests.bench.unselected

bench-growth: ## does a message cost more with 100,000 queues, 10,000 connections, consumers or bindings, or 10 million messages than with few; an hour, BENCH_ARGS='--divide 100' two minutes
	@.ci/setup bench
	$(BIN)/python -m tests.bench.growth $(BENCH_ARGS)

bench-crowd: ## what 10,000 idle connections, 100,000 that come and go, and queues of a million messages cost others
	@.ci/setup bench
	$(BIN)/python -m tests.bench.crowd

bench-tail: ## the slowest of 5,000 acceptances a second while a backup joins, a checkpoint is written, and a queue of a million is purged, deleted or expires
	@.ci/setup bench
	$(BIN)/python -m tests.bench.tail $(BENCH_ARGS)

test-migrate: ## 100,000 durable messages from a RabbitMQ (Debian's), the migrating command killed in between, and the primary; counted
	@.ci/setup bench
	QPIDHA_MIGRATE_MESSAGES=100000 $(BIN)/python -m pytest -q -n 0 -s tests/interop/test_migrate.py

bench-console: ## what a console that is scraped each second costs its broker, with 1,000 and 10,000 queues; how soon health is answered under load
	@.ci/setup bench
	$(BIN)/python -m tests.bench.console
	$(BIN)/python -m tests.bench.health

bench-pressure: ## a slower consumer, little memory and small disks: senders wait, nothing is rejected or lost (SECONDS_OF_PRESSURE a row of 16)
	@.ci/setup bench
	$(BIN)/python -m tests.bench.pressure --seconds $(SECONDS_OF_PRESSURE)

lock: ## rewrite the lock files from pyproject.toml (needs uv on the PATH)
	@for pair in "requirements --extra=dev pyproject.toml" "requirements-build --group=pyproject.toml:build" \
	    "requirements-kerberos --extra=kerberos --constraints=requirements.lock --no-annotate pyproject.toml" \
	    "requirements-data --extra=data --constraints=requirements.lock --no-annotate pyproject.toml" \
	    "requirements-docs --group=pyproject.toml:docs --constraints=requirements.lock --constraints=requirements-data.lock --no-annotate"; do \
	    set -- $$pair; name=$$1; shift; \
	    { echo "# Written by 'make lock' from pyproject.toml; do not edit."; \
	      uv pip compile "$$@" --universal --python-version 3.11 --generate-hashes --no-header --quiet; } > $$name.lock.new; \
	    mv $$name.lock.new $$name.lock; \
	done

wheels: ## dist/wheels: this package and all that a host needs, by the lock file, with proton compiled
	@packages/wheels

deb: wheels man ## dist/*.deb for Debian 12: daemon, console and units; agents for Pacemaker
	@packages/deb

test-deb: ## of all tests those of the packages: they are made, looked into, installed on hosts in namespaces, started, made a cluster, purged (as root)
	@.ci/setup packages
	$(BIN)/python -m pytest tests/packages $(PYTEST_ARGS)

image: deb ## an image of a broker, made by CONTAINERS (podman, or docker), which fetches Debian's from its registry
	@version=$$(build/tools/bin/hatchling version); $(CONTAINERS) build -f packages/containers/Containerfile \
	    --build-arg VERSION=$$version -t qpidha -t qpidha:$$version .

test-image: image ## the compose file: three containers and a console, a killed primary (with podman-compose, or docker compose)
	@.ci/setup demo
	QPIDHA_CONTAINERS=$(CONTAINERS) $(BIN)/python -m pytest tests/packages/test_containers.py $(PYTEST_ARGS)

clean: ## remove everything that was made
	rm -rf .venv demo verify cluster b1 b2 b3 b?.log tests/interop/node_modules tests/bench/build .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
