# Everything is installed into .venv, without root. `make help` lists the targets.
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Bytecode is kept, whatever the shell says: compiling all modules anew in every process took a quarter of the tests' time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := check
.PHONY: help install demo images images-load deploy faults test test-cluster test-hub test-kserve test-libraries test-lowest test-slow test-whole universe minio lint check pins sbom golden docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## install podium and its pinned dependencies into .venv

$(STAMP): requirements/pins.txt pyproject.toml
	@scripts/bootstrap requirements/pins.txt $(VENV)
	@touch $@

# The small network makes it a matter of a minute, also on processors without bf16; NETWORK=tutorial is the tutorial's.
# A second `make demo` trains a challenger for the champion of the first; SEED=2 gives it another search and other weights, on the same split.
NETWORK ?= fast
SEED ?= 1

demo: $(STAMP) ## tune, train, evaluate and promote on real MNIST, on this machine (NETWORK=tutorial, SEED=2)
	@$(BIN)/podium run tune_and_promote network=$(NETWORK) epochs=2 seed=$(SEED)

# Many tests wait for processes and clocks, so two more than there are cores run in parallel, each with one PyTorch
# thread. JOBS=0 runs them one after the other.
JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)

PYTEST = $(if $(filter 0,$(JOBS)),,OMP_NUM_THREADS=1) $(BIN)/pytest -n $(JOBS) --dist worksteal

test: $(STAMP) ## the fast tests (JOBS=0: one after the other)
	@$(PYTEST) -m "not whole and not slow and not cluster"

test-whole: $(STAMP) ## tests of whole runs, sweeps, servers and pages: a sixth of the tests, most of the time
	@$(PYTEST) -m "whole and not slow and not cluster"

test-slow: $(STAMP) ## the slow tests: whole pipelines, kills, races, big files
	@$(BIN)/pytest -m "slow and not cluster"

SEEDS ?= 0:20000

universe: $(STAMP) ## registry, sweeps, pools and runs under many schedules and faults, by seeds (SEEDS=0:20000, about an hour; SEEDS=17 shows one)
	@OMP_NUM_THREADS=1 $(BIN)/python tests/universe/run.py $(SEEDS)

faults: $(STAMP) ## every fault against every command, with real processes; writes docs/reliability.md (an hour or more, root)
	@OMP_NUM_THREADS=1 $(BIN)/python benchmarks/faults.py --write docs/reliability.md

KSERVE := $(VENV)/rivals/kserve

test-kserve: $(STAMP) ## the protocol of `podium serve` with kserve's own client, which is installed into an environment of its own
	@test -d $(KSERVE) || $(BIN)/uv venv -q -p $(BIN)/python $(KSERVE)
	@$(BIN)/uv pip install -q -p $(KSERVE)/bin/python -r benchmarks/rivals/kserve.txt
	@$(BIN)/pytest -rs tests/serving/test_kserve_client.py

test-hub: $(STAMP) ## podium models export --to hub, with the server of Kubeflow's Model Registry at PODIUM_TEST_HUB
	@$(BIN)/pytest -rs -m "" tests/models/test_hub.py

LIBRARIES := build/libraries

# An environment of its own that sees the packages of .venv, so that PyTorch is not installed twice.
$(LIBRARIES)/.installed: $(STAMP) tests/libraries/requirements.txt
	@$(BIN)/uv venv -q --clear --python $(BIN)/python $(LIBRARIES)
	@$(BIN)/python -c "import site; print(f'import site; site.addsitedir({site.getsitepackages()[0]!r})')" \
	  >$$($(LIBRARIES)/bin/python -c "import site; print(site.getsitepackages()[0])")/podium.pth
	@$(BIN)/uv pip install -q --python $(LIBRARIES)/bin/python --no-deps -r tests/libraries/requirements.txt
	@touch $@

test-libraries: $(LIBRARIES)/.installed ## scripts of other libraries as they are: Hugging Face, Lightning, Keras, XGBoost …
	@$(BIN)/pytest tests/libraries

LOWEST := build/lowest

