# The two commands of this project: `make rehearse` and `make test`.
STACK ?= dev
# The first interpreter of these that is 3.11 or newer.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null && echo $$python && break; done)
ARGS ?=
# `no`: make test installs nothing beside Python packages.
SETUP ?= yes
VENV := venv
# For every platform and every Python from 3.11.0 on: the distributions ship old ones.
LOCKED := --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make requirements"
BIN := $(VENV)/bin
# A title and a program: dots meanwhile, and its output only if it fails.
STEP := $(BIN)/python -m tools.step
# Keep compiled bytecode even if the environment disables it: without it, importing the packages takes 10 s.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: rehearse test test-fast test-slow test-metrics test-nodes test-kubernetes fuzz mutants check audit checkov sbom requirements format golden docs docs-reference pictures recording node-packages kubernetes-tools clean

## Bring a stack up and down in an embedded AWS account, then rehearse its nodes or Kubernetes objects: make rehearse STACK=eks-gpu ARGS="--report report.html"
rehearse: $(VENV)/.ready
	@$(BIN)/hyperpod rehearse $(STACK) --all $(ARGS)

## Format, lint, types and every test. Installs what they need, where it can: node packages as root on Debian, Kubernetes programs with Go; with SETUP=no it does not. What cannot run says so
test: $(VENV)/.tests
	@SETUP=$(SETUP) PYTHON_OF_TESTS=$(BIN)/python tools/with_setup.sh \
		$(MAKE) check audit test-fast test-slow test-metrics test-nodes test-kubernetes

## The fast suite: about a minute on two cores
test-fast: $(VENV)/.tests
	$(BIN)/python -m pytest -n auto --dist worksteal -o faulthandler_timeout=0 -m "not slow and not root and not kubernetes"

## The slow tests: a failure of every single resource, every option of every variant
test-slow: $(VENV)/.tests
	$(BIN)/python -m pytest -n auto --dist loadgroup -m "slow and not root and not kubernetes and not prometheus"

## Tests that need the programs of Debian's Prometheus (`make node-packages`): every alert on a made-up fleet
test-metrics: $(VENV)/.tests
	$(BIN)/python -m pytest -n 2 -m prometheus

## Tests that need root and the packages of `make node-packages`: every fault while nodes boot a real Slurm; three at a time, since they mostly wait
test-nodes: $(VENV)/.tests
	$(BIN)/python -m pytest -n 3 -m root

## Tests that need the programs of `make kubernetes-tools`: EKS stacks, jobs, permissions, removal on a real Kubernetes API; two at a time, each process in a network of its own
test-kubernetes: $(VENV)/.tests
	-flock $${XDG_CACHE_HOME:-$$HOME/.cache}/hyperpod-tools/.lock echo 'No other run is building the programs.'
	$(BIN)/python -m pytest -m kubernetes --dist loadgroup \
		--tx '2*popen//python=$(BIN)/python -m rehearsal.kubernetes.network $(BIN)/python'

## Ten thousand random inputs for everything that parses files from others; the fast suite tries fifty
fuzz: $(VENV)/.tests
	HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest -n auto -m fuzz --timeout 7000 -o faulthandler_timeout=7200

## How many small mutations the fast suite detects, estimated from a random sample: make mutants ARGS="--sample 50 --seed 7"
mutants: $(VENV)/.tests
	$(BIN)/python -m benchmarks.mutants $(ARGS)

check: $(VENV)/.tests
	@$(STEP) "Format" $(BIN)/ruff format --check .
	@$(STEP) "Lint" $(BIN)/ruff check .
	@$(STEP) "Shell scripts" $(BIN)/shellcheck $$(git ls-files '*.sh' '*.sbatch' '.ci/run' '*/image/torchrun')
	@$(STEP) "Types" $(BIN)/mypy components operations rehearsal lifecycle tests docs tools benchmarks hyperpod.py __main__.py
	@$(STEP) "Types on Ubuntu 22.04" $(BIN)/mypy --python-version 3.10 lifecycle
	@$(STEP) "Types on Ubuntu 24.04" $(BIN)/mypy --python-version 3.12 lifecycle
	@PYTHONPATH=.:lifecycle $(STEP) "Imports" $(BIN)/lint-imports --no-logo
	@$(STEP) "English" $(BIN)/python -m tools.prose

## Licences and known vulnerabilities of the locked packages, and secrets in the project's files; says so where the database is out of reach
audit: $(VENV)/.tests
	@$(STEP) "Licences" $(BIN)/pip-licenses --output-file /dev/null
	$(BIN)/python -m tools.supply.audit || [ $$? -eq 3 ]

## Whether checkov finds in what the golden stacks deploy only what tests/checkov/accepted.csv explains; installs it once, in ~/.cache/hyperpod-tools
checkov: $(VENV)/.tests
	$(BIN)/python -m pytest -n 0 -m slow tests/checkov

## Write sbom.cdx.json (CycloneDX): every package of venv/ with its licence; cyclonedx-py gets an environment of its own
sbom: $(VENV)/.tests
	$(BIN)/uv tool run --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py environment $(BIN)/python --output-file sbom.cdx.json

## Renew tests/golden: what stacks deploy and what nodes look like after a boot; read the diff
golden: $(VENV)/.tests
	$(BIN)/python -m tests.golden.renew

