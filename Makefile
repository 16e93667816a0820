# libgosched: `make help` lists the targets. What a target needs is installed first (tools/setup).

PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
DESTDIR ?=
CARGO   ?= cargo
CFLAGS  ?= -O2
WARN    := -std=c11 -Wall -Wextra -Wpedantic -Werror

# All scripts look for the library under target/, whatever the user's cargo is set up to do.
export CARGO_TARGET_DIR := $(CURDIR)/target

VERSION  := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# Crate 1.2.3 is libgosched.so.1.2.3, whose soname is libgosched.so.1.
SONAME   := libgosched.so.$(firstword $(subst ., ,$(VERSION)))
SOFILE   := libgosched.so.$(VERSION)
EXAMPLES := alphabet sleepers workercount ring sieve pool wordcount echod httpd proxy respd
PROGRAMS := $(EXAMPLES:%=target/examples/%)
OBJCOPY  ?= objcopy
# checked: with debug assertions.
PROFILE  ?= release
# CARGO_BUILD_TARGET, if set, is another target of Rust's; then CC, LD, AR and OBJCOPY are for it (tools/musl, tools/aarch64).
OUT      := target/$(if $(CARGO_BUILD_TARGET),$(CARGO_BUILD_TARGET)/)$(PROFILE)
# Lua's modules in C, as Lua 5.4 looks for them under /usr/local.
LUADIR   ?= $(LIBDIR)/lua/5.4
# Where gdb looks for scripts if its data is under PREFIX; Debian's gdb: /usr/share/gdb/auto-load.
GDBDIR   ?= $(PREFIX)/share/gdb/auto-load
# Where gdb looks for debug information by the build id; Debian's gdb: /usr/lib/debug.
DEBUGDIR ?= $(PREFIX)/lib/debug
MANDIR   ?= $(PREFIX)/share/man
# Empty: install libraries with their debug information, as a packager needs them who strips all files himself.
STRIP    ?= yes
# Empty: programs and Lua's module find the library where the loader looks anyway.
RPATH    ?= yes
# Not every shell replaces the ~ of PREFIX=~/.local.
$(foreach dir,DESTDIR PREFIX LIBDIR LUADIR GDBDIR DEBUGDIR MANDIR TREE,$(eval override $(dir) := $$(patsubst ~/%,$$(HOME)/%,$$($(dir)))))
LUA_PC   := $(firstword $(foreach p,lua5.4 lua-5.4 lua54,$(shell pkg-config --exists $(p) 2>/dev/null && echo $(p))))
# What libgosched.a needs besides; gosched.pc says so too.
LIBS     := -lhwloc -lgcc_s -lpthread -lm -ldl
STAMP    := target/setup
# Whether the C compiler is one for glibc, not for musl.
IS_GLIBC := $(shell $(CC) -E -dM -include features.h -x c /dev/null 2>/dev/null | grep -w __GLIBC__)
ifeq ($(IS_GLIBC),)
# The libraries need musl's libc.so; rustc would put musl into them.
export RUSTFLAGS := $(RUSTFLAGS) -C target-feature=-crt-static
endif

.PHONY: all build library trace-tool preload examples run test test-all test-checked test-tsan test-aarch64 test-python wheels test-wheels test-musl test-python-ft test-python-stdlib test-python-all run-python bench-python test-cpp test-servers bench-servers bench-clients test-preload bench-preload test-mpi test-observe test-embed test-trace lua test-lua run-lua bench-lua models miri audit lab bench counts soak lint docs release pictures header check-header check-abi fuzz man install install-lua uninstall setup clean help
.DELETE_ON_ERROR:

all: build

# One after the other with make -j too: cargo needs the packages.
build: $(STAMP)/build ## build the library into target/release (plain `make` does this), libgosched-preload.so, gosched-topo, gosched-top, gosched-trace, and Lua's module if Lua's headers are there
	@$(MAKE) --no-print-directory library
	@$(MAKE) --no-print-directory $(OUT)/gosched-topo target/release/gosched-top trace-tool preload $(HPP) $(if $(LUA_PC),target/lua/gosched.so)

library: ## build libgosched.so and libgosched.a, nothing else
	$(CARGO) build --profile $(PROFILE) -p libgosched -p gosched-c
	@$(MAKE) --no-print-directory $(OUT)/libgosched.so $(OUT)/libgosched.a

