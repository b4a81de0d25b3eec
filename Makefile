# The two commands: `make demo` shows the gateways at work, `make test` runs every test.
# Both set up what is missing first, and say so.

CARGO ?= cargo
export PATH := $(HOME)/.cargo/bin:$(PATH)

.PHONY: demo test setup bench

setup:
	@scripts/setup.sh

demo: setup
	$(CARGO) build --release --bin bentpipe
	@target/release/bentpipe demo $(DEMO)

test: setup
	@scripts/setup.sh python
	@scripts/masque-client/install.sh target/masque-client
	BENTPIPE_MASQUE_CLIENT=$(CURDIR)/target/masque-client/bin/python $(CARGO) test --workspace

bench: setup
	$(CARGO) build --release --bin bentpipe
	@target/release/bentpipe lab bench relay
	@target/release/bentpipe lab bench idle
