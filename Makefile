# The two commands of this project: `make rehearse` and `make test`.
STACK ?= dev
# The first of these that is 3.11 or newer.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null && echo $$python && break; done)
ARGS ?=
VENV := venv
BIN := $(VENV)/bin
# Python keeps what it compiles, also where the environment says otherwise: the packages here take a process 10 s.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: rehearse test test-fast test-slow test-nodes test-kubernetes fuzz mutants check format golden node-packages kubernetes-tools clean

## Bring a stack up and down in an embedded AWS account, then boot its nodes where the machine can: make rehearse STACK=eks-gpu ARGS="--report report.html"
rehearse: $(VENV)/.ready
	$(BIN)/python -m rehearsal --stack $(STACK) $(ARGS)
	$(BIN)/python -m rehearsal nodes --stack $(STACK) --if-possible
	$(BIN)/python -m rehearsal eks --stack $(STACK) --if-possible

## Format, lint, types, and every test; what needs root, packages or built programs says so where it cannot run
test: check test-fast test-slow test-nodes test-kubernetes

## The fast suite: under a minute
test-fast: $(VENV)/.ready
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow and not root and not kubernetes"

## What takes longer: a failure of every single resource, every option of every variant
test-slow: $(VENV)/.ready
	$(BIN)/python -m pytest -n auto -m "slow and not root and not kubernetes"

## What needs root and the packages of `make node-packages`: every fault while nodes boot a real Slurm
test-nodes: $(VENV)/.ready
	$(BIN)/python -m pytest -n 2 -m root

## What needs the programs of `make kubernetes-tools`: both EKS stacks, jobs, rights and removal on a real Kubernetes API
test-kubernetes: $(VENV)/.ready
	$(BIN)/python -m rehearsal.kubernetes.binaries --wait
	$(BIN)/python -m rehearsal.kubernetes.network $(BIN)/python -m pytest -m kubernetes

## Ten thousand made-up inputs for everything that reads what others write; the fast suite tries a hundred
fuzz: $(VENV)/.ready
	HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest -n auto -m fuzz --timeout 3600

## How many small mistakes the fast suite notices, by a random sample: make mutants ARGS="--sample 50 --seed 7"
mutants: $(VENV)/.ready
	$(BIN)/python -m benchmarks.mutants $(ARGS)

check: $(VENV)/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/shellcheck $$(git ls-files '*.sh' '*.sbatch' '.ci/run' '*/image/torchrun')
	$(BIN)/mypy components stack operations rehearsal docs __main__.py
	PYTHONPATH=.:lifecycle $(BIN)/lint-imports --no-logo > /dev/null || PYTHONPATH=.:lifecycle $(BIN)/lint-imports

## Write down anew what golden stacks deploy and nodes boot to (tests/golden): read the diff
golden: $(VENV)/.ready
	$(BIN)/python -m tests.golden.renew

format: $(VENV)/.ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Made anew when a pinned dependency changes. Pulumi.yaml names the same folder.
$(VENV)/.ready: requirements.txt requirements-dev.txt
	$(if $(PYTHON),,$(error There is no Python 3.11 or newer. Install one, or name it with PYTHON=))
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check $$(grep -o '^uv==[0-9.]*' requirements-dev.txt)
	$(BIN)/uv pip install --quiet --python $(BIN)/python -r requirements-dev.txt
	touch $@

## Debian packages for the nodes' rehearsal (root): MUNGE, sshd, OpenMPI, PyTorch on the CPU; and real Slurms, in ~/.cache/hyperpod-tools
node-packages: $(VENV)/.ready
	test -e /usr/sbin/policy-rc.d || { printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d; }
	apt-get update -q
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $$($(BIN)/python -m rehearsal.nodes.requirements)
	$(BIN)/python -m rehearsal.nodes.slurm_packages

## Kubernetes' own programs for the rehearsal of EKS stacks, built with Go and kept in ~/.cache/hyperpod-tools
kubernetes-tools: $(VENV)/.ready
	$(BIN)/python -m rehearsal.kubernetes.binaries

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
