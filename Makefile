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

# The nested modules keep the dependencies of tests and tools out of the product's.
MODULES := . $(patsubst %/go.mod,%,$(wildcard cmd/*/go.mod examples/*/go.mod test/*/go.mod))
# Of those, the ones with Go packages: the others only pin what is built from them.
CODE_MODULES = $(shell for m in $(MODULES); do \
	[ -z "$$(cd $$m && $(GO) list ./... 2>/dev/null)" ] || echo $$m; done)
TEST_MODULES = $(filter-out .,$(CODE_MODULES))

# Tiers of tests. A test file without a build tag belongs to the gate; the tags of the other tiers have their names. What
# lies under test/ may use the control plane; everything else is a unit test. test/tools/tiers.sh lists them all, and
# fails where a test is in none.
TAGS := e2e,chaos,soak,costs
# Unit tests of packages where nothing runs side by side; those of all others run under the race detector.
PLAIN := /(cmd|docs|manifests|scheduler-config|pkg/(apis|certificate|devices|kubectl|policy|resources|version))(/|$$)
UNIT_PKGS = $(shell $(GO) list ./... | grep -v /globalreserve/test/)
# Modules whose tests are in the gate, and those whose tests belong to make e2e and make bench-scheduler.
GATE_MODULES := test/agreement
E2E_MODULES  := cmd/globalreserve-scheduler test/legacypolicy
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
GENERATORS    := $(addprefix $(TOOLS)/,controller-gen client-gen lister-gen informer-gen)

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

##@ Build

.PHONY: build
build: ## Build the server into bin/globalreserve and the kubectl plugin into bin/kubectl-reserve
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/globalreserve ./cmd/globalreserve
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/kubectl-reserve ./cmd/kubectl-reserve
	@# kubectl runs this one to complete what is typed after `kubectl reserve`.
	@install -m 755 cmd/kubectl-reserve/kubectl_complete-reserve $(BIN)/kubectl_complete-reserve

# The Kubernetes release of the scheduler. Its version is stamped as Kubernetes' own build does it:
# feature gates and the metric kubernetes_build_info go by it.
KUBERNETES_VERSION = $(shell cd cmd/globalreserve-scheduler && $(GO) list -m -f '{{.Version}}' k8s.io/kubernetes)

.PHONY: scheduler
scheduler: ## Build kube-scheduler with the plugin into bin/globalreserve-scheduler (minutes when cold)
	@# The flags of test/binaries/build.sh: what both build is compiled once.
	@version='$(KUBERNETES_VERSION)'; minor=$${version#v*.}; stamp=; \
	for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do \
	  for value in gitVersion=$$version gitMajor=1 gitMinor=$${minor%%.*} gitTreeState=clean \
	    buildDate='$(BUILD_DATE)'; do stamp="$$stamp -X $$package.$$value"; done; done; \
	set -x; cd cmd/globalreserve-scheduler && CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false \
	  -ldflags "-s -w $(LDFLAGS) $$stamp" -o '$(CURDIR)/$(BIN)/globalreserve-scheduler' .

.PHONY: controlplane
controlplane: ## Build etcd, kube-apiserver, kube-scheduler and friends into bin/controlplane (minutes when cold)
	@bash test/binaries/build.sh $(BIN)/controlplane

.PHONY: image
image: ## Build the container image with docker or podman (IMAGE=name:tag)
	@engine=; for e in docker podman; do \
	  if command -v $$e >/dev/null && $$e info >/dev/null 2>&1; then engine=$$e; break; fi; done; \
	if [ -z "$$engine" ]; then \
	  echo "image: neither docker nor podman answers here; install one or start its daemon" >&2; exit 1; fi; \
	set -x; $$engine build --build-arg VERSION='$(VERSION)' --build-arg COMMIT='$(COMMIT)' \
	  --build-arg BUILD_DATE='$(BUILD_DATE)' -t '$(IMAGE)' .

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
E2E_ALONE := /(admission|election)$$

.PHONY: e2e
e2e: build scheduler controlplane $(GOTESTSUM) ## Run all tests on the real control plane (E2E_PKGS=./test/e2e/durable for one folder)
	@mkdir -p $(RESULTS); failed=; all='$(E2E_PKGS)'; \
	run() { \
	  [ $$# -eq 2 ] || $(RUN_TESTS) $(RESULTS)/$$1.json -- \
	    -p $$2 -count 1 -timeout 30m -tags e2e $(TEST_ARGS) "$${@:3}" || failed=1; \
	}; \
	run e2e 2 $$(tr ' ' '\n' <<< "$$all" | grep -vE '$(E2E_ALONE)' || true); \
	run e2e-alone 1 $$(tr ' ' '\n' <<< "$$all" | grep -E '$(E2E_ALONE)' || true); \
	$(MAKE_PART) nested NESTED='$(E2E_MODULES)' || failed=1; \
	[ -z "$$failed" ]

ifndef CHAOS_SEED
CHAOS_SEED := $(shell od -An -N3 -tu4 /dev/urandom | tr -d ' ')
endif
PROPERTY_FILES = $(shell grep -rlE --include='*_test.go' '"pgregory.net/rapid"|/ledgertest"' pkg)
LINEAR := ./test/e2e/linear

.PHONY: chaos
chaos: build scheduler controlplane ## Random requests, kills and partitions for long (CHAOS_SEED=7 CHAOS_ARGS="-duration=8h")
	@echo "chaos: make chaos CHAOS_SEED=$(CHAOS_SEED) draws the same"
	RAPID_SEED=$(CHAOS_SEED) $(GO) test -count 1 -timeout 0 $(call packages,$(PROPERTY_FILES)) -args -rapid.checks=1000
	$(GO) test -tags chaos -p 1 -count 1 -timeout 60m -run '$(call names,$(call tagged,chaos))' \
	  $(filter-out $(LINEAR),$(call packages,$(call tagged,chaos)))
	$(GO) test -tags chaos $(LINEAR) -count 1 -v -timeout 0 -args -duration=10m -seed=$(CHAOS_SEED) $(CHAOS_ARGS)

.PHONY: soak
soak: build controlplane ## Floods, greedy tenants and how long bindings take then, with nothing beside them
	$(GO) test -tags soak -p 1 -count 1 -timeout 60m -v -run '$(call names,$(call tagged,soak))' $(call packages,$(call tagged,soak))

N ?= 20
PKG ?= ./test/e2e
.PHONY: flake
flake: build scheduler controlplane ## Run a package's tests N times in random orders, and count what failed (N=20 PKG=./test/e2e/durable TEST_ARGS="-tags e2e")
	@mkdir -p $(BIN)/flake
	@$(GO) test -c -o $(BIN)/flake/test $(TEST_ARGS) $(PKG)
	@for i in $$(seq $(N)); do \
	  (cd $(PKG) && $(GO) tool test2json -t '$(CURDIR)/$(BIN)/flake/test' -test.v=test2json -test.shuffle on -test.timeout 30m $(FLAKE_ARGS)) \
	    >$(BIN)/flake/$$i.json 2>&1 </dev/null || true; \
	  echo "flake: run $$i of $(N): $$(tail -n 1 $(BIN)/flake/$$i.json | grep -o '"Action":"[a-z]*"')"; \
	done; \
	echo "flake: what failed how often, in $(N) runs ($(BIN)/flake has them)"; \
	{ grep -h '"Action":"fail"' $$(seq -f '$(BIN)/flake/%g.json' $(N)) | grep -o '"Test":"[^"]*"' | sort | uniq -c | sort -rn; } || true; \
	[ -z "$$(grep -L '^{.*"Action":"pass","Elapsed' $$(seq -f '$(BIN)/flake/%g.json' $(N)))" ]

# How long each of the 17 fuzz targets runs: all of them together, with what they are built for, take ten minutes. `make unit`
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
bench: build scheduler controlplane ## Run the benchmarks (BENCH=regexp, BENCH_PKGS=packages)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -p 1 -timeout 60m $(TEST_ARGS) $(BENCH_PKGS)

.PHONY: bench-shipped
bench-shipped: build scheduler controlplane ## Measure the configurations as they are shipped, beside a plain kube-scheduler
	$(GO) test -run '^$$' -bench '^BenchmarkSchedulingRate$$' -timeout 30m ./test/bench $(TEST_ARGS)

.PHONY: bench-scheduler
bench-scheduler: build controlplane ## Run cases of Kubernetes' scheduler_perf, and write the table of test/bench/README.md (15 minutes)
	cd test/schedulerperf && $(GO) test -tags schedulerperf -run '^$$' -bench SchedulerPerf -benchtime 1x -timeout 90m \
	  . -args -table=../bench/README.md $(BENCH_ARGS)

.PHONY: bench-scale
bench-scale: ## Measure the ledger and the cache with up to 30,000 nodes and 1,000,000 pods (5 minutes); writes docs/performance/scale.txt
	@mkdir -p $(BIN); for size in $(SCALE); do \
	  echo "size: $${size%:*} nodes, $${size#*:} pods"; \
	  $(GO) test -run '^$$' -bench '^BenchmarkScale$$' -benchmem -benchtime 0.3s -p 1 -timeout 20m ./pkg/ledger ./pkg/cluster \
	    -args -scale-nodes=$${size%:*} -scale-pods=$${size#*:} || exit 1; \
	done | tee $(BIN)/scale.txt
	@cp $(BIN)/scale.txt docs/performance/scale.txt

# Sizes of bench-scale: nodes:pods.
SCALE ?= 5000:150000 15000:500000 30000:1000000

.PHONY: bench-plots
bench-plots: ## Draw the plots of docs/performance.md from docs/performance/*.txt
	$(GO) run ./test/plots docs/performance

.PHONY: costs
costs: ## Compare what the hot paths cost with a baseline: allocations, and processor time in units of fixed work
	$(GO) test -tags costs -p 1 -count 1 -v -run '$(call names,$(call tagged,costs))' $(call packages,$(call tagged,costs)) $(COSTS_ARGS)

.PHONY: bench-baseline
bench-baseline: ## Measure what the hot paths cost and write that into test/costs/baseline.json, which `make costs` compares with
	$(GO) test -tags costs -run '^TestCosts$$' -count 1 -p 1 -v $(filter-out ./test/costs,$(call packages,$(call tagged,costs))) \
	  -args -write-costs='$(CURDIR)/test/costs/baseline.json'

##@ Check

.PHONY: check
check: lint verify ## Check all that needs no test

# What golangci-lint says of the root module, vet says of the nested ones.
.PHONY: lint
lint: $(GOLANGCI_LINT) ## Check style, dependency directions, and that each test is in a tier
	@failed=; \
	echo "lint: golangci-lint"; \
	$(GOLANGCI_LINT) run --allow-serial-runners ./... || failed=1; \
	for module in $(TEST_MODULES); do \
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
	@GATE='$(call packages,$(GATE_FILES))' MODULES='$(GATE_MODULES) $(E2E_MODULES)' TAGS='$(TAGS)' bash test/tools/tiers.sh

.PHONY: audit
audit: $(DEADCODE) verify-modules ## Look for dead code and go.mod files that are not tidy; takes minutes, and the network
	cd test/schedulerperf && $(GO) vet -tags schedulerperf ./...
	@bash test/tools/deadcode.sh $(DEADCODE) '$(TAGS)' $(patsubst %/go.mod,%,$(wildcard cmd/*/go.mod))

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
generate: $(GENERATORS) $(GOFUMPT) $(GOLANGCI_LINT) ## Write what is generated: API code, the CRD, the formatting of the Go sources
	@bash test/tools/generate-api.sh
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
tool_lister-gen     := k8s.io/code-generator/cmd/lister-gen
tool_informer-gen   := k8s.io/code-generator/cmd/informer-gen

$(TOOLS)/%: test/tools/go.mod test/tools/go.sum
	@echo "tools: building $*$(if $(filter golangci-lint,$*), (a few minutes the first time))"
	@cd test/tools && $(GO) build -trimpath -o '$(CURDIR)/$@' $(tool_$*)
	@touch $@