## Build docs/ as a site in site/, for a server or to open site/index.html; a link that leads nowhere is an error
docs: $(VENV)/.docs
	$(BIN)/zensical build --strict
	@echo "The site is in site/: open site/index.html"

## Write docs/keys/ from Pulumi.yaml and the typed model, and docs/troubleshooting.md from operations/failures/known/
docs-reference: $(VENV)/.tests
	$(BIN)/python -m tools.pages.reference

## Renew the report's pictures in docs/pictures with Chromium
pictures: $(VENV)/.tests
	$(BIN)/python -m tools.pages.pictures

## Renew the terminal recording of the README; needs asciinema 2.4 (pip) and svg-term-cli 2.1 (npm) on PATH
recording: $(VENV)/.tests
	PATH=$(abspath $(BIN)):$$PATH asciinema rec --quiet --overwrite --cols 100 --rows 76 \
		--command "hyperpod rehearse dev" $(BIN)/../rehearse.cast
	tail -n 1 $(BIN)/../rehearse.cast | jq -c '[.[0] + 10, "o", ""]' >> $(BIN)/../rehearse.cast  # the end stays
	svg-term --in $(BIN)/../rehearse.cast --out docs/pictures/rehearse.svg --window --no-cursor

format: $(VENV)/.tests
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

## Write the requirements' .txt files: every package that the .in files lead to, by version and hash; a file has only what those that it names have not
requirements: $(VENV)/.tests
	$(BIN)/uv pip compile $(LOCKED) requirements.in -o requirements.txt
	$(BIN)/uv pip compile $(LOCKED) requirements.in rehearsal/requirements.in -c requirements.txt -o rehearsal/requirements.txt
	$(BIN)/uv pip compile $(LOCKED) requirements-docs.in -c rehearsal/requirements.txt -o requirements-docs.txt
	$(BIN)/uv pip compile $(LOCKED) requirements-dev.in -c rehearsal/requirements.txt -c requirements-docs.txt -o requirements-dev.txt
	$(BIN)/uv pip compile $(LOCKED) tests/checkov/requirements.in -o tests/checkov/requirements.txt
	perl -0pi -e 's/ \\\n +/ /g' requirements*.txt rehearsal/requirements.txt tests/checkov/requirements.txt
	{ echo "-r ../requirements.txt"; grep -vxF -f requirements.txt rehearsal/requirements.txt; } > .locked && mv .locked rehearsal/requirements.txt
	{ echo "-r rehearsal/requirements.txt"; grep -vxF -f requirements.txt -f rehearsal/requirements.txt requirements-docs.txt; } > .locked && mv .locked requirements-docs.txt
	{ echo "-r requirements-docs.txt"; grep -vxF -f requirements.txt -f rehearsal/requirements.txt -f requirements-docs.txt requirements-dev.txt; } > .locked && mv .locked requirements-dev.txt

# Says in one line what is wrong with the interpreter, before anything is made.
define CHECK_PYTHON
	@$(if $(PYTHON),,echo "No Python 3.11 or newer was found. Install one, or set PYTHON= to its path." >&2; exit 2;) \
	command -v "$(PYTHON)" > /dev/null || { echo "PYTHON=$(PYTHON) is no program." >&2; exit 2; }; \
	"$(PYTHON)" -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and \
		"%s is Python %d.%d: this needs 3.11 or newer. Choose another: make PYTHON=python3.12" % (sys.executable, v[0], v[1]) or 0)'
endef

# What people need: the program, its verbs and the rehearsal. Updated when a pinned dependency changes. Pulumi.yaml names
# the same folder, and needs requirements.txt alone.
$(VENV)/.ready: requirements.txt rehearsal/requirements.txt pyproject.toml
	$(CHECK_PYTHON)
	@$(PYTHON) tools/environment.py $(VENV) rehearsal/requirements.txt
	@touch $@

# What tests and checks need on top of it.
$(VENV)/.tests: requirements.txt rehearsal/requirements.txt requirements-dev.txt pyproject.toml
	$(CHECK_PYTHON)
	@$(PYTHON) tools/environment.py $(VENV) requirements-dev.txt
	@touch $@ $(VENV)/.ready

# What the site of docs/ needs on top of it.
$(VENV)/.docs: requirements-docs.txt $(VENV)/.ready
	@$(BIN)/uv pip install --quiet --python $(BIN)/python -r requirements-docs.txt
	@touch $@

## Install the Debian packages of the node rehearsal (needs root): MUNGE, sshd, OpenMPI, PyTorch for CPUs, Prometheus; and Slurm releases, in ~/.cache/hyperpod-tools
node-packages: $(VENV)/.ready
	test -e /usr/sbin/policy-rc.d || { printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d; }
	apt-get update -q
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $$($(BIN)/python -m rehearsal.nodes.requirements)
	$(BIN)/python -m rehearsal.nodes.slurm_packages

## Build the Kubernetes programs for the rehearsal of EKS stacks with Go, in ~/.cache/hyperpod-tools
kubernetes-tools: $(VENV)/.ready
	$(BIN)/python -m rehearsal.kubernetes.binaries

clean:
	rm -rf $(VENV) site .cache .mypy_cache .ruff_cache .pytest_cache
