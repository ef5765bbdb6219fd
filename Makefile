# Everything a developer or a build machine runs, from the repository's root. Needs Go, make, gcc
# and git; whatever else it takes is built from pinned Go modules into bin/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO    ?= go
BIN   := bin
TOOLS := $(BIN)/tools
# Test events of the last run, one file per part; `make test` adds them up.
RESULTS := $(BIN)/test

VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo v0.0.0-unknown)
COMMIT     ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# The commit's time and not today's: the same sources give the same binary.
BUILD_DATE ?= $(shell git log -1 --format=%cI 2>/dev/null || echo unknown)
IMAGE      ?= globalreserve:$(VERSION)

VERSION_PKG := github.com/globalreserve/globalreserve/pkg/version
LDFLAGS := -X $(VERSION_PKG).gitVersion=$(VERSION) \
           -X $(VERSION_PKG).gitCommit=$(COMMIT) \
           -X $(VERSION_PKG).buildDate=$(BUILD_DATE)

# One set of flags for builds, vet and tests, so that nothing is compiled twice; test/binaries/build.sh has the same. The
# race detector alone needs others.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath
# Without it the traces of gRPC, which nobody looks at, have the linker keep what nothing calls: half as much again.
SERVER_TAGS := -tags grpcnotrace

# The nested modules keep the dependencies of tests and tools out of the product's.
MODULES := . $(patsubst %/go.mod,%,$(wildcard cmd/*/go.mod examples/*/go.mod pkg/*/go.mod test/*/go.mod))
# Of those, the ones with Go packages: the others only pin what is built from them.
CODE_MODULES = $(shell for m in $(MODULES); do \
	[ -z "$$(cd $$m && $(GO) list ./... 2>/dev/null)" ] || echo $$m; done)
TEST_MODULES = $(filter-out .,$(CODE_MODULES))
# What schedulers in Go import. Their modules have the oldest versions they work with, and are tested with those.
LIBRARIES := pkg/reserver pkg/client

# Tiers of tests. A test file without a build tag belongs to the gate; the tags of the other tiers have their names. What
# lies under test/ may use the control plane; everything else is a unit test. test/tools/tiers.sh lists them all, and
# fails where a test is in none.
TAGS := e2e,chaos,soak,costs
# Unit tests of packages where nothing runs side by side; those of all others run under the race detector.
PLAIN := /(cmd|docs|hack|manifests|scheduler-config|pkg/(apis|app/command|devices|kubectl|policy|resources|version))(/|$$)
UNIT_PKGS = $(shell $(GO) list ./... | grep -v /globalreserve/test/)
# Modules whose tests are in the gate, beside the libraries, and those whose tests belong to make e2e and make bench-scheduler.
GATE_MODULES := test/agreement test/sbom test/sim
E2E_MODULES  := cmd/globalreserve-scheduler test/legacypolicy test/monitoring test/release
# What the gate needs of the control plane; the rest takes minutes to build.
GATE_BINARIES := etcd kube-apiserver kube-scheduler
# Property tests draw the same in each run, and leave nothing in the tree; make chaos sets another seed.
RAPID_SEED ?= 1
export RAPID_SEED
export RAPID_NOFAILFILE := true

in_root   = grep -vE '^($(subst $() $(),|,$(filter-out .,$(MODULES))))/'
tagged    = $(shell grep -rlE --include='*_test.go' '^//go:build .*\b$(1)\b' cmd examples pkg test | $(in_root))
packages  = $(addprefix ./,$(sort $(patsubst %/,%,$(dir $(1)))))
# A regular expression for the tests in files.
names     = ^($(shell grep -ho '^func Test[A-Za-z0-9]*' $(1) | cut -c6- | sort -u | paste -sd '|'))$$
GATE_FILES = $(shell grep -rl --include='*_test.go' '^func Test' test | xargs grep -L '^//go:build' | $(in_root))
E2E_PKGS  ?= $(call packages,$(call tagged,e2e))
BENCH_PKGS ?= ./pkg/... ./test/bench/... ./test/e2e/durable
BENCH      ?= .

GOLANGCI_LINT := $(TOOLS)/golangci-lint
GOFUMPT       := $(TOOLS)/gofumpt
GOTESTSUM     := $(TOOLS)/gotestsum
DEADCODE      := $(TOOLS)/deadcode
HELM          := $(TOOLS)/helm
HELM_UNITTEST := $(TOOLS)/helm-unittest
GENERATORS    := $(addprefix $(TOOLS)/,controller-gen client-gen crd-ref-docs helm-docs)