# Transitive packages are the newest, and warn of what the old ones do.
$(LOWEST)/.installed: $(STAMP) pyproject.toml
	@$(BIN)/uv venv -q --clear --seed --python $(BIN)/python $(LOWEST)
	@$(BIN)/uv pip install -q --python $(LOWEST)/bin/python --resolution lowest-direct -e '.[serve,ui,sign,grpc]' \
	  'pytest>=8.4' 'pytest-timeout>=2.4' 'httpx>=0.27' 'tritonclient[http]>=2.50'
	@touch $@

test-lowest: $(LOWEST)/.installed ## the server and the pages with the lowest versions that pyproject.toml allows
	@OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -W ignore::DeprecationWarning \
	  tests/serving/test_serve.py tests/serving/test_watch.py tests/ui/test_pages.py

MINIO_VERSION := v0.0.0-20260212201848-7aac2a2c5b7c

minio: ## build a MinIO server for the tests into ~/.cache/podium/bin (needs Go; takes minutes)
	GOBIN="$${XDG_CACHE_HOME:-$$HOME/.cache}/podium/bin" go install github.com/minio/minio@$(MINIO_VERSION)

lint: $(STAMP) ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy src/podium

check: lint test ## lint and fast tests

COMPILE = $(BIN)/uv pip compile -q --universal --python-version 3.11 \
  --no-header --no-annotate --no-emit-index-url --no-emit-find-links
# Names and versions alone: scripts/pins adds the hashes.
SUBSET = $(COMPILE) -c requirements/pins.txt

# Steps train nothing: sqlalchemy and alembic are for optuna's own database, pygments and markdown-it-py for code and
# Markdown on a terminal, google-cloud-storage for Google's buckets as sources of pipelines, narwhals for plotly's figures
# from DataFrames; setuptools only builds the images.
NOT_IN_STEPS = sqlalchemy alembic setuptools pygments markdown-it-py google-cloud-storage narwhals

# A server reads a registry and runs models: no pipelines, no cluster, no search, no reports.
NOT_IN_SERVE = kfp kfp-kubernetes kubernetes optuna cmaes scipy cronsim google-re2 safetensors plotly setuptools pygments \
  markdown-it-py

pins: $(STAMP) ## update the pinned requirement files from pyproject.toml
	@$(COMPILE) --generate-hashes --group build --group docs --extra dev pyproject.toml -o requirements/pins.txt
	@$(SUBSET) --group build --extra torch pyproject.toml -o requirements/trainer.txt
	@printf "%s; sys_platform == 'never'\n" $(NOT_IN_STEPS) >$(VENV)/not-in-steps.txt
	@$(SUBSET) --overrides $(VENV)/not-in-steps.txt --group build pyproject.toml | grep -v never >requirements/steps.txt
	@printf "%s; sys_platform == 'never'\n" $(NOT_IN_SERVE) >$(VENV)/not-in-serve.txt
	@$(SUBSET) --overrides $(VENV)/not-in-serve.txt --extra serve --extra sign pyproject.toml \
	  | grep -v never >requirements/serve.txt
	@$(COMPILE) --generate-hashes --group sbom -o scripts/sbom/requirements-sbom.txt

CYCLONEDX := build/cyclonedx

# In an environment of its own, so that it does not list itself.
$(CYCLONEDX)/.installed: $(STAMP) scripts/sbom/requirements-sbom.txt
	@$(BIN)/uv venv -q --clear --python $(BIN)/python $(CYCLONEDX)
	@$(BIN)/uv pip install -q --python $(CYCLONEDX)/bin/python --no-deps --require-hashes -r scripts/sbom/requirements-sbom.txt
	@touch $@

sbom: $(CYCLONEDX)/.installed ## write what runs beside podium, as CycloneDX with licenses, and check these: build/sbom/podium-ml.cdx.json
	@mkdir -p build/sbom
	@$(CYCLONEDX)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o $(CYCLONEDX)/environment.json $(BIN)/python
	@$(BIN)/python scripts/sbom/runtime $(CYCLONEDX)/environment.json build/sbom/podium-ml.cdx.json \
	  requirements/trainer.txt requirements/steps.txt requirements/serve.txt
	@echo build/sbom/podium-ml.cdx.json

