# Everything sets itself up: a virtual environment in .venv, every version from constraints.txt.
# The second run starts at once, because .venv/.ready is newer than what it was made from.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# What was given on the command line, each word quoted for the shell, without what is make's own.
given = $(foreach v,$(filter-out PYTHON VENV,$(.VARIABLES)),$(if $(filter command line,$(origin $v)),'$v=$(subst ','\'',$($v))'))

.DEFAULT_GOAL := help
.PHONY: help simulate plan check test lint extras table study compare audit bench soak bench-secagg methods clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16
	@echo
	@echo "Settings for simulate and plan, as NAME=VALUE, with their defaults in brackets:"
	@$(PYTHON) -m config.describe
	@echo
	@echo "  e.g.  make simulate SILOS=10 METHOD=fedavg PARTITION=dirichlet:0.5 SEED=1"

simulate: $(READY)  ## run a federation on this machine (ten silos, lazymil); a report
	@$(BIN)/sottovoce simulate $(given)

plan: $(READY)  ## what a run would cost: bytes, memory, time; also BANDWIDTH=1e6
	@$(BIN)/sottovoce plan $(given)

methods: $(READY)  ## list the methods
	@$(BIN)/sottovoce methods

check: $(READY) lint  ## under a minute: lint, types, the tests that need no process
	@$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow" --ignore=tests/system --ignore=tests/browser

test: $(READY) lint  ## lint, types, import rules and all tests
	@$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(READY)  ## ruff (layout and rules), mypy and the import rules
	@$(BIN)/ruff format --check --quiet . || { echo "The layout is not that of ruff format; run: $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache >$(VENV)/imports.txt || { cat $(VENV)/imports.txt; exit 1; }

table: $(READY)  ## a paper's comparison: PAPER=lazymil SIZE=minutes|hours SEEDS=3
	@$(BIN)/python -m bench.papers.table $(given)

study: $(READY)  ## honest comparison: PAPER=fedcmc CORPUS=folder BUDGET=hours
	@$(BIN)/python -m bench.studies.run $(given)

compare: $(READY)  ## one page over methods: METHODS="fedavg feded" SEEDS=3 TARGET=0.5
	@$(BIN)/python -m bench.compare $(given)

soak: $(READY)  ## bad frames, kills and faults, for hours: SEEDS=200 DONE=file
	@$(BIN)/python -m tests.faults.fuzz --frames $(or $(FRAMES),1000000)
	@$(BIN)/python -m tests.faults.long_life
	@$(BIN)/python -m tests.faults.soak --done $(or $(DONE),soak.json) --seeds $(or $(SEEDS),200) --consortia $(or $(SEEDS),200)

audit: $(READY)  ## attack a run: RUN=runs/x, or METHOD=fedavg DP=record PLAYS=500
	@$(BIN)/python -m bench.audit $(given)

bench-secagg: $(READY)  ## the secure sum's cost: PEER=flower QUICK=1 RESUME=file
	@$(BIN)/python -m bench.speed.secagg $(if $(PEER),--peer $(PEER)) $(if $(QUICK),--quick) $(if $(RESUME),--resume $(RESUME))

bench: $(READY)  ## speed, as ratios measured in one run; PEER=pfl or flower
ifdef PEER
	@$(BIN)/python -m bench.speed.frames $(given)
else
	@$(BIN)/python -m bench.speed.runners $(given)
	@$(BIN)/python -m bench.speed.distant
	@$(BIN)/python -m bench.speed.document $(given)
	@$(BIN)/python -m bench.speed.dpsgd
	@$(BIN)/python -m bench.speed.precision $(given)
	@$(BIN)/python -m bench.speed.parts $(given)
	@$(BIN)/python -m bench.speed.large
	@$(BIN)/python -m bench.speed.crowd
endif

# torch first, alone: with it in place no other package asks for a build that brings CUDA along.
$(READY): constraints.txt pyproject.toml
	@echo "setting up $(VENV) (once; a few minutes) …"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Sottovoce needs Python 3.11 or newer; set PYTHON=python3.11."; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) "$$(grep '^torch==' constraints.txt)"
	@$(PIP) "$$(grep '^setuptools==' constraints.txt)"
	@$(PIP) "$$(grep '^seqeval==' constraints.txt)"  # its build needs tools of its own, which the next line would not give
	@$(PIP) --no-build-isolation -e '.[dev]'
	@touch $@

# What some tests want and no run needs; without them `make test` skips those tests and says so.
extras: $(VENV)/.extras  ## install the optional Ray, TensorBoard, MLflow, spaCy

$(VENV)/.extras: $(READY)
	@$(PIP) --no-build-isolation -e '.[dev,ray,tensorboard,mlflow,spacy]'
	@touch $@

clean:  ## remove the environment and caches (runs are kept)
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