##@ Run

.PHONY: help
help: ## Print this list
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@ / {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-zA-Z0-9_-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: build controlplane ## Race three schedulers on 50 nodes, without and with GlobalReserve (DEMO_ARGS=--once: exit after the table)
	@$(GO) build -o $(BIN)/demo ./examples/demo
	@# exec, so that a signal reaches the demo itself and its exit code is this target's.
	@exec $(BIN)/demo $(DEMO_ARGS)

.PHONY: demo-page
demo-page: build controlplane ## Run the demo and make docs/demo.html and docs/pictures/demo.svg of it; needs a quiet machine
	@$(GO) build -o $(BIN)/demo ./examples/demo
	@$(BIN)/demo --once --record docs/demo.json
	@$(BIN)/demo page docs

.PHONY: cluster
cluster: build controlplane ## Run an empty cluster with GlobalReserve, for who writes a scheduler, until Ctrl-C (CLUSTER_ARGS="--nodes=3 --cpus=4 --policy-file=policy.yaml")
	@$(GO) build -o $(BIN)/demo ./examples/demo
	@exec $(BIN)/demo cluster $(CLUSTER_ARGS)

##@ Build

.PHONY: ui
ui: web-tools ## Build the live page from web/ into pkg/http/ui/dist, which is committed, with what that takes
	@bash web/page.sh build

.PHONY: build
build: ## Build the server into bin/globalreserve and the kubectl plugin into bin/kubectl-reserve
	$(GO) build $(SERVER_TAGS) -ldflags '$(LDFLAGS)' -o $(BIN)/globalreserve ./cmd/globalreserve
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/kubectl-reserve ./cmd/kubectl-reserve
	@# kubectl runs this one to complete what is typed after `kubectl reserve`.
	@install -m 755 cmd/kubectl-reserve/kubectl_complete-reserve $(BIN)/kubectl_complete-reserve

# The Kubernetes release of a scheduler in a nested module, and the flags that stamp it as Kubernetes' own build does it:
# feature gates and the metric kubernetes_build_info go by it.
kubernetes_version = $(shell cd $(1) && $(GO) list -m -f '{{.Version}}' k8s.io/kubernetes)
kubernetes_stamp = $(foreach package,k8s.io/component-base/version k8s.io/client-go/pkg/version,\
  $(foreach value,gitVersion=$(1) gitMajor=1 gitMinor=$(word 2,$(subst ., ,$(1))) gitTreeState=clean buildDate=$(BUILD_DATE),\
    -X $(package).$(value)))
# The flags of test/binaries/build.sh: what both build is compiled once.
SCHEDULER_BUILD = CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false

.PHONY: scheduler
scheduler: ## Build kube-scheduler with the plugin into bin/globalreserve-scheduler (minutes when cold)
	cd cmd/globalreserve-scheduler && $(SCHEDULER_BUILD) -o '$(CURDIR)/$(BIN)/globalreserve-scheduler' \
	  -ldflags "-s -w $(LDFLAGS) $(call kubernetes_stamp,$(call kubernetes_version,cmd/globalreserve-scheduler))" .

.PHONY: coscheduler
coscheduler: ## Build kube-scheduler with Coscheduling, which the tests have, into bin/coscheduler (minutes when cold)
	cd test/coscheduler && $(SCHEDULER_BUILD) -o '$(CURDIR)/$(BIN)/coscheduler' \
	  -ldflags "-s -w $(call kubernetes_stamp,$(call kubernetes_version,test/coscheduler))" sigs.k8s.io/scheduler-plugins/cmd/scheduler

.PHONY: volcano
volcano: ## Build the scheduler of Volcano, which the tests have, into bin/volcano (minutes when cold)
	cd test/volcano && $(SCHEDULER_BUILD) -o '$(CURDIR)/$(BIN)/volcano' -ldflags '-s -w' volcano.sh/volcano/cmd/scheduler

.PHONY: yunikorn
yunikorn: ## Build the scheduler of YuniKorn, which the tests have, into bin/yunikorn (minutes when cold)
	cd test/yunikorn && $(SCHEDULER_BUILD) -o '$(CURDIR)/$(BIN)/yunikorn' -ldflags '-s -w' \
	  github.com/apache/yunikorn-k8shim/pkg/cmd/shim

# Where kube-schedulers of older releases are pinned, for the tests of docs/skew.md.
SKEW_MODULES := test/oldscheduler test/coscheduler

.PHONY: skew-schedulers
skew-schedulers: ## Build kube-schedulers of older releases into bin/skew (minutes when cold)
	@mkdir -p $(BIN)/skew
	@$(foreach module,$(SKEW_MODULES),$(call build_kube_scheduler,$(module),$(call kubernetes_version,$(module)));) true

build_kube_scheduler = (cd $(1) && set -x && $(SCHEDULER_BUILD) -o '$(CURDIR)/$(BIN)/skew/kube-scheduler-$(2)' \
  -ldflags "-s -w $(call kubernetes_stamp,$(2))" k8s.io/kubernetes/cmd/kube-scheduler)

.PHONY: controlplane
controlplane: ## Build etcd, kube-apiserver, kube-scheduler and friends into bin/controlplane (minutes when cold)
	@bash test/binaries/build.sh $(BIN)/controlplane

.PHONY: prometheus
prometheus: ## Build Prometheus and promtool for the tests of alerts and dashboard, into bin/monitoring (minutes when cold)
	@mkdir -p $(BIN)/monitoring
	cd test/monitoring && $(SCHEDULER_BUILD) -tags remove_all_sd -o '$(CURDIR)/$(BIN)/monitoring/' \
	  github.com/prometheus/prometheus/cmd/prometheus github.com/prometheus/prometheus/cmd/promtool

.PHONY: image
image: ## Build the container image with docker or podman (IMAGE=name:tag)
	@engine=; for e in docker podman; do \
	  if command -v $$e >/dev/null && $$e info >/dev/null 2>&1; then engine=$$e; break; fi; done; \
	if [ -z "$$engine" ]; then \
	  echo "image: neither docker nor podman answers here; install one or start its daemon" >&2; exit 1; fi; \
	set -x; $$engine build --build-arg VERSION='$(VERSION)' --build-arg COMMIT='$(COMMIT)' \
	  --build-arg BUILD_DATE='$(BUILD_DATE)' -t '$(IMAGE)' .

# Where `make image-multiarch` puts the image: a file, or with IMAGE_OUTPUT=--push the registry that IMAGE names.
IMAGE_OUTPUT ?= --output type=oci,dest=$(BIN)/globalreserve-image.tar

.PHONY: image-multiarch
image-multiarch: ## Build the image for amd64 and arm64 with docker buildx, into a file (IMAGE=registry/name:tag TARGET=scheduler IMAGE_OUTPUT=--push)
	@if ! docker buildx version >/dev/null 2>&1; then \
	  echo "image-multiarch: there is no docker with buildx here" >&2; exit 1; fi
	@mkdir -p $(BIN)
	docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION='$(VERSION)' --build-arg COMMIT='$(COMMIT)' \
	  --build-arg BUILD_DATE='$(BUILD_DATE)' -t '$(IMAGE)' $(if $(TARGET),--target '$(TARGET)') $(IMAGE_OUTPUT) .

# What a release has programs for.
PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64

.PHONY: cross
cross: ## Build the server and the kubectl plugin for all platforms of a release, into bin/cross (minutes when cold)
	@for platform in $(PLATFORMS); do \
	  echo "cross: $$platform"; \
	  CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} $(GO) build -trimpath -buildvcs=false $(SERVER_TAGS) -ldflags '-s -w $(LDFLAGS)' \
	    -o $(BIN)/cross/$${platform//\//_}/ ./cmd/globalreserve ./cmd/kubectl-reserve || exit 1; \
	done

.PHONY: sbom
sbom: build $(TOOLS)/sbom ## List the modules in the programs, as CycloneDX, into bin/sbom
	@mkdir -p $(BIN)/sbom
	@for program in globalreserve kubectl-reserve; do \
	  $(TOOLS)/sbom $(BIN)/$$program $(BIN)/sbom/$$program.cdx.json; done

.PHONY: clean
clean: ## Remove all that was built, the control plane and the tools included
	rm -rf $(BIN)

##@ Test

# Not by its name in a recipe: make would run all of that recipe under -n as well.
MAKE_PART = $(MAKE) --no-print-directory
RUN_TESTS = $(GOTESTSUM) --format testname --format-hide-empty-pkg --jsonfile

.PHONY: test
test: $(GOTESTSUM) ## Run the gate: all unit tests, and on the real control plane what a user would miss first
	@rm -rf $(RESULTS); failed=; \
	for part in unit system nested; do \
	  echo "test: $$part"; started=$$SECONDS; \
	  $(MAKE_PART) $$part || failed="$$failed $$part"; \
	  echo "test: $$part took $$((SECONDS - started))s"; \
	done; \
	echo "test: all parts together"; \
	$(GOTESTSUM) --format none --raw-command -- cat $(RESULTS)/*.json || true; \
	if [ -n "$$failed" ]; then echo "test: FAILED:$$failed"; exit 1; fi; \
	echo "test: PASSED"

.PHONY: unit
unit: $(GOTESTSUM) ## Run the unit tests only, each once; they need no control plane
	@mkdir -p $(RESULTS); failed=; all='$(UNIT_PKGS)'; \
	run() { $(GOTESTSUM) --format pkgname --format-hide-empty-pkg --jsonfile $(RESULTS)/$$1.json -- \
	  -timeout 30m $(TEST_ARGS) "$${@:2}" || failed=1; }; \
	run unit $$(tr ' ' '\n' <<< "$$all" | grep -E '$(PLAIN)'); \
	CGO_ENABLED=1 run race -race $$(tr ' ' '\n' <<< "$$all" | grep -vE '$(PLAIN)'); \
	$(MAKE_PART) nested CGO_ENABLED=1 NESTED='$(LIBRARIES)' TEST_ARGS='-race $(TEST_ARGS)' || failed=1; \
	[ -z "$$failed" ]

# Three at a time: most of them wait most of the time.
.PHONY: system
system: build $(GOTESTSUM) ## Run the gate's tests on the real control plane only
	@bash test/binaries/build.sh $(BIN)/controlplane $(GATE_BINARIES)
	@mkdir -p $(RESULTS)
	@GLOBALRESERVE_CONTROLPLANE_BIN='$(CURDIR)/$(BIN)/controlplane' $(RUN_TESTS) $(RESULTS)/system.json -- \
	  -p 3 -count 1 -timeout 30m $(TEST_ARGS) $(call packages,$(GATE_FILES))

.PHONY: nested
nested: $(GOTESTSUM) ## Run the gate's tests of nested modules only
	@mkdir -p $(RESULTS)
	@failed=; for module in $(NESTED); do \
	  (cd $$module && $(CURDIR)/$(GOTESTSUM) --format pkgname --format-hide-empty-pkg \
	    --jsonfile $(CURDIR)/$(RESULTS)/nested-$${module//\//-}.json -- -timeout 30m $(TEST_ARGS) ./...) \
	    || failed=1; \
	done; [ -z "$$failed" ]
NESTED = $(GATE_MODULES)

# Those that have few seconds for something run with nothing beside them; of the others two at a time.
E2E_ALONE := /(admission|dra|election|ui)$$
# What the tests of only some folders need takes minutes to build, or more than Go: it is had where they are run.
needs = $(strip $(if $(filter ./test/e2e,$(1)),skew-schedulers) $(if $(filter ./test/e2e/gangs,$(1)),coscheduler volcano yunikorn) \
  $(if $(filter ./test/e2e/install,$(1)),$(HELM)) $(if $(filter ./test/e2e/monitoring,$(1)),prometheus) \
  $(if $(filter ./test/e2e/demo ./test/e2e/ui,$(1)),web-tools))
get   = $(if $(call needs,$(1)),$(MAKE_PART) $(call needs,$(1)))
# What else there is to test where no folder is named.
E2E_REST = $(if $(filter file,$(origin E2E_PKGS)),yes)

.PHONY: e2e
e2e: build scheduler controlplane $(GOTESTSUM) ## Run the other tests on the real control plane (E2E_PKGS=./test/e2e/durable for one folder)
	@$(call get,$(E2E_PKGS))
	@command -v python3 >/dev/null || echo "e2e: examples/python is NOT RUN: there is no python3 here" >&2
	@command -v openssl >/dev/null || echo "e2e: the commands of manifests/admission are NOT RUN: there is no openssl here" >&2
	@mkdir -p $(RESULTS); failed=; all='$(E2E_PKGS)'; \
	run() { \
	  [ $$# -eq 2 ] || $(RUN_TESTS) $(RESULTS)/$$1.json -- \
	    -p $$2 -count 1 -timeout 30m -tags e2e $(TEST_ARGS) "$${@:3}" || failed=1; \
	}; \
	run e2e 2 $$(tr ' ' '\n' <<< "$$all" | grep -vE '$(E2E_ALONE)' || true); \
	run e2e-alone 1 $$(tr ' ' '\n' <<< "$$all" | grep -E '$(E2E_ALONE)' || true); \
	$(if $(E2E_REST),$(MAKE_PART) nested NESTED='$(E2E_MODULES)' || failed=1; $(MAKE_PART) -k chart web-test || failed=1;) \
	[ -z "$$failed" ]

.PHONY: web-tools
web-tools: ## Get what the page is built and looked at with: npm's packages and, as root on Debian, chromium
	@bash web/page.sh tools

.PHONY: web-test
web-test: web-tools ## Test the page: its types, its account, and that what is committed is what the sources say
	@bash web/page.sh test

.PHONY: web-pictures
web-pictures: build controlplane ## Take the pictures of docs/page.md from the browser tests
	PICTURES='$(CURDIR)/docs/pictures' $(GO) test -tags e2e ./test/e2e/ui -count 1 -timeout 20m

.PHONY: dra
dra: build scheduler controlplane ## Race for DRA devices for long, with the webhook and without (DRA_ARGS="-rounds=50")
	$(GO) test -tags e2e,soak ./test/e2e/dra -count 1 -v -timeout 0 -args -rounds=10 $(DRA_ARGS)

ifndef CHAOS_SEED
CHAOS_SEED := $(shell od -An -N3 -tu4 /dev/urandom | tr -d ' ')
endif
PROPERTY_FILES = $(shell grep -rlE --include='*_test.go' '"pgregory.net/rapid"|/ledgertest"' pkg | $(in_root))

.PHONY: chaos
chaos: build scheduler controlplane ## Property tests, races of gangs and simulated clusters, for an hour and more (CHAOS_SEED=7)
	@$(call get,$(call packages,$(call tagged,chaos)))
	@echo "chaos: make chaos CHAOS_SEED=$(CHAOS_SEED) draws the same"
	RAPID_SEED=$(CHAOS_SEED) $(GO) test -count 1 -timeout 0 $(call packages,$(PROPERTY_FILES)) -args -rapid.checks=1000
	$(GO) test -tags chaos -p 1 -count 1 -timeout 60m -run '$(call names,$(call tagged,chaos))' $(call packages,$(call tagged,chaos))
	$(MAKE_PART) sim SEED=$(CHAOS_SEED) SEEDS=500

# How many clusters are simulated, from which seed on, how much is done in each, and how often. With PAUSES goroutines
# stand still now and then, as with `make pauses`.
SEED   ?= 1
SEEDS  ?= 1
STEPS  ?= 1000
TIMES  ?= 1
PAUSES ?=
.PHONY: sim
sim: ## Simulate clusters, and write down what happened where a promise is broken (SEED=7 SEEDS=100 STEPS=5000)
	$(if $(PAUSES),$(GO) run ./test/pauses $(BIN)/_pauses)
	$(if $(PAUSES),@echo "sim: with PAUSES all of it is compiled anew the first time: ten minutes in silence")
	cd test/sim && SEED=$(SEED) SEEDS=$(SEEDS) STEPS=$(STEPS) $(GO) test -count $(TIMES) -v -timeout 0 -run '^TestSeeds$$' \
	  $(if $(PAUSES),-overlay $(CURDIR)/$(BIN)/_pauses/overlay.json) .

.PHONY: sim-planted
sim-planted: ## Make mistakes on purpose, have simulated clusters find them, and write the table (an hour; PLANTED="overcommit" for one)
	cd test/sim/planted && $(GO) run . $(PLANTED)

.PHONY: soak
soak: build scheduler controlplane ## Floods, greedy tenants and how long bindings take then, with nothing beside them
	@$(call get,$(call packages,$(call tagged,soak)))
	$(GO) test -tags soak -p 1 -count 1 -timeout 60m -v -run '$(call names,$(call tagged,soak))' $(call packages,$(call tagged,soak))

N ?= 20
PKG ?= ./test/e2e
.PHONY: flake
flake: build scheduler controlplane ## Run a package's tests N times in random orders, and count what failed (N=20 PKG=./test/e2e/durable TEST_ARGS="-tags e2e")
	@$(call get,$(PKG))
	@mkdir -p $(BIN)/flake
	@CGO_ENABLED=$(if $(filter -race,$(TEST_ARGS)),1,0) $(GO) test -c -o $(BIN)/flake/flake.test $(TEST_ARGS) $(PKG)
	@for i in $$(seq $(N)); do \
	  (cd $(PKG) && $(GO) tool test2json -t '$(CURDIR)/$(BIN)/flake/flake.test' -test.v=test2json -test.shuffle=on -test.timeout=30m $(FLAKE_ARGS)) \
	    >$(BIN)/flake/$$i.json 2>&1 </dev/null || true; \
	  echo "flake: run $$i of $(N): $$(tail -n 1 $(BIN)/flake/$$i.json | grep -o '"Action":"[a-z]*"')"; \
	done; \
	echo "flake: what failed how often, in $(N) runs ($(BIN)/flake has them)"; \
	{ grep -h '"Action":"fail"' $$(seq -f '$(BIN)/flake/%g.json' $(N)) | grep -o '"Test":"[^"]*"' | sort | uniq -c | sort -rn; } || true; \
	[ -z "$$(grep -L '^{.*"Action":"pass","Elapsed' $$(seq -f '$(BIN)/flake/%g.json' $(N)))" ]

# Which packages `make pauses` tests, and how often.
PAUSES_PKGS  ?= ./cmd/... ./pkg/... ./examples/...
PAUSES_COUNT ?= 3
# Tests that need a rate of requests that is not reached with pauses.
PAUSES_SKIP  ?= TestPaceOfPlainHTTP

.PHONY: pauses
pauses: ## Run the unit tests under the race detector, with pauses at locks and channels (PAUSES_PKGS=./pkg/kube/informer PAUSES_COUNT=50)
	$(GO) run ./test/pauses $(BIN)/_pauses
	CGO_ENABLED=1 $(GO) test -race -overlay $(BIN)/_pauses/overlay.json -cpu 16 -shuffle on -skip '$(PAUSES_SKIP)' -count $(PAUSES_COUNT) -timeout 60m $(TEST_ARGS) $(PAUSES_PKGS)

# How long each of the 20 fuzz targets runs: all of them together, with what they are built for, take ten minutes. `make unit`
# runs their seeds.
FUZZTIME ?= 30s
# Only packages with fuzz targets are built for fuzzing, which is another build of all that they use, and each of them once.
# To make an input smaller that is only interesting takes a second at most, not all the time there is.
FUZZ_PKGS = $(shell grep -rl --include='*_test.go' '^func Fuzz' pkg | xargs -n1 dirname | sort -u)

.PHONY: fuzz
fuzz: ## Send random input to every decoder for ten minutes, FUZZTIME=30s each (FUZZ_PKGS=pkg/policy: to those of some packages)
	@mkdir -p $(BIN)/fuzz; for package in $(FUZZ_PKGS); do \
	  targets=$$(grep -h --include='*_test.go' -o '^func Fuzz[A-Za-z]*' $$package/*_test.go | cut -c6-); \
	  $(GO) test -c -fuzz . -o '$(CURDIR)/$(BIN)/fuzz/test' "./$$package"; \
	  for target in $$targets; do \
	    echo "fuzz: $$target in $$package"; \
	    (cd $$package && '$(CURDIR)/$(BIN)/fuzz/test' -test.run '^$$' -test.fuzz "^$$target\$$" -test.fuzztime $(FUZZTIME) -test.fuzzminimizetime 1s \
	      -test.fuzzcachedir "$$($(GO) env GOCACHE)/fuzz/globalreserve/$$package" </dev/null); \
	  done; \
	done

.PHONY: bench
bench: build scheduler controlplane ## Run the benchmarks that have no target of their own (BENCH=regexp, BENCH_PKGS=packages)
	$(GO) test -run '^$$' -bench '$(BENCH)' -skip '^BenchmarkConflicts$$' -benchmem -p 1 -timeout 60m $(TEST_ARGS) \
	  $(BENCH_PKGS)

.PHONY: bench-shipped
bench-shipped: build scheduler controlplane ## Measure the configurations as they are shipped, beside a plain kube-scheduler
	$(GO) test -run '^$$' -bench '^BenchmarkSchedulingRate$$' -timeout 30m ./test/bench $(TEST_ARGS)

.PHONY: bench-scheduler
bench-scheduler: build controlplane ## Run cases of Kubernetes' scheduler_perf, and write the table of test/bench/README.md (25 minutes)
	cd test/schedulerperf && GOFLAGS= $(GO) test -tags schedulerperf -run '^$$' -bench SchedulerPerf -benchtime 1x -timeout 90m \
	  . -args -table=../bench/README.md $(BENCH_ARGS)

.PHONY: bench-scale
bench-scale: ## Measure the ledger and the cache with up to 130,000 nodes and 1,000,000 pods (5 minutes); writes docs/performance/scale.txt
	@mkdir -p $(BIN); for size in $(SCALE); do \
	  echo "size: $${size%:*} nodes, $${size#*:} pods"; \
	  $(GO) test -run '^$$' -bench '^BenchmarkScale$$' -benchmem -benchtime 0.3s -p 1 -timeout 20m ./pkg/ledger ./pkg/kube/cluster \
	    -args -scale-nodes=$${size%:*} -scale-pods=$${size#*:} || exit 1; \
	done | tee $(BIN)/scale.txt
	@cp $(BIN)/scale.txt docs/performance/scale.txt

# Sizes of bench-scale: nodes:pods.
SCALE ?= 5000:150000 15000:500000 30000:1000000 130000:1000000

.PHONY: bench-conflicts
bench-conflicts: build controlplane ## Measure schedulers side by side: with nothing between them, with pools, with GlobalReserve (40 minutes)
	$(GO) test -run '^$$' -bench '^BenchmarkConflicts$$' -benchtime 1x -timeout 120m ./test/bench $(TEST_ARGS) | tee $(BIN)/conflicts.txt
	grep '^conflicts:' $(BIN)/conflicts.txt > docs/performance/conflicts.txt

.PHONY: bench-large
bench-large: build ## Measure a server behind eight model schedulers, with 30,000 nodes (3 minutes)
	cd test/sim && $(GO) test -run '^$$' -bench '^BenchmarkLarge$$' -benchtime 1x -timeout 30m ./large $(TEST_ARGS)

.PHONY: bench-plots
bench-plots: ## Draw the plots of docs/performance.md from docs/performance/*.txt
	$(GO) run ./test/plots docs/performance

.PHONY: costs
costs: ## Compare what the hot paths cost with a baseline: allocations, and processor time in units of fixed work
	$(GO) test -tags costs -p 1 -count 1 -v -run '$(call names,$(call tagged,costs))' $(call packages,$(call tagged,costs)) $(COSTS_ARGS)

COST_FILES = $(shell grep -lw 'func TestCosts' $(call tagged,costs))

.PHONY: bench-baseline
bench-baseline: ## Measure what the hot paths cost and write that into test/costs/baseline.json, which `make costs` compares with
	$(GO) test -tags costs -run '^TestCosts$$' -count 1 -p 1 -v $(call packages,$(COST_FILES)) \
	  -args -write-costs='$(CURDIR)/test/costs/baseline.json'

##@ Check

.PHONY: check
check: lint verify ## Check all that needs no test

# What golangci-lint says of the product's modules, vet says of the others; but not of one for which it had to compile all of
# Kubernetes' kinds once more.
VET_MODULES = $(filter-out test/monitoring,$(TEST_MODULES))
.PHONY: lint
lint: $(GOLANGCI_LINT) ## Check style, dependency directions, and that each test is in a tier
	@failed=; \
	for module in . $(LIBRARIES); do \
	  echo "lint: golangci-lint in $$module"; \
	  (cd $$module && '$(CURDIR)/$(GOLANGCI_LINT)' run --allow-serial-runners --config '$(CURDIR)/.golangci.yml' ./...) || failed=1; \
	done; \
	for module in $(VET_MODULES); do \
	  echo "lint: go vet in $$module"; \
	  (cd $$module && $(GO) vet ./...) || failed=1; \
	done; \
	echo "lint: paths of one machine"; \
	if git grep --untracked -nIE '(^|[^A-Za-z0-9_.~-])/(home|root|work|Users)/' -- . ':!Makefile'; then \
	  echo "lint: the lines above name a place that exists on one machine only" >&2; failed=1; fi; \
	echo "lint: tiers of tests"; \
	$(MAKE) --no-print-directory tiers >/dev/null || failed=1; \
	[ -z "$$failed" ]

.PHONY: tiers
tiers: ## List which tier each package with tests is in, and fail where one is in none
	@GATE='$(call packages,$(GATE_FILES))' TAGS='$(TAGS)' UNIT_MODULES='$(LIBRARIES)' GATE_MODULES='$(GATE_MODULES)' \
	  E2E_MODULES='$(E2E_MODULES)' bash test/tools/tiers.sh

.PHONY: audit
audit: $(DEADCODE) verify-modules ## Look for dead code and go.mod files that are not tidy; takes minutes, and the network
	cd test/schedulerperf && $(GO) vet -tags schedulerperf ./...
	@bash test/tools/deadcode.sh $(DEADCODE) '$(TAGS)' $(patsubst %/go.mod,%,$(wildcard cmd/*/go.mod))

