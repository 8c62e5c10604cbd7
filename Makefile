# Thin on purpose: every target calls a command that can be called without make.
STACK ?= local
TEMPLATE ?= local
PYTHON ?= python3
VENV := .venv
FALAJ := $(VENV)/bin/falaj
SANDBOX_OPTION = $(if $(filter 1 true yes,$(SANDBOX)),--sandbox) $(if $(filter 1 true yes,$(CLUSTER)),--cluster)

.DEFAULT_GOAL := help
CHECK_OPTIONS ?=
# All stacks, unless one is named.
CHECKED = $(if $(filter command environment,$(origin STACK)),--stack $(STACK))
# What was compiled is kept: each of the processes below would do it anew. Engines and API servers
# live for seconds here: a fifth of their time would go into collecting what soon goes with them.
# Threads that wait for each other sleep, and leave the cores to others' tests.
PYTEST := env -u PYTHONDONTWRITEBYTECODE GOGC=300 OMP_WAIT_POLICY=PASSIVE $(VENV)/bin/python -m pytest
# Tests run side by side, the tests of a file in one process, what takes longest first
# (tests/scheduling.py): two more than two cores, for engines and servers wait more than they
# compute.
WORKERS ?= 4
# Those of the cluster have a control plane each, some two: no more of them than cores beside real
# machines; the third begins when those are gone.
CLUSTER_WORKERS ?= 3
SIDE_BY_SIDE = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Property tests run in both: with some of their examples, and with all (tests/conftest.py).
ALL_EXAMPLES = --hypothesis-profile=thorough
SLOWEST = --durations=20
# Simulated machines beside real ones are asked for: a platform's controllers have to run on real ones.
NODES ?= $(if $(REAL),,h200=4,l4=4,cpu=4)
.PHONY: help up preview draw refresh down status check report demo open shell token rollback logs new environment environment-dev cluster cluster-down ensure-test test test-all test-cluster test-fast test-triton test-own-models test-gpu test-alerts lint format docs bench bench-peers bench-gpu lock clean

help: ## Show what can be made
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 14

up: environment ## From nothing to a served model (STACK=local; SANDBOX=1 for stacks in a cloud)
	@$(FALAJ) up --stack $(STACK) $(SANDBOX_OPTION)

preview: environment ## What `make up` would change
	@$(FALAJ) preview --stack $(STACK) $(SANDBOX_OPTION)

draw: environment ## A stack as a drawing (DRAW_OPTIONS="--svg FILE --now …")
	@$(FALAJ) draw --stack $(STACK) $(SANDBOX_OPTION) $(DRAW_OPTIONS)

refresh: environment ## Read what is really there; `make up` then mends drift
	@$(FALAJ) refresh --stack $(STACK) $(SANDBOX_OPTION)

down: environment ## Destroy the stack: processes, ports, keys and data
	@$(FALAJ) down --stack $(STACK) $(SANDBOX_OPTION)

status: environment ## What runs and where
	@$(FALAJ) status --stack $(STACK) $(SANDBOX_OPTION)

check: environment ## Judge all stacks by the policy packs, offline (STACK=name for one; CHECK_OPTIONS="--sarif FILE …")
	@$(FALAJ) check $(CHECKED) $(CHECK_OPTIONS)

report: environment ## Write the evidence of such a check: evidence.html
	@$(FALAJ) report $(CHECKED) $(CHECK_OPTIONS)

demo: environment ## Send held-out samples to the served model
	@$(FALAJ) demo --stack $(STACK)

open: environment ## A page in the browser: try the served model, its versions, live figures
	@$(FALAJ) open --stack $(STACK)

shell: environment ## A shell in which plain `pulumi` commands work
	@$(FALAJ) shell --stack $(STACK) $(SANDBOX_OPTION)

token: environment ## Print an authorisation header for the served model
	@$(FALAJ) token --stack $(STACK)

rollback: environment ## Serve the model's previous version again
	@$(FALAJ) rollback --stack $(STACK)

logs: environment ## Show the latest log lines of the server, or of a stack's pods (WORKLOAD=name for those of one)
	@$(FALAJ) logs $(WORKLOAD) --stack $(STACK) $(SANDBOX_OPTION)

new: environment ## Make a stack file from a template (STACK=name TEMPLATE=local)
	@$(FALAJ) new --stack $(STACK) --template $(TEMPLATE)

# What a stack's platform needs beside the base, `falaj` adds when it is asked for it.
environment:
	@$(PYTHON) engine/environment.py

environment-dev:
	@$(PYTHON) engine/environment.py $(foreach extra,local openvino aws azure kubernetes dev docs,--extra $(extra))

cluster: environment ## A Kubernetes control plane on this machine (NODES="h200=64,l4=16,cpu=20"; BARE=1 for whole platforms; REAL=2 for kubelets, with LOAD=1 and their images)
	@$(FALAJ) cluster up --nodes "$(NODES)" $(if $(REAL),--real $(REAL)) $(if $(filter 1 true yes,$(BARE)),--bare)
	@$(if $(filter 1 true yes,$(LOAD)),$(FALAJ) cluster load)