# lib/README.md says why it is linked in these steps.
$(OUT)/gosched.names: lib/gosched.map
	@sed -n 's/^ *\(gs_[a-z0-9_]*\);$$/\1/p' $< >$@

$(OUT)/gosched.o: $(OUT)/libgosched_c.a $(OUT)/gosched.names lib/gosched.ld
	$(LD) -r -T lib/gosched.ld --gc-sections --force-group-allocation $$(sed 's/^/-u /' $(OUT)/gosched.names) -o $@.all $<
	$(OBJCOPY) -R .llvmbc -R .llvmcmd --keep-global-symbols=$(OUT)/gosched.names --keep-global-symbol=_.stapsdt.base $@.all $@
	@rm -f $@.all

# glibc 2.28 is enough: the library isn't linked with what later versions have added (lib/README.md).
GLIBC := $(if $(IS_GLIBC),$(addprefix $(OUT)/glibc/,later.o libpthread.so.0 libdl.so.2))

$(OUT)/glibc/later.o: lib/glibc/later.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -fPIC -Wall -Wextra -Werror -c -o $@ $<

$(OUT)/glibc/libdl.so.2: private CFLAGS += -DDL
$(OUT)/glibc/lib%: lib/glibc/versions.c lib/glibc/versions.map
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -shared -fPIC -nostdlib -o $@ $< -Wl,-soname,$(@F) -Wl,--version-script=lib/glibc/versions.map

$(OUT)/libgosched.so: $(OUT)/gosched.o $(GLIBC)
	$(CC) -shared -o $@ -Wl,--as-needed $^ -Wl,-soname,$(SONAME) -Wl,--version-script=lib/gosched.map -Wl,-z,nodelete \
	    -Wl,-z,relro,-z,now -Wl,-z,defs -Wl,--gc-sections -Wl,--build-id $(LDFLAGS) $(LIBS)
	@ln -sf libgosched.so $(OUT)/$(SONAME)

$(OUT)/libgosched.a: $(OUT)/gosched.o
	@rm -f $@
	$(AR) rcs $@ $<

# C++'s header, joined of its parts: bindings/cpp/README.md says why it is built.
HPP := target/include/gosched.hpp