.PHONY: chart
chart: $(HELM) $(HELM_UNITTEST) ## Lint the Helm chart, and test its values; test/e2e/install runs what it renders
	@$(HELM) lint --strict --quiet charts/globalreserve
	@$(HELM_UNITTEST) charts/globalreserve

# The tool and its database are not pinned: what is asked is what is known today.
.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities in what is used; needs govulncheck and its database
	@if ! command -v govulncheck >/dev/null; then \
	  echo "vulncheck: NOT CHECKED: there is no govulncheck; go install golang.org/x/vuln/cmd/govulncheck@latest" >&2; exit 1; fi
	@output=$$(govulncheck ./... 2>&1) || { code=$$?; echo "$$output"; \
	  if grep -qiE 'fetching vulnerabilities|no such host|connection refused|timeout' <<<"$$output"; then \
	    echo "vulncheck: NOT CHECKED: the database cannot be read; set GOVULNDB or run where the network lets vuln.go.dev through" >&2; fi; \
	  exit $$code; }; echo "$$output"

.PHONY: generate
generate: $(GENERATORS) $(GOFUMPT) $(GOLANGCI_LINT) ## Write what is generated: API code, the CRD, docs/reference, the chart's files, the formatting of the Go sources
	@bash test/tools/generate-api.sh
	@bash test/tools/generate-docs.sh
	@bash test/tools/generate-chart.sh
	@$(GOFUMPT) -l -w $(wildcard cmd examples manifests pkg scheduler-config test)
	@$(GOLANGCI_LINT) fmt --config .golangci.yml

