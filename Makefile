# The menu. `make demo` and `make test` work on a fresh Debian 12 with git, cargo and make.

BUILD_PACKAGES = clang clang-format g++ libc6-dev libclang-dev libelf-dev linux-libc-dev llvm make pkg-config zlib1g-dev
LAB_PACKAGES = bind9-dnsutils bpftool chromium curl default-jre-headless dnsmasq-base hping3 httping iperf3 iproute2 iptables iputils-ping memcached nginx-light nodejs openssl python3 redis-server redis-tools tcpdump util-linux wget wireguard-go wireguard-tools wrk
BENCH_PACKAGES = tcptrace tshark
VM_PACKAGES = binutils busybox-static cpio kmod qemu-system-x86 xz-utils zstd
# A kernel for link boxes, whose tests skip without it.
BOX_PACKAGES = kmod user-mode-linux

# Loading BPF programs and making network namespaces takes root.
SUDO = $(if $(filter 0,$(shell id -u)),,sudo)
HOST = $(shell rustc -vV | sed -n 's/^host: //p' | tr a-z- A-Z_)
AS_ROOT = $(if $(SUDO),CARGO_TARGET_$(HOST)_RUNNER='sudo -E')

install = @missing=$$(for package in $(1); do dpkg -s $$package >/dev/null 2>&1 || echo $$package; done); \
	if [ -n "$$missing" ]; then echo "installing:" $$missing; \
	$(SUDO) apt-get update -q && DEBIAN_FRONTEND=noninteractive \
	$(SUDO) apt-get install -q -y --no-install-recommends $$missing; fi

PREFIX = /usr/local
DESTDIR =
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
TARGET = $(or $(CARGO_TARGET_DIR),target)

.PHONY: help setup build install test vm demo bench lint fuzz
help: ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

setup: ## install what is missing to build, test and demonstrate
	$(call install,$(BUILD_PACKAGES) $(LAB_PACKAGES))

build: setup ## target/release/dwell, libdwell.so and libdwell_calls.so
	cargo build --release --locked -p dwell-cli -p libdwell -p libdwell-calls

install: ## what was built, below PREFIX (/usr/local), in DESTDIR
	install -D -t $(DESTDIR)$(PREFIX)/bin $(TARGET)/release/dwell
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib $(TARGET)/release/libdwell.so $(TARGET)/release/libdwell.a
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/dwell $(TARGET)/release/libdwell.so $(TARGET)/release/libdwell_calls.so
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/include include/dwell.h
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man3 crates/libdwell/man/libdwell.3
	$(TARGET)/release/dwell man $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' crates/libdwell/dwell.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/dwell.pc

test: setup ## every test; those that need root run as root
	$(AS_ROOT) cargo test --workspace --locked
	cargo test --locked --manifest-path fuzz/Cargo.toml
	tests/compat/run $${CARGO_TARGET_DIR:-target}/debug/dwell
	$(SUDO) tests/quic/run $(TARGET)/debug/dwell $(TARGET)/quic

vm: setup ## which hooks of dwell stack fire on kernels of Debian, in virtual machines; links by another kernel
	$(call install,$(VM_PACKAGES) $(BOX_PACKAGES))
	tests/vm/kernels target/vm
	DWELL_KERNELS=$(CURDIR)/target/vm $(AS_ROOT) cargo test --locked -p dwell-lab --test root -- guest:: --test-threads=1
	$(AS_ROOT) cargo test --locked -p dwell-lab --test root -- link_box:: --test-threads=1
	DWELL_KERNELS=$(CURDIR)/target/vm $(AS_ROOT) cargo test --locked -p dwell-cli --test kernels -- --nocapture
	DWELL_KERNELS=$(CURDIR)/target/vm $(AS_ROOT) cargo test --locked -p dwell-cli --test cli -- lab_stack::root_a_virtual

demo: build ## real traffic over links of known delay, and what dwell measures
	$(SUDO) target/release/dwell lab demo

bench: build ## what dwell costs, as ratios from one run
	$(call install,$(BENCH_PACKAGES) $(BOX_PACKAGES))
	cargo build --release --locked -p dwell-bench
	$(SUDO) target/release/kernel
	$(SUDO) target/release/replay
	$(SUDO) target/release/memory
	$(SUDO) target/release/live
	$(SUDO) target/release/accuracy
	$(SUDO) target/release/stack
	$(SUDO) target/release/clock
	$(SUDO) target/release/socket
	$(SUDO) target/release/balancer
	$(SUDO) target/release/balancer_quic
	$(SUDO) target/release/control
	$(SUDO) target/release/dwell lab socket --time 6s
	$(SUDO) target/release/dwell lab socket video
	$(SUDO) target/release/dwell lab lb --runs 3
	$(SUDO) target/release/dwell lab lb open
	$(SUDO) target/release/dwell lab quic handshakes
	$(SUDO) target/release/dwell lab quic policies
	$(SUDO) target/release/dwell lab quic moves
	$(SUDO) target/release/dwell lab quic replay
	$(SUDO) target/release/dwell lab quic changes
	target/release/dwell sim paper --runs 10

lint: setup ## rustfmt, clippy and clang-format, warnings denied
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
	cd fuzz && cargo fmt --check && cargo clippy --all-targets --locked -- -D warnings
	clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h')

fuzz: setup ## a short run of each fuzz target, under AddressSanitizer
	fuzz/run