$(HPP): bindings/cpp/join bindings/cpp/gosched.hpp $(wildcard bindings/cpp/gosched/*.hpp)
	@mkdir -p $(@D)
	awk -f $< bindings/cpp/gosched.hpp >$@

# The man pages of the header: lib/man.awk writes them. The date is the header's.
MAN      := target/man/man7/gosched.7
MAN_DATE  = $$(date -u -r include/gosched.h +%Y-%m-%d)
# Of a program $1 that does $2; none if it doesn't run here.
man1 = export LD_LIBRARY_PATH=target/release; if target/release/$1 --help >/dev/null 2>&1; then target/release/$1 --help | awk -f lib/man1.awk -v name=$1 -v brief="$2" \
    -v version=$(VERSION) -v date="$(MAN_DATE)" >"$(DESTDIR)$(MANDIR)/man1/$1.1"; chmod 644 "$(DESTDIR)$(MANDIR)/man1/$1.1"; fi

$(MAN): lib/man.awk include/gosched.h Cargo.toml
	@rm -rf target/man && mkdir -p target/man/man3 $(@D)
	awk -f $< -v out=target/man -v version=$(VERSION) -v date="$(MAN_DATE)" include/gosched.h

man: $(MAN) ## write the man pages of gosched.h into target/man

PRELOAD := $(wildcard bindings/preload/*.c)
# It has assembly of its own, for x86-64 only.
HAS_PRELOAD := $(findstring x86_64,$(shell $(CC) -dumpmachine))

preload: $(if $(HAS_PRELOAD),$(OUT)/libgosched-preload.so)

# Not linked with libgosched: bindings/preload/README.md says why.
$(OUT)/libgosched-preload.so: $(PRELOAD) $(wildcard bindings/preload/*.h) include/gosched.h
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -Wall -Wextra -Werror $(CFLAGS) -fPIC -fvisibility=hidden -fexceptions -Iinclude -shared -o $@ $(PRELOAD) \
	    -Wl,-soname,libgosched-preload.so.1 -Wl,-z,relro,-z,now -Wl,-z,nodelete -Wl,--build-id $(LDFLAGS)
	@ln -sf libgosched-preload.so $(OUT)/libgosched-preload.so.1

# How these two are linked; install does it again where neither the build's LIBDIR nor $ORIGIN leads to the library.
link_topo = $(CC) $(WARN) $(CFLAGS) -Iinclude tools/gosched-topo.c -o "$1" -Ltarget/release -lgosched \
    $(if $(RPATH),$(RPATH_TOPO)) $(LDFLAGS)
link_lua = $(CC) -std=gnu11 -Wall -Wextra -Werror $(CFLAGS) -fPIC -shared $$(pkg-config --cflags $(LUA_PC)) -Iinclude \
    bindings/lua/src/*.c -o "$1" -Ltarget/release -lgosched -pthread \
    $(if $(RPATH),$(RPATH_LUA)) $(LDFLAGS)
RPATH_TOPO = '-Wl,-rpath,$$ORIGIN' '-Wl,-rpath,$$ORIGIN/../lib' '-Wl,-rpath,$(LIBDIR)'
RPATH_LUA = '-Wl,-rpath,$$ORIGIN/../release' '-Wl,-rpath,$$ORIGIN/../..' '-Wl,-rpath,$(LIBDIR)'
# $1 as the replacement of a command `s|...|...|` of sed.
in_sed = $(subst |,\|,$(subst &,\&,$(subst \,\\,$1)))
# Whether the rpath of $1 ends with LIBDIR, or none is wanted.
finds = { [ -z "$(RPATH)" ] || readelf -d $1 | grep -qF ':$(LIBDIR)]'; }

# Beside the library here, and in bin beside lib when it is installed.
target/release/gosched-topo: tools/gosched-topo.c include/gosched.h Makefile
	$(call link_topo,$@)

# It asks a running program, and needs no library.
target/release/gosched-top: tools/gosched-top.c Makefile
	@mkdir -p $(@D)
	$(CC) $(WARN) $(CFLAGS) $< -o $@ $(LDFLAGS)

# cargo knows when it is out of date.
trace-tool: ## build gosched-trace, which reads execution traces
	$(CARGO) build --profile $(PROFILE) -p gosched-trace

# Found by rpath: beside the library here, and under LIBDIR when it is installed.
target/lua/gosched.so: $(wildcard bindings/lua/src/*.[ch]) include/gosched.h
	@mkdir -p $(@D)
	$(call link_lua,$@)

examples: $(PROGRAMS) ## build examples-c into target/examples

$(PROGRAMS): target/examples/%: examples-c/%.c $(wildcard examples-c/*.h) include/gosched.h | build
	@mkdir -p $(@D)
	$(CC) $(WARN) $(CFLAGS) -Iinclude $< -o $@ -Ltarget/release -lgosched '-Wl,-rpath,$(CURDIR)/target/release'

run: $(STAMP)/run examples ## run the examples on a real tree (TREE=DIR to choose one); the web server last
	@tools/demo $(if $(TREE),"$(TREE)")

test: $(STAMP)/test ## run checks and tests of every part, each in few settings, with a summary at the end (FROM=PART to begin there)
	@MAKE="$(MAKE)" CARGO="$(CARGO)" tools/test $(if $(FROM),--from $(FROM))

test-all: $(STAMP)/test ## run every check and test with all settings: before a release, or when something deep has changed (FROM=PART to begin there)
	@MAKE="$(MAKE)" CARGO="$(CARGO)" tools/test --all $(if $(FROM),--from $(FROM))

test-checked: $(STAMP)/test ## run the programs of tests/programs with a library that checks itself (ARGS: which; p2-2nodes)
	@$(MAKE) --no-print-directory library PROFILE=checked
	GOSCHED_LIBRARY=target/checked/libgosched.so $(CARGO) test --release --test programs -- $(or $(ARGS),p2-2nodes)

test-aarch64: ## build for 64-bit ARM and run programs of tests/programs by an emulator (ARGS: parts of their names, or --all)
	@MAKE="$(MAKE)" CARGO="$(CARGO)" tools/aarch64 --test $(ARGS)

test-python: $(STAMP)/python ## test bindings/python with each Python found (ARGS: see tools/pythons --help)
	@tools/pythons test $(ARGS)

wheels: $(STAMP)/python ## build a wheel for each Python found, for glibc 2.28 and later, into target/python/wheels (tools/pythons sdist: an archive)
	@tools/pythons wheel $(ARGS)

test-wheels: $(STAMP)/python ## install the wheels and the archive of the sources in chroots of Debian 11, 12 and sid, and for musl (ARGS: see tools/wheel-chroots --help)
	@tools/wheel-chroots $(ARGS)

test-musl: $(STAMP)/test ## build the library for musl and run tests/programs with it (ARGS: which, such as chan/)
	@MAKE="$(MAKE)" tools/musl $(ARGS)

test-python-all: $(STAMP)/python ## test bindings/python at length, and run CPython's own tests, with 3.10 to 3.15 (tools/chroot has the newest)
	@tools/pythons all $(ARGS)

test-python-ft: $(STAMP)/python ## test bindings/python with a free-threaded Python 3.13t, built if need be (ARGS: pytest's)
	@[ -n "$(PYTHON_FT)" ] || tools/python-ft release
	@tools/pythons test --only 3.13t $(ARGS)

test-python-stdlib: $(STAMP)/python ## run CPython's own tests on goroutines, with each Python found
	@tools/pythons stdlib $(ARGS)

run-python: $(STAMP)/python ## run an example of bindings/python (ARGS: the directory to hash)
	@tools/pythons run $(ARGS)

bench-python: $(STAMP)/python-bench ## compare bindings/python with gevent, asyncio and others (ARGS: see its --help)
	@tools/pythons bench $(ARGS)

test-cpp: $(STAMP)/test $(STAMP)/cpp build ## test bindings/cpp with g++ and clang++ (ARGS: see bindings/cpp/check --help)
	@MAKE="$(MAKE)" bindings/cpp/check $(ARGS)

test-servers: $(STAMP)/servers build ## test examples-c/respd with Redis's clients and beside redis-server (ARGS go to pytest)
	@.venv/bin/python -m pytest -p no:cacheprovider -q tests/servers $(ARGS)

test-observe: $(STAMP)/observe build ## test metrics, schedtrace and gosched-top, with Prometheus and Go (ARGS go to pytest)
	@.venv/bin/python -m pytest -p no:cacheprovider -q tests/observe $(ARGS)

test-mpi: $(STAMP)/test $(STAMP)/mpi build ## test bindings/mpi with mpirun on this machine (ARGS: see bindings/mpi/check --help)
	@bindings/mpi/check $(ARGS)

test-embed: $(STAMP)/embed build ## test the examples with Boehm's collector, mruby, libuv and GLib (ARGS=--long: for minutes)
	@examples-c/check-embed $(ARGS)

test-trace: $(STAMP)/test $(STAMP)/trace build ## compare gosched-trace with Go's trace tool (ARGS: see tests/trace/check --help)
	@tests/trace/check $(ARGS)

test-preload: $(STAMP)/test $(STAMP)/preload build examples ## test bindings/preload: all of it (ARGS: see bindings/preload/check --help)
	@bindings/preload/check $(ARGS)

bench-preload: $(STAMP)/preload build examples ## compare goroutines with threads under bindings/preload
	@bindings/preload/check --only bench $(ARGS)

lua: $(STAMP)/lua build ## build the module of bindings/lua into target/lua
	@test -e target/lua/gosched.so || $(MAKE) --no-print-directory target/lua/gosched.so

test-lua: lua ## test bindings/lua at length (ARGS: see bindings/lua/check --help)
	@MAKE="$(MAKE)" bindings/lua/check $(ARGS)

run-lua: lua ## run an HTTP server in Lua on all P's, and requests to it
	@bindings/lua/demo

bench-lua: $(STAMP)/lua-bench lua ## compare bindings/lua with coroutines and others (ARGS: see bindings/lua/bench/compare --help)
	@bindings/lua/bench/compare $(ARGS)

models: $(STAMP)/build ## run the model tests alone (tests/models/README.md)
	cd tests/models && CARGO_TARGET_DIR='$(CURDIR)/target/models' $(CARGO) test --release --no-fail-fast

miri: ## run the tests of the ring and the pool under Miri (needs a nightly toolchain with the component miri)
	@rustup run nightly cargo miri --version >/dev/null 2>&1 || { echo "Miri is missing: rustup toolchain install nightly -c miri,rust-src" >&2; exit 1; }
	cd benches/queues && CARGO_TARGET_DIR='$(CURDIR)/target/miri' MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance" \
	    rustup run nightly cargo miri test --lib

audit: ## check licences, sources and duplicates of the crates with cargo-deny (ARGS=advisories: known flaws, by the network)
	@$(CARGO) deny --version >/dev/null 2>&1 || { echo "cargo-deny is missing: cargo install --locked cargo-deny" >&2; exit 1; }
	$(CARGO) deny $(if $(ARGS),,--offline) check $(or $(ARGS),licenses bans sources)

test-tsan: $(STAMP)/build ## run the unit tests and many programs under ThreadSanitizer (needs a nightly toolchain)
	@tools/tsan

lab: ## run the programs of tests/numa-vm on emulated machines with NUMA nodes (ARGS: see tests/numa-vm/run --help)
	@MAKE="$(MAKE)" tests/numa-vm/run $(ARGS)

bench: $(STAMP)/bench build ## compare with Go and others in the same run (ARGS: see benches/compare --help)
	benches/compare $(ARGS)

bench-servers: $(STAMP)/bench-servers build examples ## compare respd with redis-server, httpd with nginx and Go (ARGS: see benches/servers --help)
	benches/servers $(ARGS)

bench-clients: $(STAMP)/clients build ## compare goroutines with threads as blocking clients of redis-server (ARGS: see benches/clients --help)
	benches/clients $(ARGS)

counts: $(STAMP)/test build ## count the instructions of the hot paths; fail if they have changed (ARGS: see benches/counts/check --help)
	@benches/counts/check $(ARGS)

soak: build ## run chaos, stress, testers, runs in bubbles, Python and clients for SOAK_MINUTES (10); SOAK_PARTS chooses (tools/soak)
	@tools/soak

fuzz: $(STAMP)/build ## look for inputs that break the library, the example servers or gosched-trace, with libFuzzer, for FUZZ_MINUTES (60; ARGS: see tests/fuzz/run --help)
	@tests/fuzz/run $(ARGS)

lint: $(STAMP)/build ## check the format and run clippy
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	cd tests/models && $(CARGO) fmt --all --check
	cd benches/rust && $(CARGO) fmt --all --check

# ARGS=--open shows it in a browser.
docs: $(STAMP)/docs ## build the book of docs/ into target/book, with mdBook (installed into target/mdbook if need be)
	@PATH="$(CURDIR)/target/mdbook/bin:$$PATH" mdbook build $(ARGS)

release: ## check and build all that is due before a release, with a checklist at the end; it tags nothing (ARGS: see tools/release --help)
	@MAKE="$(MAKE)" tools/release $(ARGS)

# It installs what it needs, and ends with 77 where that can't be had.
pictures: build ## make the pictures of docs/observability.md anew, with Go's tools and Chromium (ARGS: see docs/pictures/make --help)
	@docs/pictures/make $(ARGS)

header: $(STAMP)/build ## generate include/gosched.h anew from src/capi
	cargo run --quiet --release -p header -- include/gosched.h

check-header: $(STAMP)/build ## fail if include/gosched.h is not what src/capi gives
	@mkdir -p target
	cargo run --quiet --release -p header -- target/gosched.h
	@diff -u include/gosched.h target/gosched.h || { echo "include/gosched.h is out of date: make header" >&2; exit 1; }

check-abi: $(STAMP)/abi ## fail if the ABI is not what lib/gosched.abi says (ARGS=--update writes it anew; see tests/abi/check --help)
	@tests/abi/check $(ARGS)

# $1 from target/release as $2, with mode $3: stripped, with the debug information in DEBUGDIR.
put = STRIP="$(STRIP)" OBJCOPY="$(OBJCOPY)" lib/separate put "target/release/$1" "$(DESTDIR)$2" $3 "$(DESTDIR)$(DEBUGDIR)"
comma := ,
# The directory of the headers, seen from LIBDIR if that is under PREFIX: what is installed can be moved.
include_dir = case "$(LIBDIR)" in "$(PREFIX)"/*) echo "$(LIBDIR)" | sed 's|^$(call in_sed,$(PREFIX))/||; s|[^/][^/]*|..|g; s|$$|/include|' ;; \
    *) echo "$(PREFIX)/include" ;; esac
# The file $1 with the names @...@ replaced.
filled = sed "s|@INCLUDE@|$$($(include_dir))|; s|@SOFILE@|$(SOFILE)|g; s|@SONAME@|$(SONAME)|; s|@VERSION@|$(VERSION)|; s|@LIBS@|$(subst $() $(),;,$(LIBS))|" $1
CMAKEDIR = $(LIBDIR)/cmake/gosched

install: $(HPP) $(MAN) ## install what `make` has built, under PREFIX (/usr/local), within DESTDIR
	@for built in libgosched.so libgosched.a $(if $(HAS_PRELOAD),libgosched-preload.so) gosched-topo gosched-top gosched-trace; do \
	    test -e target/release/$$built || { echo "target/release/$$built is not built yet: run make first" >&2; exit 1; }; done
	install -d "$(DESTDIR)$(PREFIX)/include" "$(DESTDIR)$(PREFIX)/bin" "$(DESTDIR)$(LIBDIR)/pkgconfig" "$(DESTDIR)$(CMAKEDIR)"
	install -m 644 include/gosched.h "$(DESTDIR)$(PREFIX)/include/gosched.h"
	install -m 644 $(HPP) "$(DESTDIR)$(PREFIX)/include/gosched.hpp"
	install -m 644 bindings/mpi/gosched_mpi.h "$(DESTDIR)$(PREFIX)/include/gosched_mpi.h"
	@$(call put,libgosched.so,$(LIBDIR)/$(SOFILE),755)
	ln -sf $(SOFILE) "$(DESTDIR)$(LIBDIR)/$(SONAME)"
	ln -sf $(SONAME) "$(DESTDIR)$(LIBDIR)/libgosched.so"
	install -m 644 target/release/libgosched.a "$(DESTDIR)$(LIBDIR)/libgosched.a"
	@[ -z "$(STRIP)" ] || $(OBJCOPY) --strip-debug --keep-section=.debug_gdb_scripts "$(DESTDIR)$(LIBDIR)/libgosched.a"
	@[ -z "$(HAS_PRELOAD)" ] || { $(call put,libgosched-preload.so,$(LIBDIR)/libgosched-preload.so.1,755); }
	@[ -z "$(HAS_PRELOAD)" ] || ln -sf libgosched-preload.so.1 "$(DESTDIR)$(LIBDIR)/libgosched-preload.so"
	install -m 755 target/release/gosched-topo "$(DESTDIR)$(PREFIX)/bin/gosched-topo"
	install -m 755 target/release/gosched-top "$(DESTDIR)$(PREFIX)/bin/gosched-top"
	@$(call put,gosched-trace,$(PREFIX)/bin/gosched-trace,755)
	install -d "$(DESTDIR)$(GDBDIR)$(LIBDIR)"
	install -m 644 lib/gosched-gdb.py "$(DESTDIR)$(GDBDIR)$(LIBDIR)/$(SOFILE)-gdb.py"
	@[ "$(LIBDIR)" = "$(PREFIX)/lib" ] || $(call finds,target/release/gosched-topo) || \
	    $(call link_topo,$(DESTDIR)$(PREFIX)/bin/gosched-topo)
	@sed 's|@PREFIX@|$(call in_sed,$(PREFIX))|; s|@LIBDIR@|$(call in_sed,$(LIBDIR))|; s|@VERSION@|$(VERSION)|' lib/gosched.pc.in \
	    >"$(DESTDIR)$(LIBDIR)/pkgconfig/gosched.pc"
	@$(call filled,lib/gosched-config.cmake.in) >"$(DESTDIR)$(CMAKEDIR)/gosched-config.cmake"
	@$(call filled,lib/gosched-config-version.cmake.in) >"$(DESTDIR)$(CMAKEDIR)/gosched-config-version.cmake"
	@chmod 644 "$(DESTDIR)$(LIBDIR)/pkgconfig/gosched.pc" "$(DESTDIR)$(CMAKEDIR)"/gosched-config*.cmake
	@install -d "$(DESTDIR)$(MANDIR)/man1" "$(DESTDIR)$(MANDIR)/man3" "$(DESTDIR)$(MANDIR)/man7"
	@$(call man1,gosched-topo,draw a machine as libgosched sees it)
	@$(call man1,gosched-top,show what the scheduler of a running program does)
	@$(call man1,gosched-trace,print$(comma) sum up and convert execution traces)
	@install -m 644 target/man/man3/*.3 "$(DESTDIR)$(MANDIR)/man3"
	@install -m 644 $(MAN) "$(DESTDIR)$(MANDIR)/man7"
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi
	@echo "installed $(SOFILE) into $(DESTDIR)$(LIBDIR)"
	@if [ -e target/lua/gosched.so ]; then $(MAKE) --no-print-directory install-lua; \
	else echo "no module for Lua: 'make lua install-lua' builds and installs it; it needs Lua 5.4 (Debian: liblua5.4-dev)"; fi

install-lua: ## install the module for Lua 5.4 that `make lua` has built, into LUADIR (LIBDIR/lua/5.4)
	@test -e target/lua/gosched.so || { echo "the module for Lua is not built yet: run 'make lua' first (it needs Debian's liblua5.4-dev)" >&2; exit 1; }
	install -d "$(DESTDIR)$(LUADIR)"
	install -m 755 target/lua/gosched.so "$(DESTDIR)$(LUADIR)/gosched.so"
	@[ "$(LUADIR)" = "$(LIBDIR)/lua/5.4" ] || $(call finds,target/lua/gosched.so) || \
	    $(call link_lua,$(DESTDIR)$(LUADIR)/gosched.so)

uninstall: ## remove what install has put there
	rm -f "$(DESTDIR)$(PREFIX)/include/gosched.h" "$(DESTDIR)$(PREFIX)/include/gosched.hpp" "$(DESTDIR)$(PREFIX)/include/gosched_mpi.h"
	@lib/separate drop "$(DESTDIR)$(DEBUGDIR)" "$(DESTDIR)$(LIBDIR)/$(SONAME)".* "$(DESTDIR)$(LIBDIR)/libgosched-preload.so.1" "$(DESTDIR)$(PREFIX)/bin/gosched-trace"
	rm -f "$(DESTDIR)$(PREFIX)/bin/gosched-topo" "$(DESTDIR)$(PREFIX)/bin/gosched-top" "$(DESTDIR)$(LIBDIR)/pkgconfig/gosched.pc" "$(DESTDIR)$(LIBDIR)/libgosched.a"
	rm -f "$(DESTDIR)$(LIBDIR)/libgosched.so" "$(DESTDIR)$(LIBDIR)/$(SONAME)" "$(DESTDIR)$(LIBDIR)/libgosched-preload.so"
	rm -f "$(DESTDIR)$(CMAKEDIR)"/gosched-config.cmake "$(DESTDIR)$(CMAKEDIR)"/gosched-config-version.cmake
	@[ ! -d "$(DESTDIR)$(CMAKEDIR)" ] || rmdir "$(DESTDIR)$(CMAKEDIR)"
	@for name in $$(sed -n 's/^ *\(gs_[a-z0-9_]*\);$$/\1/p' lib/gosched.map); do rm -f "$(DESTDIR)$(MANDIR)/man3/$$name.3"; done
	rm -f "$(DESTDIR)$(MANDIR)/man7/gosched.7" "$(DESTDIR)$(MANDIR)/man1/gosched-topo.1" "$(DESTDIR)$(MANDIR)/man1/gosched-top.1" "$(DESTDIR)$(MANDIR)/man1/gosched-trace.1"
	rm -f "$(DESTDIR)$(LUADIR)/gosched.so" "$(DESTDIR)$(GDBDIR)$(LIBDIR)/$(SONAME)".*-gdb.py
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

setup: ## install what building, running, testing and benchmarking need, all at once
	@tools/setup build run test servers observe cpp embed mpi clients preload lua trace lab bench bench-servers lua-bench python python-bench

# Each group is looked at once, and again when tools/setup changes or target/ is gone.
$(STAMP)/%: tools/setup
	@tools/setup $*
	@mkdir -p $(STAMP) && touch $@

clean: ## remove target/ (the Python environment .venv stays)
	rm -rf target

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-18s %s\n", $$1, $$2 }' Makefile