.PHONY: verify
verify: $(GENERATORS) $(GOFUMPT) $(GOLANGCI_LINT) ## Check that generated files and formatting are up to date
	@bash test/tools/verify-generated.sh

.PHONY: verify-modules
verify-modules:
	@failed=; for module in $(MODULES); do \
	  echo "verify: go mod tidy in $$module"; \
	  (cd $$module && $(GO) mod tidy -diff) || failed=1; \
	done; \
	if [ -n "$$failed" ]; then echo "verify: run 'go mod tidy' in the modules above" >&2; exit 1; fi

# A tool is built again only when the pins change; its version comes from test/tools/go.mod.
tool_golangci-lint  := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
tool_gofumpt        := mvdan.cc/gofumpt
tool_gotestsum      := gotest.tools/gotestsum
tool_deadcode       := golang.org/x/tools/cmd/deadcode
tool_controller-gen := sigs.k8s.io/controller-tools/cmd/controller-gen
tool_client-gen     := k8s.io/code-generator/cmd/client-gen

$(TOOLS)/sbom: test/sbom/main.go test/sbom/go.mod test/sbom/go.sum
	@cd test/sbom && $(GO) build -trimpath -o '$(CURDIR)/$@' .

$(TOOLS)/%: test/tools/go.mod test/tools/go.sum
	@echo "tools: building $*$(if $(filter golangci-lint,$*), (a few minutes the first time))"
	@cd test/tools && $(GO) build -trimpath -o '$(CURDIR)/$@' $(tool_$*)
	@touch $@

# It has pins of its own, so that a new version of it does not have all the others built again.
$(TOOLS)/crd-ref-docs: test/crdref/go.mod test/crdref/go.sum
	@echo "tools: building crd-ref-docs"
	@cd test/crdref && $(GO) build -trimpath -o '$(CURDIR)/$@' github.com/elastic/crd-ref-docs
	@touch $@

# Those for the chart are pinned apart. Built as the control plane is, with which they have much in common.
tool_helm           := helm.sh/helm/v4/cmd/helm
tool_helm-docs      := github.com/norwoodj/helm-docs/cmd/helm-docs
tool_helm-unittest  := github.com/helm-unittest/helm-unittest/cmd/helm-unittest

$(addprefix $(TOOLS)/,helm helm-docs helm-unittest): $(TOOLS)/%: test/helm/go.mod test/helm/go.sum
	@echo "tools: building $*"
	@cd test/helm && $(SCHEDULER_BUILD) -o '$(CURDIR)/$@' $(tool_$*)
	@touch $@