# Any builder with the options of `docker build`: podman build, buildah bud.
BUILD ?= docker build
# How an image gets into the cluster: kind load docker-image, minikube image load; `true` if BUILD does it.
LOAD ?= kind load docker-image
TAG ?= 0.1.0
# The commit, for the metadata of models: the images have no checkout.
CODE_VERSION = $(TAG)+$(shell git describe --always --exclude='*' --abbrev=12 --dirty=.changed)

# An index of PyTorch's wheels without CUDA, which makes a trainer's image of a quarter of the size, or for another CUDA.
TORCH_INDEX ?=
# Anything for pods with GPUs: the trainer's image of the default index then has all of CUDA.
GPU ?=
# `no` for a builder without --output (Docker's before BuildKit).
SBOM ?= yes

images: ## build the three images; their ids and SBOMs in build/images (BUILD="podman build", TAG, GPU, TORCH_INDEX)
	@mkdir -p build/images
	$(call image,steps)
	$(call image,serve)
	$(call image,trainer,$(if $(TORCH_INDEX),--build-arg TORCH_INDEX=$(TORCH_INDEX)) $(if $(GPU),--build-arg GPU=$(GPU)))
	$(if $(filter no,$(SBOM)),,$(call sbom,steps))
	$(if $(filter no,$(SBOM)),,$(call sbom,serve))
	$(if $(filter no,$(SBOM)),,$(call sbom,trainer))

image = $(BUILD) --build-arg CODE_VERSION=$(CODE_VERSION) $(BUILD_ARGS) $(2) --iidfile=build/images/podium-$(1).id \
  --target $(1) -t podium-$(1):$(TAG) .
sbom = $(BUILD) --build-arg IMAGE=podium-$(1):$(TAG) --build-arg NAME=podium-$(1) --build-arg VERSION=$(TAG) \
  --build-arg ID=$$(cat build/images/podium-$(1).id) --output=build/images -t podium-sbom:$(TAG) scripts/sbom

images-load: ## bring the images into a kind cluster (LOAD="minikube image load")
	$(LOAD) podium-steps:$(TAG)
	$(LOAD) podium-serve:$(TAG)
	$(LOAD) podium-trainer:$(TAG)

# deploy/seaweedfs for Kubeflow Pipelines 2.15 and later, or an overlay of your own.
DEPLOY ?= deploy

deploy: ## apply deploy/ to the cluster of KUBECONFIG and wait until the bucket is there (DEPLOY=deploy/seaweedfs)
	kubectl apply -k $(DEPLOY)
	kubectl --namespace kubeflow wait --for=condition=Complete --timeout=300s job/podium-bucket

test-cluster: $(STAMP) images images-load deploy ## everything on the cluster of KUBECONFIG: images, deploy/, pipelines, schedules, faults
	@$(BIN)/pytest --cluster -m cluster --timeout 1800 -rs

golden: $(STAMP) ## write the compiled pipelines that tests compare with; review the diff before you commit it
	@for name in tune_and_promote train_and_promote; do \
	  $(BIN)/podium compile $$name -o tests/golden/pipelines/$$name.yaml; done

# What users import besides podium itself: the classes of what its functions return, and what a trainer needs.
API = podium.api.deploy podium.api.jobs podium.api.plots podium.prediction podium.models podium.api.training \
  podium.runner.run podium.runner.runs podium.trainer.kit podium.data.dataset podium.data.artifact podium.errors

DOCS := $(VENV)/.docs-installed

$(DOCS): $(STAMP)
	@touch $@

docs: $(DOCS) ## build the site from docs/ and the reference of the Python API from its docstrings: build/docs/index.html
	@scripts/stage-docs build/docs-source
	@$(BIN)/pdoc -d google --no-show-source --no-include-undocumented -o build/docs-source/api podium '!podium[.]' $(API)
	@$(BIN)/zensical build --clean --strict
	@echo build/docs/index.html

clean: ## remove build outputs, caches and podium-work
	rm -rf podium-work local_outputs build .cache *.egg-info src/*.egg-info .pytest_cache .ruff_cache .mypy_cache
