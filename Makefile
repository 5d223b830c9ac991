# Inferway: two commands matter, `make up` and `make test`; both install what they need.
SHELL := bash
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
LOCK := requirements-dev.lock
STAMP := .venv/.installed-$(shell sha256sum $(LOCK) 2>/dev/null | cut -c1-16)
COMPILE := uv pip compile -q --universal --generate-hashes --no-annotate --no-header --no-emit-index-url --override requirements/overrides.txt

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' Makefile | awk -F':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

setup: $(STAMP) ## install everything into .venv (uv is fetched by pip, versions and hashes come from the lock)

$(STAMP): $(LOCK) pyproject.toml
	@deploy/local/setup.sh "$(PYTHON)" "$(LOCK)"
	@rm -f .venv/.installed-* && touch $@

up: setup ## start the whole mesh on this machine and print how to talk to it
	@$(BIN)/inferway up

down: setup ## stop everything that `make up` started
	@$(BIN)/inferway down

logs: setup ## follow the logs of all services
	@$(BIN)/inferway logs --follow

gen: setup ## compile protos/ into protos/gen
	@protos/generate.sh

gen-check: setup ## fail when protos/gen is not what protos/ compiles to
	@protos/check.sh

proto-lint: setup ## buf lint, and buf breaking against the last released contracts
	@$(BIN)/buf lint protos/gen/inferway.binpb --config buf.yaml
	@$(BIN)/buf breaking protos/gen/inferway.binpb --against protos/released.binpb --config buf.yaml

proto-release: gen ## make the present contracts the ones that `proto-lint` compares with
	@cp protos/gen/inferway.binpb protos/released.binpb

fmt: setup ## format and sort imports
	@$(BIN)/ruff format -q . && $(BIN)/ruff check -q --fix .

lint: setup ## ruff
	@$(BIN)/ruff check . && $(BIN)/ruff format --check -q .

types: setup ## mypy --strict
	@$(BIN)/mypy

test: lint types gen-check proto-lint test-unit test-mesh ## everything CI runs

test-unit: setup ## unit and contract tests
	@$(BIN)/pytest -q tests/unit tests/contract

test-mesh: setup ## integration, e2e and fault tests: real etcd, Kafka, Envoy and processes
	@$(BIN)/pytest -q tests/integration tests/e2e tests/robustness

test-faults: setup ## kill -9 of every part under load, one line per case
	@$(BIN)/pytest -q -p no:randomly -s tests/robustness

verify-compose: setup ## deploy/compose on a container engine, with the README's commands
	@deploy/compose/verify.sh

bench-peers: setup ## install llama.cpp and vLLM below .bench, to be measured beside
	@$(BIN)/python -m bench.peers

bench-engine: bench-peers ## our mesh beside the peers, in turns; ARGS=--quick takes eight minutes
	@$(BIN)/python -m bench.engine $(ARGS)

size: setup ## files, lines and function sizes per package
	@$(BIN)/python -m tests.harness.size

lock: ## resolve the locks anew
	@$(COMPILE) --group dev --extra local pyproject.toml -o $(LOCK)
	@$(COMPILE) --extra gateway --extra router --extra scheduler --extra metering pyproject.toml -o requirements.lock
	@$(COMPILE) --extra engine pyproject.toml -o requirements-engine.lock

.PHONY: help setup up down logs gen gen-check proto-lint proto-release fmt lint types test test-unit test-mesh test-faults verify-compose bench-peers bench-engine size lock