cluster-down: environment ## End it and remove its files
	@$(FALAJ) cluster down

ensure-test: environment-dev
	@$(FALAJ) engine ensure
	@$(VENV)/bin/python -m falaj.engine.browser ensure
	@$(VENV)/bin/python -m falaj.engine.debian ensure
	@$(VENV)/bin/python -m tests.stacks.page.axe
	@$(FALAJ) cluster ensure --crds

test: environment-dev ## The tests that take minutes, with their own set-up
	@$(FALAJ) engine ensure
	@$(PYTEST) -m "not thorough and not cluster" $(SIDE_BY_SIDE)

# In two runs: real machines whose tests wait for cores miss their times. What took long is told.
test-all: ensure-test ## All the other tests: whole lives of stacks, long trainings, every example, the control plane
	@$(PYTEST) -m "(thorough or hypothesis) and not cluster" $(ALL_EXAMPLES) $(SIDE_BY_SIDE) $(SLOWEST)
	@$(PYTEST) -m cluster tests/cluster $(ALL_EXAMPLES) $(SIDE_BY_SIDE) -n $(CLUSTER_WORKERS) $(SLOWEST)

test-cluster: environment-dev ## The tests on a real control plane
	@$(FALAJ) cluster ensure --crds
	@$(PYTEST) -m cluster tests/cluster $(ALL_EXAMPLES) $(SIDE_BY_SIDE) -n $(CLUSTER_WORKERS) $(SLOWEST)

test-fast: environment-dev ## The tests that take seconds
	@$(PYTEST) -m "not slow and not engine and not thorough and not cluster"

test-alerts: environment-dev ## The platform's alerts, judged by promtool on series made for them
	@$(VENV)/bin/python -m tests.components.kubernetes.alert_cases

test-triton: environment-dev ## Triton's own server behind our service, and beside it; fetches it once (55 MB, 0.4 GB on a disk)
	@$(PYTEST) tests/triton -o python_files='check_*.py'

test-own-models: environment-dev ## Teams' own models of transformers, peft, timm and torchvision; fetches what they need once (30 MB)
	@$(PYTEST) tests/own_models -o python_files='check_*.py'

test-gpu: environment-dev ## The checks that need an NVIDIA GPU; fails where there is none
	@$(PYTEST) tests/gpu -o python_files='check_*.py'

# Pyright takes most of the time.
lint: environment-dev ## ruff, pyright (strict), import direction
	@$(VENV)/bin/pyright --threads & types=$$!; trap "kill $$types" INT TERM; status=0; \
	  $(VENV)/bin/ruff check . || status=$$?; \
	  $(VENV)/bin/ruff format --check . || status=$$?; \
	  $(VENV)/bin/lint-imports || status=$$?; \
	  wait $$types || status=$$?; \
	  exit $$status

format: environment-dev ## Put the code into its standard form
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

# The reference is made from the components and settings: the SDKs that they import have to be there.
docs: ## The documentation as pages to read without a network: out/docs/index.html
	@$(PYTHON) engine/environment.py $(foreach extra,aws azure kubernetes docs,--extra $(extra))
	@$(VENV)/bin/sphinx-build -q -W --keep-going -E -b html docs out/docs
	@echo "documentation: out/docs/index.html"

bench: environment-dev ## Measure the server, quantisation, training and a no-op `up`
	@$(FALAJ) engine ensure
	@$(FALAJ) cluster ensure
	@$(PYTEST) tests/benchmarks -o python_files='bench_*.py' --benchmark-only -q -s

bench-peers: environment-dev ## Measure server and training beside others', which are fetched once (Triton, MLServer, LitServe, BentoML, Lightning Fabric)
	@$(PYTEST) tests/peers -o python_files='bench_*.py' --benchmark-only -q -s

bench-gpu: environment-dev ## Measure the training of a language model of a billion weights on NVIDIA GPUs, beside Lightning Fabric; fails where there is none
	@$(PYTEST) tests/gpu -o python_files='bench_*.py' --benchmark-only -q -s

lock: ## Pin the requirements again
	@for name in bootstrap base local openvino aws azure kubernetes dev docs checkov grpc-clients triton peers-bentoml peers-fabric peers-litserve peers-mlserver own-models image-inference image-training image-workspace; do \
	  case $$name in dev|docs|own-models) excluded=;; *) excluded="--excludes requirements/excluded-but-dev";; esac; \
	  case $$name in peers-fabric) excluded="$$excluded --excludes requirements/excluded-but-ours";; esac; \
	  $(VENV)/bin/uv pip compile -q --upgrade --generate-hashes --universal --python-version 3.11 --no-emit-index-url \
	    --excludes requirements/excluded $$excluded --custom-compile-command "make lock" requirements/$$name.in -o requirements/$$name.txt; done

clean: ## Remove the environment and build leftovers (not stacks, not caches)
	@rm -rf $(VENV) *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
