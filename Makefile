# `make demo` shows the gateways at work, `make test` runs every test. Both install missing tools first, and
# say so. `make quick` runs the unit tests alone. `make papers` repeats the published studies, with QUICK=1
# the quick part of each; it continues a stopped run. `make dist` builds a release into target/dist.
# `make book` renders docs into target/book, with mdBook.
# `make explore` runs the property tests from fresh seeds, ROUNDS times, and records failing cases.

CARGO ?= cargo
export PATH := $(HOME)/.cargo/bin:$(PATH)

.PHONY: demo test quick explore setup bench papers dist book

setup:
	@scripts/setup.sh

demo: setup
	$(CARGO) build --release --bin bentpipe --bin bentpipe-lab
	@target/release/bentpipe demo $(DEMO)

# Open files that the tests of one program need together, with threads for many processors.
DESCRIPTORS := 8192

test: setup
	@scripts/setup.sh python
	@scripts/setup.sh busybox
	@scripts/setup.sh browser
	@scripts/masque-client/install.sh target/masque-client
	@scripts/setup.sh vega
	@scripts/setup.sh axe
	@[ "$$(ulimit -Sn)" -ge $(DESCRIPTORS) ] 2>/dev/null || ulimit -Sn $(DESCRIPTORS) || true; \
	BENTPIPE_MASQUE_CLIENT=$(CURDIR)/target/masque-client/bin/python $(CARGO) test --workspace --no-fail-fast

quick:
	$(CARGO) test --workspace --lib --bins --quiet

explore: setup
	@CARGO="$(CARGO)" scripts/explore.sh $(ROUNDS)

bench: setup
	$(CARGO) build --release --bin bentpipe --bin bentpipe-lab
	@target/release/bentpipe-lab bench relay
	@target/release/bentpipe-lab bench idle

# Folder of the results and of report.html.
RESULTS ?= target/papers$(if $(QUICK),-quick)

papers: setup
	@scripts/setup.sh vega
	@scripts/setup.sh kcptun
	@scripts/setup.sh browser
	$(CARGO) build --release --bin bentpipe --bin bentpipe-lab
	@target/release/bentpipe-lab papers $(if $(QUICK),--quick) $(PAPERS) $(RESULTS)
	@target/release/bentpipe-lab report $(RESULTS) --out $(RESULTS)/report.html

dist: setup
	@scripts/dist.sh $(TARGETS)

MDBOOK ?= mdbook

book:
	@$(MDBOOK) --version >/dev/null || { echo "mdBook is missing: https://rust-lang.github.io/mdBook"; exit 1; }
	$(MDBOOK) build
