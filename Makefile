# make setup | check | test | test-page | test-vllm | test-clients | conformance | conformance-peers | coverage | demo | stack | bench-streams | bench-workers | bench-micro | bench-dataplane | bench-vllm | bench-routing | validate-simulator | soak | chaos
# Everything lands in .venv (and .venv-vllm, .tools); nothing is installed elsewhere.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := prefix_router conformance tests benchmarks scripts

.PHONY: setup check format test test-page test-vllm test-clients conformance conformance-peers coverage demo stack bench-streams bench-workers bench-micro bench-dataplane bench-vllm bench-routing validate-simulator soak chaos clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "prefix_router needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,page]'
	touch $@

check: setup
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

# Files of tests run side by side; TEST_JOBS= runs them one after the other.
TEST_JOBS ?= --numprocesses auto --maxprocesses 4 --dist loadfile

test: setup
	scripts/install_tools.sh
	$(BIN)/python -m pytest -m 'not vllm and not page and not clients' $(TEST_JOBS)

# The admin page in a browser: Debian's Chromium, driven by playwright. Pictures land in build/page.
test-page: setup
	scripts/install_tools.sh page
	$(BIN)/python -m pytest -m page tests/page

test-vllm: setup
	scripts/setup_vllm.sh .venv-vllm
	$(BIN)/python -m pytest -m vllm tests/vllm -s

# openai, anthropic, langchain-openai, litellm and curl, from an environment of their own.
test-clients: setup
	scripts/setup_clients.sh .venv-clients
	$(BIN)/python -m pytest -m clients tests/clients

conformance: setup
	$(BIN)/python -m conformance --start prefix_router

conformance-peers: setup
	scripts/setup_peers.sh .venv-peers vllm-router smg
	mkdir -p build/conformance
	for router in prefix_router vllm-router smg; do \
	  $(BIN)/python -m conformance --start $$router --json build/conformance/$$router.json || test $$? -eq 1 || exit 2; \
	done
	$(BIN)/python -m conformance.compare build/conformance/prefix_router.json build/conformance/vllm-router.json \
	  build/conformance/smg.json > docs/conformance.md

coverage: setup
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q -m 'not vllm and not page and not clients'
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --show-missing --skip-covered

# The tables of docs/metrics.md, from the code.
reference: setup
	$(BIN)/python -m prefix_router.observe.reference docs/metrics.md

demo: setup
	$(BIN)/prefix-router demo

stack: setup
	scripts/install_tools.sh
	PATH="$$PWD/.tools/bin:$$PATH" $(BIN)/prefix-router stack --rules config/alerts.yml

bench-streams: setup
	$(BIN)/python benchmarks/streams.py --output benchmarks/results/streams.json

bench-workers: setup
	$(BIN)/python -m benchmarks.workers
	$(BIN)/python -m benchmarks.lines

bench-micro: setup
	$(BIN)/python -m benchmarks.micro

bench-dataplane: setup
	scripts/install_tools.sh bench
	scripts/setup_bench_python.sh
	PYTHON="$$(readlink -f .venv-bench/bin/python)" scripts/setup_peers.sh
	$(BIN)/python -m benchmarks.dataplane --seconds 3 --workers

bench-vllm: setup
	scripts/setup_vllm.sh .venv-vllm
	$(BIN)/python -m benchmarks.vllm_fleet

# Recorded traffic is looked for below TRACES; docs/simulator.md says which files.
TRACES ?= traces

bench-routing: setup
	$(BIN)/python -m benchmarks.fleetsim_grid --traces '$(TRACES)'

validate-simulator: setup
	scripts/setup_vllm.sh .venv-vllm
	$(BIN)/python -m benchmarks.validation

soak: setup
	$(BIN)/python -m benchmarks.soak
	$(BIN)/python -m benchmarks.soak --workers 2

chaos: setup
	$(BIN)/python -m benchmarks.chaos
	$(BIN)/python -m benchmarks.chaos --workers 2

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
