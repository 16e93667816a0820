//! Builds the programs of `tests/programs` against the shared library and runs each of them with
//! several numbers of P's and topologies, and checks the header and the library as such.
//!
//! A program with a setting is a test, such as `chan/p8-4nodes-widened`; its own tests are listed in
//! its source. Without a name each program runs with few settings, or with all of its settings if the
//! environment has `SETTINGS=all`. `TESTS` in the environment lists parts of names, of which a test has at least one.
//! `cargo test --release --test programs -- chan/` runs the program `chan`
//! with all of its settings. To see a failure again, run the command that the message names.

use libtest_mimic::{Arguments, Trial};
use object::{Object, ObjectSymbol};
use std::collections::HashMap;
use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, Once, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wait_timeout::ChildExt;

/// How long one run of a program may take. Each test inside has a shorter watchdog of its own.
const LIMIT: Duration = Duration::from_secs(150);
/// How long a run of the chaos program may take, which includes gdb's look at all threads after a failure.
const CHAOS_LIMIT: Duration = Duration::from_secs(300);

const PROCS: [&str; 3] = ["1", "2", "8"];
const TOPOLOGIES: [&str; 3] = ["flat", "node:2 core:2 pu:1", "node:4 core:2 pu:1"];
const WIDENED: &str = "migrate=1,randomorder=1,tinyqueues=1";

/// The environment of one run.
#[derive(Clone, Copy)]
struct Setting {
    procs: &'static str,
    topology: &'static str,
    debug: Option<&'static str>,
}

impl Setting {
    /// As a part of a test's name.
    fn name(self) -> String {
        let nodes = match self.topology {
            "flat" => "flat".to_string(),
            other => format!("{}nodes", &other[5..6]),
        };
        let debug = if self.debug.is_some() { "-widened" } else { "" };
        format!("p{}-{nodes}{debug}", self.procs)
    }
}

/// Every number of P's with every topology.
fn matrix() -> Vec<Setting> {
    let mut all = Vec::new();
    for procs in PROCS {
        for topology in TOPOLOGIES {
            all.push(Setting { procs, topology, debug: None });
        }
    }
    all
}

/// Every number of P's, each with a topology of its own.
fn diagonal() -> impl Iterator<Item = Setting> {
    let setting = |(procs, topology)| Setting { procs, topology, debug: None };
    PROCS.into_iter().zip(TOPOLOGIES).map(setting)
}

/// The matrix, and again with the switches that widen races.
fn widened() -> Vec<Setting> {
    let wide = |setting| Setting { debug: Some(WIDENED), ..setting };
    // The first of the diagonal is flat.
    matrix().into_iter().chain(flat().into_iter().chain(diagonal().skip(1)).map(wide)).collect()
}

/// Every number of P's on a machine with one node.
fn flat() -> Vec<Setting> {
    PROCS.map(|procs| Setting { procs, topology: "flat", debug: None }).into()
}

/// For what takes long: the diagonal, with the races of two P's widened.
fn three() -> Vec<Setting> {
    few(&widened())
}

/// The settings on the diagonal, for two P's with the races widened if there is such a setting; the first setting, if none
/// is on the diagonal.
fn few(all: &[Setting]) -> Vec<Setting> {
    let one = |on: Setting| {
        let is_on = |s: &&Setting| {
            let is_there = (s.procs, s.topology) == (on.procs, on.topology);
            is_there && (on.procs == "2" || s.debug.is_none())
        };
        all.iter().rfind(is_on).copied()
    };
    let found: Vec<_> = diagonal().filter_map(one).collect();
    if found.is_empty() { all[..1].to_vec() } else { found }
}

/// For what is too large to run many times.
fn once() -> Vec<Setting> {
    vec![Setting { procs: "2", topology: "flat", debug: None }]
}

/// A program of tests/programs, and the settings with which it runs.
struct Program {
    name: &'static str,
    file: &'static str,
    options: &'static [&'static str],
    settings: fn() -> Vec<Setting>,
}

const fn program(
    name: &'static str,
    file: &'static str,
    settings: fn() -> Vec<Setting>,
) -> Program {
    Program { name, file, options: &[], settings }
}

const PROGRAMS: &[Program] = &[
    program("start_stop", "start_stop.c", matrix),
    program("life", "life.c", widened),
    program("constructor", "constructor.c", matrix),
    program("procs", "procs.c", once),
    program("fork", "fork.c", matrix),
    program("fork_stack", "fork_stack.c", matrix),
    program("heap_lock", "heap_lock.c", matrix),
    program("dlopen", "dlopen.c", matrix),
    program("goroutine", "goroutine.c", matrix),
    program("join", "join.c", matrix),
    program("cancel", "cancel.c", widened),
    program("keys", "keys.c", matrix),
    program("priority", "priority.c", matrix),
    program("fairness", "fairness.c", matrix),
    program("gang", "gang.c", matrix),
    program("state", "state.c", widened),
    program("stacks", "stacks.c", matrix),
    program("many", "many.c", matrix),
    program("million", "million.c", once),
    program("chan", "chan.c", widened),
    program("chan_order", "chan_order.c", widened),
    program("chan_close", "chan_close.c", widened),
    program("chan_stress", "chan_stress.c", widened),
    program("chan_foreign", "chan_foreign.c", widened),
    program("chan_lifetime", "chan_lifetime.c", widened),
    program("select", "select.c", widened),
    program("mutex", "mutex.c", matrix),
    program("numa", "numa.c", matrix),
    program("rwmutex", "rwmutex.c", matrix),
    program("cond", "cond.c", matrix),
    program("waitgroup", "waitgroup.c", matrix),
    program("sem", "sem.c", matrix),
    program("once_object", "once.c", matrix),
    program("sync_lifetime", "sync_lifetime.c", widened),
    program("semantics", "semantics.c", widened),
    program("go_tests", "go_tests.c", widened),
    program("sizes", "sizes.c", matrix),
    program("timer", "timer.c", matrix),
    program("syscall", "syscall.c", matrix),
    program("os_thread", "os_thread.c", matrix),
    program("bound", "bound.c", widened),
    program("hooks", "hooks.c", widened),
    program("workers", "workers.c", widened),
    program("attach", "attach.c", widened),
    program("gomaxprocs", "gomaxprocs.c", matrix),
    program("max_threads", "max_threads.c", matrix),
    program("misuse", "misuse.c", matrix),
    program("deadlock", "deadlock.c", matrix),
    program("stress", "stress.c", widened),
    program("cxx", "cxx.cpp", widened),
    program("leaks", "leaks.c", matrix),
    program("leaked", "leaked.c", widened),
    program("flat", "flat.c", three),
    program("fault", "fault.c", flat),
    program("io", "io.c", widened),
    program("io_net", "io_net.c", widened),
    program("io_adopt", "io_adopt.c", widened),
    program("io_reuse", "io_reuse.c", widened),
    program("io_random", "io_random.c", widened),
    program("io_process", "io_process.c", matrix),
    program("io_disk", "io_disk.c", matrix),
    program("io_calls", "io_calls.c", flat),
    program("io_misuse", "io_misuse.c", matrix),
    program("resolve", "resolve.c", flat),
    program("rows", "rows.c", matrix),
    program("regressions", "regressions.c", widened),
    program("preempt", "preempt.c", matrix),
    program("hogs", "hogs.c", widened),
    program("mixed", "mixed.c", widened),
    program("never_switch", "never_switch.c", flat),
    program("embed", "embed.c", matrix),
    program("backtrace", "backtrace.c", three),
    program("dump", "dump.c", flat),
    program("signals", "signals.c", matrix),
    program("trace", "trace.c", widened),
    program("bubble", "bubble.c", three),
    program("synctest", "synctest.c", three),
    program("servers", "servers.c", once),
    Program { name: "servers_respd", file: "servers.c", options: &["-DRESPD"], settings: once },
    program("observe", "observe.c", matrix),
];

const ADDRESS_SANITIZER: &[&str] = &["-fsanitize=address"];
const NO_INLINE: &[&str] = &["-DGS_NO_INLINE"];

/// Programs that are compiled in other ways, too.
const VARIANTS: &[Program] = &[
    // The callers optimised as hard as it gets: compilers then cache addresses of thread-locals.
    Program { name: "state_o3_lto", file: "state.c", options: &["-O3", "-flto"], settings: matrix },
    // The sanitizer knows the goroutines' stacks: exceptions on them, and goroutines that end in the
    // middle of a function, aren't errors to it.
    Program { name: "asan_cxx", file: "cxx.cpp", options: ADDRESS_SANITIZER, settings: once },
    Program {
        name: "asan_goroutine",
        file: "goroutine.c",
        options: ADDRESS_SANITIZER,
        settings: once,
    },
    Program { name: "asan_chan", file: "chan.c", options: ADDRESS_SANITIZER, settings: once },
    Program {
        name: "asan_fork_stack",
        file: "fork_stack.c",
        options: ADDRESS_SANITIZER,
        settings: once,
    },
    Program { name: "asan_syscall", file: "syscall.c", options: ADDRESS_SANITIZER, settings: once },
    Program {
        name: "asan_attach",
        file: "attach_asan.c",
        options: ADDRESS_SANITIZER,
        settings: once,
    },
    Program {
        name: "asan_leaks",
        file: "leak_sanitizer.c",
        options: ADDRESS_SANITIZER,
        settings: once,
    },
    Program { name: "asan_leaked", file: "leaked.c", options: ADDRESS_SANITIZER, settings: once },
    Program { name: "asan_stress", file: "stress.c", options: ADDRESS_SANITIZER, settings: once },
    // The program has a copy of the C++ runtime, which others don't see unless they ask for it.
    Program {
        name: "cxx_static",
        file: "cxx.cpp",
        options: &["-static-libstdc++", "-static-libgcc"],
        settings: matrix,
    },
    // Backtraces by CFI alone, where there are frame pointers too, and by symbols alone.
    Program {
        name: "dump_omit_frame_pointer",
        file: "dump.c",
        options: &["-fomit-frame-pointer"],
        settings: flat,
    },
    Program {
        name: "dump_frame_pointer",
        file: "dump.c",
        options: &["-fno-omit-frame-pointer"],
        settings: flat,
    },
    Program {
        name: "dump_no_debug_information",
        file: "dump.c",
        options: &["-g0", "-DWITHOUT_DEBUG_INFORMATION"],
        settings: once,
    },
    Program { name: "asan_bubble", file: "bubble.c", options: ADDRESS_SANITIZER, settings: once },
    Program { name: "asan_dump", file: "dump.c", options: ADDRESS_SANITIZER, settings: once },
    Program {
        name: "dump_static_library",
        file: "dump.c",
        options: &["-l:libgosched.a", "-lhwloc", "-lgcc_s"],
        settings: once,
    },
    // The objects' fast paths are in the header or in the library.
    Program { name: "mutex_no_inline", file: "mutex.c", options: NO_INLINE, settings: flat },
    Program { name: "rwmutex_no_inline", file: "rwmutex.c", options: NO_INLINE, settings: flat },
    Program { name: "once_no_inline", file: "once.c", options: NO_INLINE, settings: flat },
    Program { name: "preempt_no_inline", file: "preempt.c", options: NO_INLINE, settings: flat },
];

/// Its constructors run before those of the library, unless the library takes care.
const STATIC_CONSTRUCTOR: Program = Program {
    name: "constructor_static_library",
    file: "constructor.c",
    options: &["-l:libgosched.a", "-lhwloc", "-lgcc_s"],
    settings: matrix,
};

/// A program in C loads plugins in C++, which lie beside it.
const PLUGIN: Program = program("plugin", "plugin.c", widened);
const PLUGINS: [&[&str]; 2] = [&["-shared", "-fPIC"], &["-shared", "-fPIC", "-static-libstdc++"]];

/// After a shutdown everything is given back: not a byte is left, nor was one used after it was freed.
fn valgrind_finds_no_leak_and_no_error() {
    let Some(program) = build("leaks.c", &["-g3"]) else { return };
    let out = Command::new("valgrind")
        .args(["--leak-check=full", "--show-leak-kinds=all", "--errors-for-leak-kinds=all"])
        .args(["--error-exitcode=99", "--child-silent-after-fork=yes"])
        .arg(&program)
        .env("GOSCHED_PROCS", "2")
        .env("GOSCHED_DEBUG", "systemheap=1")
        .env("CHECK_SECONDS", "300")
        .output();
    match out {
        Ok(out) => {
            let text = String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success(), "{}\n{text}", describe(Some(out.status), LIMIT));
            assert!(text.contains("no leaks are possible"), "{text}");
        }
        Err(e) => say(&format!("skip valgrind: {e}")),
    }
}

/// Operations that meet a known fault. A change that mends it takes the name out.
const CHAOS_WITHOUT: &str = "";

/// Random operations of every kind at once, with 1, 2 and 8 P's, and again with the switches that widen
/// races (tests/chaos/README.md).
fn chaos_settings() -> Vec<Setting> {
    let mut settings = Vec::new();
    for debug in [None, Some(WIDENED)] {
        for procs in PROCS {
            settings.push(Setting { procs, topology: "flat", debug });
        }
    }
    settings.push(Setting { procs: "8", topology: "node:4 core:2 pu:1", debug: None });
    settings
}

/// The directory of the chaos program, which is built once.
fn chaos_dir() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let dir = work_dir().join("chaos");
        let build = manifest_dir().join("tests/chaos/build");
        must_succeed(Command::new(build).arg(&dir).arg(library()));
        dir
    })
}

fn chaos(setting: Setting) {
    let dir = chaos_dir();
    let mut cmd = Command::new(dir.join("chaos"));
    cmd.arg("4").env("GOSCHED_PROCS", setting.procs).env("GOSCHED_TOPOLOGY", setting.topology);
    cmd.env("GOSCHED_DEBUG", setting.debug.unwrap_or(""));
    cmd.env_remove("GOMAXPROCS").env("CHAOS_WITHOUT", CHAOS_WITHOUT);
    if is_emulated() {
        say(&format!("skip forks in chaos: {FORKS}"));
        cmd.env("CHAOS_WITHOUT", "fork");
    }
    let log = dir.join(format!("{}.log", setting.name()));
    // Its own watchdog says more, but doesn't watch the begin and the end of a runtime.
    let status = run_with_limit(&mut cmd, &log, limit(CHAOS_LIMIT));
    if !status.is_some_and(|s| s.success()) {
        let text = fs::read(&log).unwrap();
        panic!("{}\n{}", describe(status, limit(CHAOS_LIMIT)), String::from_utf8_lossy(&text));
    }
}

/// Functions that the chaos program need not call, and why.
const NOT_IN_CHAOS: &[(&str, &str)] = &[
    ("gs_init_for", "gs_init is a macro for it"),
    ("gs_run_for", "gs_run is a macro for it"),
    ("gs_add_frames", "can't be undone: trace.c calls it"),
    ("gs_test_seed", IN_BUBBLE),
];

const IN_BUBBLE: &str = "a bubble shares nothing with others: bubble.c";

/// Chaos in bubbles for some seconds or a minute, by seeds that are others each time.
fn chaos_in_bubbles(all: bool) {
    let dir = chaos_dir();
    let mut cmd = Command::new(dir.join("chaos"));
    let runs = if all { "10000" } else { "500" };
    cmd.args(["--bubble", &some_seed(), runs]).env_remove("GOSCHED_DEBUG");
    must_run(&mut cmd, &dir.join("bubbles.log"));
}

/// A first seed.
fn some_seed() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    (now.as_millis() % 1_000_000_000_000).to_string()
}

/// Runs the command, and says what it printed if it fails.
fn must_run(cmd: &mut Command, log: &Path) {
    let status = run_with_limit(cmd, log, limit(CHAOS_LIMIT));
    if !status.is_some_and(|s| s.success()) {
        let text = fs::read(log).unwrap();
        panic!(
            "{cmd:?}\n{}\n{}",
            describe(status, limit(CHAOS_LIMIT)),
            String::from_utf8_lossy(&text)
        );
    }
}

/// Another process, with another machine and with the switches that widen races, has the same events.
fn a_seed_gives_the_same_events_in_each_process() {
    let dir = chaos_dir();
    let seed = some_seed();
    let events = |procs: &str, topology: &str, debug: &str| {
        let log = dir.join(format!("events-{procs}"));
        let _ = fs::remove_file(&log);
        let mut cmd = Command::new(dir.join("chaos"));
        cmd.args(["--bubble", &seed, "200"]).env("CHAOS_LOG", &log).env_remove("GOMAXPROCS");
        cmd.env("GOSCHED_PROCS", procs)
            .env("GOSCHED_TOPOLOGY", topology)
            .env("GOSCHED_DEBUG", debug);
        must_run(&mut cmd, &dir.join(format!("events-{procs}.log")));
        fs::read(log).unwrap()
    };
    let (first, second) = (events("1", TOPOLOGIES[0], ""), events("8", TOPOLOGIES[2], WIDENED));
    let is_other = |(a, b): (&[u8], &[u8])| a != b;
    let lines = |all| <[u8]>::split(all, |&byte| byte == b'\n');
    let other = lines(&first).zip(lines(&second)).find(|&pair| is_other(pair));
    let text = |line| String::from_utf8_lossy(line).into_owned();
    let other = other.map(|(a, b)| (text(a), text(b)));
    assert!(first == second, "with the seeds from {seed} on: {other:?}");
    assert!(first.len() > 100_000, "{} bytes", first.len());
}

/// Testers of `tests/programs` that play in bubbles (tester.h).
const IN_BUBBLES: &[&str] = &["semantics", "stress", "io_random", "chan_stress"];

fn tester_in_bubbles(name: &str, all: bool) {
    let Some(program) = build(&format!("{name}.c"), &[]) else { return };
    let mut cmd = Command::new(&program);
    let runs = if all { "60000" } else { "2000" };
    cmd.args(["bubbles", &some_seed(), runs]).env_remove("GOSCHED_DEBUG");
    must_run(&mut cmd, &program.with_extension("bubbles.log"));
}

fn chaos_uses_every_function_of_the_header() {
    let mut text = String::new();
    for entry in fs::read_dir(manifest_dir().join("tests/chaos")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "c" || e == "cpp") {
            text.push_str(&without_comments(&fs::read_to_string(path).unwrap()));
        }
    }
    for f in declared_functions() {
        let excluded = NOT_IN_CHAOS.iter().any(|(name, _)| *name == f);
        let used = text.contains(&format!("{f}("));
        assert!(
            used || excluded,
            "no operation of tests/chaos uses {f}: add one, or an entry with the reason"
        );
        assert!(!(used && excluded), "NOT_IN_CHAOS lists {f}, which an operation uses");
    }
}

/// Functions that `fault.c` need not call, and why.
const NOT_IN_FAULT: &[(&str, &str)] = &[
    ("gs_init_for", "gs_init is a macro for it"),
    ("gs_run_for", "gs_run is a macro for it"),
    ("gs_preempt_flag", "gives an address"),
    ("gs_trace_start", IN_TRACE),
    ("gs_trace_stop", IN_TRACE),
    ("gs_flight_start", IN_TRACE),
    ("gs_flight_stop", IN_TRACE),
    ("gs_flight_write", IN_TRACE),
    ("gs_test_run", IN_BUBBLE),
    ("gs_test_explore", IN_BUBBLE),
    ("gs_test_fail", IN_BUBBLE),
    ("gs_test_seed", IN_BUBBLE),
];

const IN_TRACE: &str = "what may fail is the tracer's thread's; trace.c has the errors";

fn fault_uses_every_function_of_the_header() {
    let text = fs::read_to_string(manifest_dir().join("tests/programs/fault.c")).unwrap();
    let text = without_comments(&text);
    for f in declared_functions() {
        let excluded = NOT_IN_FAULT.iter().any(|(name, _)| *name == f);
        let used = text.contains(&format!("{f}("));
        assert!(
            used != excluded,
            "tests/programs/fault.c calls {f}, or NOT_IN_FAULT says why it need not"
        );
    }
}

/// A program that fails with its second part and from a size of 23 % on: to a tenth, 25.
const FAILS_WITH_PART_1: &str = "#!/bin/sh
[ \"$1\" != parts ] || { echo 4; exit; }
[ $((CHECK_PARTS >> 1 & 1)) = 0 ] || [ \"$CHECK_SIZE\" -lt 23 ] || [ \"$SETTING\" != 'a b' ]
";

fn a_failure_of_a_tester_is_made_smaller() {
    use std::os::unix::fs::PermissionsExt;
    let tester = work_dir().join("fails_with_part_1");
    fs::write(&tester, FAILS_WITH_PART_1).unwrap();
    fs::set_permissions(&tester, fs::Permissions::from_mode(0o755)).unwrap();
    let shrink = |setting: &str| {
        let mut cmd = Command::new(manifest_dir().join("tools/shrink"));
        let output = cmd.arg(setting).arg(&tester).args(["3", "77"]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (status, text) = shrink("SETTING=a b");
    assert_eq!(status, Some(0), "{text}");
    let smallest =
        format!("env CHECK_PARTS=0x2 CHECK_SIZE=25 'SETTING=a b' '{}' '3' '77'", tester.display());
    assert!(text.contains(&smallest), "{text}");
    assert_eq!(shrink("SETTING=c").0, Some(1));
}

fn every_program_has_a_test() {
    for entry in fs::read_dir(manifest_dir().join("tests/programs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_program = name.ends_with(".c") || name.ends_with(".cpp");
        let has_test = PROGRAMS.iter().chain(VARIANTS).chain([&PLUGIN]).any(|p| p.file == name);
        assert!(
            !is_program || has_test,
            "tests/programs/{name} is run by no test: add it to tests/programs.rs"
        );
    }
    let readme = fs::read_to_string(manifest_dir().join("tests/README.md")).unwrap();
    for p in PROGRAMS.iter().chain([&PLUGIN]) {
        let named = format!("`{}`", p.name);
        assert!(readme.contains(&named), "tests/README.md says nothing of {}", p.name);
    }
}

/// It has an allocator of its own.
fn rust_program_that_depends_on_the_rlib() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--manifest-path", "tests/rlib/Cargo.toml"]);
    cargo.env("CARGO_TARGET_DIR", "target/rlib");
    must_succeed(cargo.current_dir(manifest_dir()));
    run_once(&manifest_dir().join("target/rlib/debug/rlib-user"), 0, &once()[0]);
}

// ---- Programs of other versions, and the static library ----

fn abi(file: &str) -> PathBuf {
    manifest_dir().join("tests/abi").join(file)
}

/// Compiles a program of tests/abi, with these options before and behind it.
fn compile(program: &Path, before: &[String], file: &str, behind: &[String]) {
    let mut cmd = c_compiler();
    cmd.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(before);
    cmd.arg("-I").arg(manifest_dir().join("include"));
    cmd.arg("-I").arg(manifest_dir().join("tests/programs"));
    must_succeed(cmd.arg(abi(file)).arg("-o").arg(program).args(behind));
}

fn rpath(dir: &Path) -> String {
    format!("-Wl,--disable-new-dtags,-rpath,{}", dir.display())
}

/// The program records the versions of the symbols that it found in the library of its time.
fn program_of_the_first_release() {
    let dir = work_dir().join("first-release");
    fs::create_dir_all(&dir).unwrap();
    let (source, map) = (dir.join("stub.c"), dir.join("stub.map"));
    let names = fs::read_to_string(abi("symbols-1.0")).unwrap();
    let is_word = |name: &&str| *name == "gs_preempt_word";
    let functions = names.lines().filter(|n| !is_word(n)).map(|n| format!("void {n}(void) {{}}\n"));
    fs::write(&source, functions.collect::<String>() + "unsigned gs_preempt_word;\n").unwrap();
    let global = names.lines().map(|n| format!("{n};")).collect::<String>();
    fs::write(&map, format!("GOSCHED_1 {{ global: {global} local: *; }};")).unwrap();
    let mut cmd = c_compiler();
    cmd.args(["-shared", "-fPIC", "-Wl,-soname,libgosched.so.1", "-o"]);
    cmd.arg(dir.join("libgosched.so")).arg(&source);
    must_succeed(cmd.arg(format!("-Wl,--version-script={}", map.display())));

    let linked = dir.join("linked");
    let link =
        [format!("-L{}", dir.display()), "-lgosched".into(), rpath(library()), "-ldl".into()];
    compile(&linked, &[], "user.c", &link);
    let loaded = dir.join("loaded");
    compile(&loaded, &["-DDLOPEN".into()], "user.c", &[rpath(library()), "-ldl".into()]);
    for program in [&linked, &loaded] {
        for (i, setting) in flat().iter().enumerate() {
            run_once(program, i, setting);
        }
    }
}

fn header_that_is_newer_than_the_library() {
    let header = fs::read_to_string(manifest_dir().join("include/gosched.h")).unwrap();
    for (part, option) in [("MAJOR", ""), ("MINOR", ""), ("PATCH", "-DPATCH")] {
        let dir = work_dir().join(format!("newer-{part}"));
        fs::create_dir_all(&dir).unwrap();
        let define = format!("#define GS_VERSION_{part} ");
        assert!(header.contains(&define));
        let newer = header.replace(&define, &format!("{define}9"));
        // The other one has the same include guard.
        fs::write(dir.join("gosched.h"), newer).unwrap();
        let options = [format!("-I{}", dir.display()), option.into()];
        let options = options.into_iter().filter(|o| !o.is_empty()).collect::<Vec<_>>();
        let link = [format!("-L{}", library().display()), "-lgosched".into(), rpath(library())];
        let program = dir.join("newer");
        compile(&program, &options, "newer.c", &link);
        run_once(&program, 0, &flat()[0]);
        let log = fs::read_to_string(program.with_extension("0.log")).unwrap();
        assert_eq!(log.contains("install the newer library"), part != "PATCH", "{log}");
    }
}

/// Only the static library is there, and `pkg-config --static` says what else it needs; beside it
/// may be another static library that has Rust's standard library in it.
fn static_library_by_pkg_config() {
    if env::var_os("GOSCHED_LIBRARY").is_some() {
        return say("skip: it would test another library than GOSCHED_LIBRARY");
    }
    library();
    let dir = work_dir().join("static");
    let _ = fs::remove_dir_all(&dir);
    let prefix = format!("PREFIX={}", dir.display());
    make_what_is_installed();
    make(&["install", "DESTDIR=/", &prefix]);
    // It finds the library beside it, wherever that was installed.
    let mut topo = Command::new(dir.join("bin/gosched-topo"));
    topo.args(["--procs", "2", "--topology=node:2 core:1 pu:1"]);
    must_succeed(topo.env_remove("LD_LIBRARY_PATH"));
    must_succeed(Command::new(dir.join("bin/gosched-topo")).arg("--help"));
    must_succeed(Command::new(dir.join("bin/gosched-top")).arg("--help"));
    for name in fs::read_dir(dir.join("lib")).unwrap().map(|e| e.unwrap().path()) {
        if name.to_string_lossy().contains(".so") {
            fs::remove_file(name).unwrap();
        }
    }
    let mut cmd = Command::new("pkg-config");
    cmd.env("PKG_CONFIG_PATH", dir.join("lib/pkgconfig"));
    let out = cmd.args(["--static", "--cflags", "--libs", "gosched"]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    let link: Vec<String> = text.split_whitespace().map(String::from).collect();
    assert!(link.contains(&"-lhwloc".into()), "{text}");
    compile(&dir.join("alone"), &[], "static.c", &link);
    run_once(&dir.join("alone"), 0, &flat()[1]);

    let host = dir.join("librust_host.a");
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition", "2024", "--crate-type", "staticlib", "-O", "-o"]).arg(&host);
    must_succeed(rustc.arg(abi("rust_host.rs")));
    for host_first in [true, false] {
        let mut libraries = link.clone();
        let at = if host_first { 0 } else { libraries.len() };
        libraries.insert(at, host.display().to_string());
        libraries.extend(["-lgcc_s", "-lm", "-ldl"].map(String::from));
        compile(&dir.join("beside-rust"), &["-DRUST".into()], "static.c", &libraries);
        run_once(&dir.join("beside-rust"), 0, &flat()[1]);
    }
}

/// What `make install` takes besides the library.
fn make_what_is_installed() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        make(&[
            "preload",
            "target/release/gosched-topo",
            "target/release/gosched-top",
            "trace-tool",
        ])
    });
}

fn what_is_installed_can_be_uninstalled() {
    if env::var_os("GOSCHED_LIBRARY").is_some() {
        return say("skip: make installs its own library, not GOSCHED_LIBRARY");
    }
    library();
    make_what_is_installed();
    let dir = work_dir().join("with a space");
    let _ = fs::remove_dir_all(&dir);
    let destination = format!("DESTDIR={}", dir.display());
    make(&["install", &destination, "PREFIX=/a prefix"]);
    for file in [
        "include/gosched.h",
        "lib/libgosched.so",
        "lib/pkgconfig/gosched.pc",
        "bin/gosched-topo",
        "bin/gosched-top",
        "bin/gosched-trace",
    ] {
        assert!(dir.join("a prefix").join(file).exists(), "{file}");
    }
    // Where gdb looks for the script of the file that the links lead to.
    let library = fs::canonicalize(dir.join("a prefix/lib/libgosched.so")).unwrap();
    let name = library.file_name().unwrap().to_str().unwrap();
    let scripts = dir.join("a prefix/share/gdb/auto-load/a prefix/lib");
    assert!(scripts.join(format!("{name}-gdb.py")).exists(), "{name}");
    let mut cmd = Command::new("pkg-config");
    cmd.env("PKG_CONFIG_PATH", dir.join("a prefix/lib/pkgconfig"));
    let out = cmd.args(["--cflags", "--libs", "gosched"]).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(text.trim_end(), r"-I/a\ prefix/include -L/a\ prefix/lib -lgosched");
    make(&["uninstall", &destination, "PREFIX=/a prefix"]);
    assert_eq!(files_under(&dir), Vec::<PathBuf>::new());
    make(&["uninstall", &destination, "PREFIX=/a prefix"]);
}

fn files_under(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    entries.flat_map(|p| if p.is_dir() { files_under(&p) } else { vec![p] }).collect()
}

/// A program that is linked with the library refers to none of its data, which the linker would
/// copy into the program.
fn no_program_has_a_copy_of_the_librarys_data() {
    let Some(program) = build("preempt.c", &["-no-pie"]) else { return };
    let bytes = fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let symbols = file.dynamic_symbol_table().expect("it is linked dynamically");
    let mut seen = 0;
    for (_, relocation) in file.dynamic_relocations().into_iter().flatten() {
        let object::RelocationTarget::Symbol(index) = relocation.target() else { continue };
        let name = object::ObjectSymbolTable::symbol_by_index(&symbols, index).unwrap();
        let name = name.name().unwrap().to_string();
        let object::RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
        let copy = match file.architecture() {
            object::Architecture::Aarch64 => object::elf::R_AARCH64_COPY,
            _ => object::elf::R_X86_64_COPY,
        };
        let copies = r_type == copy;
        assert!(!(copies && name.starts_with("gs_")), "the program has a copy of {name}");
        seen += usize::from(name.starts_with("gs_"));
    }
    assert!(seen > 0, "no relocation names a function of the library");
}

// ---- The header and the library as such ----

/// What programs may turn on: whatever a header can be blamed for.
const WARNINGS: &[&str] = &[
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Werror",
    "-Wshadow",
    "-Wconversion",
    "-Wsign-conversion",
    "-Wundef",
    "-Wcast-align",
    "-Wcast-qual",
    "-Wwrite-strings",
    "-Wdouble-promotion",
    "-Wformat=2",
    "-Wnull-dereference",
    "-Wredundant-decls",
    "-Wmissing-declarations",
    "-Wvla",
];
const WARNINGS_OF_C: &[&str] =
    &["-Wc++-compat", "-Wstrict-prototypes", "-Wold-style-definition", "-Wmissing-prototypes"];
const WARNINGS_OF_CXX: &[&str] =
    &["-Wold-style-cast", "-Wzero-as-null-pointer-constant", "-Wextra-semi"];

/// In each version, by the names that both compilers have known for longest: C23 and C++23 last.
const VERSIONS_OF_C: [&str; 5] = ["c99", "c11", "c17", "gnu17", "c2x"];
const VERSIONS_OF_CXX: [&str; 6] = ["c++11", "c++14", "c++17", "gnu++17", "c++20", "c++2b"];

fn the_header_compiles_as_c99_to_c23_without_a_warning() {
    for compiler in compilers(false) {
        compile_header(&compiler, "c", &VERSIONS_OF_C, WARNINGS_OF_C);
    }
}

fn the_header_compiles_as_cxx11_to_cxx23_without_a_warning() {
    for compiler in compilers(true) {
        compile_header(&compiler, "c++", &VERSIONS_OF_CXX, WARNINGS_OF_CXX);
    }
}

/// In C and in C++; `src/capi/abi.rs` asserts the same figures in Rust.
fn structs_and_constants_are_as_layouts_h_says() {
    for (is_cxx, version, language) in [(false, "-std=c11", "c"), (true, "-std=c++11", "c++")] {
        for mut cmd in compilers(is_cxx) {
            cmd.args([version, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]);
            cmd.arg("-I").arg(manifest_dir().join("include"));
            must_succeed(cmd.args(["-x", language]).arg(abi("layouts.c")));
        }
    }
}

/// The compiler of all programs, and the usual compilers, one for 64-bit ARM among them; says which are missing.
fn compilers(is_cxx: bool) -> Vec<Command> {
    let usual = if is_cxx {
        ["g++", "clang++", "aarch64-linux-gnu-g++"]
    } else {
        ["gcc", "clang", "aarch64-linux-gnu-gcc"]
    };
    let is_there = |name: &&str| {
        let version = Command::new(name).arg("--version").output();
        let is_there = version.is_ok_and(|out| out.status.success());
        if !is_there {
            say(&format!("skip {name}: it is not installed"));
        }
        is_there
    };
    compiler(is_cxx)
        .into_iter()
        .chain(usual.into_iter().filter(is_there).map(Command::new))
        .collect()
}

/// A command with the same program and arguments.
fn again(cmd: &Command) -> Command {
    let mut other = Command::new(cmd.get_program());
    other.args(cmd.get_args());
    other
}

/// Beside errors: who may call it, whether it may switch, and whether a signal handler may.
fn every_comment_says_who_may_call_the_function() {
    let header = fs::read_to_string(manifest_dir().join("include/gosched.h")).unwrap();
    let text = header.split(INLINE).next().unwrap();
    for name in declared_functions() {
        // A mention in a comment or in a macro isn't a declaration.
        let is_declared = |at: &usize| {
            let line = &text[text[..*at].rfind('\n').unwrap() + 1..*at];
            !line.starts_with([' ', '#', '/']) && line.ends_with([' ', '*'])
        };
        let call = format!("{name}(");
        let mut places = text.match_indices(&call).map(|(at, _)| at);
        let before = &text[..places.find(is_declared).expect(&name)];
        // Words may be on two lines.
        let comment = before[before.rfind("/**").unwrap()..].replace("\n *", "");
        let says = |words: &[&str]| words.iter().any(|w| comment.contains(w));
        let callers = ["oroutines and", "oroutines, plain", "Any thread", "rom anywhere"];
        assert!(says(&callers), "{name}: who may call it?");
        assert!(says(&["ay switch", "ever switches"]), "{name}: does it switch?");
        assert!(says(&["sync-signal-safe", "signal handlers;"]), "{name}: in a signal handler?");
        let never = header.split("These never switch:").nth(1).unwrap().split("*/").next().unwrap();
        let is_listed = never.split([' ', ',', '.', '\n']).any(|w| w == name);
        assert_eq!(is_listed, says(&["ever switches"]), "{name}: is it in the list at the head?");
    }
}

/// A program leaves in padding whatever is there, so it could never become a field.
fn no_struct_of_the_header_has_padding() {
    compile_header(&c_compiler(), "c", &["c11"], &["-Wpadded"]);
}

/// Compiles what includes the header twice and uses its initialisers and inline functions.
fn compile_header(compiler: &Command, language: &str, versions: &[&str], warnings: &[&str]) {
    for version in versions {
        for inline in ["-UGS_NO_INLINE", "-DGS_NO_INLINE"] {
            let mut cmd = again(compiler);
            cmd.arg(format!("-std={version}")).args(["-O2", inline]).args(WARNINGS).args(warnings);
            cmd.arg("-I").arg(manifest_dir().join("include")).args(["-o", "/dev/null"]);
            must_succeed(cmd.args(["-c", "-x", language]).arg(abi("header.c")));
        }
    }
}

/// A test that skips itself must say why, and the test harness hides what is printed with println.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The shared library's bytes.
fn shared_library() -> Vec<u8> {
    fs::read(library().join("libgosched.so.1")).unwrap()
}

/// The names of the defined dynamic symbols, and whether each has a version of its own: one of those that the
/// library defines, neither local nor the base.
fn exported() -> Vec<(String, bool)> {
    let bytes = shared_library();
    let file = object::read::elf::ElfFile64::<object::Endianness>::parse(&*bytes).unwrap();
    let endian = file.endian();
    let sections = file.elf_section_table();
    let versions = sections.versions(endian, &*bytes).unwrap().expect("the library has versions");
    let mut all = Vec::new();
    for symbol in file.dynamic_symbols().filter(|s| s.is_definition()) {
        // The version's own name is an absolute symbol.
        if symbol.section() == object::SymbolSection::Absolute {
            continue;
        }
        let index = versions.version_index(endian, symbol.index());
        let version = versions.version(index).unwrap();
        let is_own = |name: &[u8]| name.starts_with(b"GOSCHED_1");
        let has_version = version.is_some_and(|v| !index.is_hidden() && is_own(v.name()));
        all.push((symbol.name().unwrap().to_string(), has_version));
    }
    all
}

fn only_gs_symbols_are_exported_and_each_has_a_version() {
    let symbols = exported();
    assert!(!symbols.is_empty(), "the library exports nothing");
    for (name, has_version) in symbols {
        assert!(name.starts_with("gs_"), "{name} is exported");
        assert!(has_version, "{name} has no version: is the symbol version script in use?");
    }
}

/// The newest version of GCC's library whose symbols may be needed: that of manylinux_2_28.
const NEWEST_OF_GCC: &[u32] = &[8];

/// Checks that a library needs nothing newer than this version of glibc.
fn needs_no_newer(bytes: &[u8], newest_of_glibc: &[u32]) {
    let file = object::read::elf::ElfFile64::<object::Endianness>::parse(bytes).unwrap();
    let versions = file.elf_section_table().versions(file.endian(), bytes).unwrap().unwrap();
    let mut of_glibc = 0;
    for symbol in file.dynamic_symbols().filter(|s| s.is_undefined()) {
        let version =
            versions.version(versions.version_index(file.endian(), symbol.index())).unwrap();
        let Some(version) = version else { continue };
        let (name, version) =
            (symbol.name().unwrap(), std::str::from_utf8(version.name()).unwrap());
        let Some((of, number)) = version.split_once('_') else { continue };
        let newest = match of {
            "GLIBC" => newest_of_glibc,
            "GCC" => NEWEST_OF_GCC,
            _ => continue,
        };
        let number: Vec<u32> = number.split('.').map(|part| part.parse().unwrap()).collect();
        assert!(number.as_slice() <= newest, "{name} is of {version} (lib/glibc)");
        of_glibc += u32::from(of == "GLIBC");
    }
    assert!(of_glibc > 50, "only {of_glibc} symbols are of glibc");
}

fn the_library_runs_with_glibc_2_28() {
    let bytes = shared_library();
    let is_musl = || {
        let file = object::read::elf::ElfFile64::<object::Endianness>::parse(&*bytes).unwrap();
        let sections = file.elf_section_table();
        let (entries, strings) = sections.dynamic(file.endian(), &*bytes).unwrap().unwrap();
        let strings = sections.strings(file.endian(), &*bytes, strings).unwrap();
        let mut needed =
            entries.iter().filter(|e| e.d_tag.get(file.endian()) == object::elf::DT_NEEDED);
        needed.all(|e| strings.get(e.d_val.get(file.endian()) as u32) != Ok(b"libc.so.6"))
    };
    if is_musl() {
        return say("skip the_library_runs_with_glibc_2_28: the library under test is for musl");
    }
    needs_no_newer(&bytes, &[2, 28]);
}

/// As `bindings/preload/README.md` says. The wheels' libraries are looked at in `bindings/python/tests/wheel.py`.
fn the_preload_library_runs_with_glibc_2_34() {
    let file = manifest_dir().join("target/release/libgosched-preload.so");
    if env::var_os("GOSCHED_LIBRARY").is_some() {
        return say("skip the_preload_library_runs_with_glibc_2_34: another library is under test");
    }
    make(&["preload"]);
    needs_no_newer(&fs::read(file).unwrap(), &[2, 34]);
}

fn every_function_of_the_header_is_exported() {
    let names: Vec<String> = exported().into_iter().map(|(name, _)| name).collect();
    let declared = declared_functions();
    assert!(declared.len() > 50, "only {} functions found in the header", declared.len());
    for (i, f) in declared.iter().enumerate() {
        assert!(!declared[..i].contains(f), "{f} is declared twice");
        assert!(names.contains(f), "{f} is in the header, but not exported");
    }
}

fn each_function_that_never_switches_is_tried() {
    let header = fs::read_to_string(manifest_dir().join("include/gosched.h")).unwrap();
    let list = header.split("These never switch:").nth(1).expect("the list in the header");
    let mut listed: Vec<&str> = list.split('.').next().unwrap().split(',').map(str::trim).collect();
    let file = manifest_dir().join("tests/programs/never_switch.c");
    let program = fs::read_to_string(file).unwrap();
    // A name with its code, up to the end of that.
    let tried = program.split("\nNEVER(").skip(1).map(|rest| {
        let (name, code) = rest.split_once(')').expect("a name");
        let code = code.split("\n}").next().unwrap();
        assert!(code.contains(&format!("{name}(")), "NEVER({name}) doesn't call it");
        name
    });
    let mut tried: Vec<&str> = tried.collect();
    listed.sort_unstable();
    tried.sort_unstable();
    assert!(listed.len() > 20, "only {} functions in the header's list", listed.len());
    assert_eq!(tried, listed, "those in never_switch.c, and those in the header's list");
}

/// What stands above the header's inline functions.
const INLINE: &str = "/* ---- Inline fast paths ---- */";

/// The names that a `(` follows, outside comments.
fn declared_functions() -> Vec<String> {
    let header = fs::read_to_string(manifest_dir().join("include/gosched.h")).unwrap();
    let code = without_comments(header.split(INLINE).next().unwrap());
    let mut names = Vec::new();
    for statement in code.split(';').filter(|s| !s.contains("inline")) {
        let Some(open) = statement.find('(') else {
            continue;
        };
        let before = statement[..open].trim_end();
        let start = before.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |i| i + 1);
        let is_typedef = statement.contains("typedef");
        if before[start..].starts_with("gs_") && !is_typedef {
            names.push(before[start..].to_string());
        }
    }
    names
}

fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("/*") {
        out.push_str(&rest[..start]);
        rest = rest[start..].find("*/").map_or("", |end| &rest[start + end + 2..]);
    }
    out.push_str(rest);
    let lines = out.lines().filter(|l| !l.trim_start().starts_with('#'));
    lines.map(|l| l.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
}

fn the_library_has_its_soname_and_stays_when_closed() {
    let bytes = shared_library();
    let file = object::read::elf::ElfFile64::<object::Endianness>::parse(&*bytes).unwrap();
    let endian = file.endian();
    let (entries, strings) = file.elf_section_table().dynamic(endian, &*bytes).unwrap().unwrap();
    let strings = file.elf_section_table().strings(endian, &*bytes, strings).unwrap();
    let value =
        |tag: i64| entries.iter().find(|e| e.d_tag.get(endian) == tag).map(|e| e.d_val.get(endian));
    let soname = value(object::elf::DT_SONAME).expect("it has no soname");
    assert_eq!(strings.get(soname as u32), Ok(&b"libgosched.so.1"[..]));
    let flags = value(object::elf::DT_FLAGS_1).unwrap_or(0);
    assert!(flags & u64::from(object::elf::DF_1_NODELETE) != 0, "not linked with -z nodelete");
}

// ---- Finding the library ----

fn manifest_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether programs for another CPU run here, by an emulator (tools/aarch64).
fn is_emulated() -> bool {
    env::var_os("GOSCHED_EMULATED").is_some()
}

/// How long a test may take: emulated code takes about ten times as long.
fn limit(here: Duration) -> Duration {
    if is_emulated() { 6 * here } else { here }
}

/// What is not tried with an emulator: parts of names, and why.
const NOT_EMULATED: &[(&str, &str)] = &[
    ("asan_", "AddressSanitizer's shadow memory has no place in the emulator's address space"),
    ("leaked/", "the search for leaks reads memory by process_vm_readv(2)"),
    ("deadlock/", HAS_A_THREAD),
    ("life/", FORKS),
    ("fault/", FORKS),
    ("valgrind_", "valgrind can't look at an emulated program"),
    ("rust_program_", "it builds for this machine"),
    ("program_of_the_first_release", "it builds for this machine"),
    ("static_library_by_pkg_config", "it builds for this machine"),
    ("what_is_installed_", "it builds for this machine"),
    ("header_that_is_newer_", "it builds for this machine"),
];

const FORKS: &str = "qemu-user's child of a fork hangs if another thread held one of its locks";

/// Tests within programs that can't pass with qemu-user, and why.
const NOT_EMULATED_WITHIN: &[(&str, &str)] = &[
    ("a_fault_elsewhere_goes_to_the_host", FORGES_A_FAULT),
    ("the_default_action_comes_after_resethand", FORGES_A_FAULT),
    ("the_default_action_ends_the_program_by_the_same_signal", FORGES_A_FAULT),
    ("signals_are_ignored_and_faults_are_not", FORGES_A_FAULT),
    ("a_filter_that_comes_later_may_refuse_membarrier", NO_FILTERS),
    ("a_refused_thread_is_EAGAIN_and_starts_nothing", NO_FILTERS),
    ("without_eventfds_pipes_wake_those_that_wait", NO_FILTERS),
    ("a_filter_may_refuse_the_calls_that_do_not_wait", NO_FILTERS),
    ("an_attempt_to_connect_to_a_virtual_machine_fails_once", "it has no AF_VSOCK"),
    ("files_of_the_wrong_kind", "its recvmsg(2) of a file that is no socket gives 0"),
    ("without_stacks_newborns_wait_and_the_others_go_on", "it ignores RLIMIT_AS"),
    ("a_failure_writes_the_flight_recorder", HAS_A_THREAD),
    ("the_stacks_of_many_are_guarded", "an assertion of its own fails (cpu == current_cpu)"),
    ("fork_from_goroutines_and_threads_at_once", FORKS),
    ("fork_from_a_foreign_thread_under_load", FORKS),
    ("fork_in_a_signal_handler_in_the_middle_of_a_call", FORKS),
    ("what_is_bound_to_a_thread_outlives_gs_run_beside_forks", FORKS),
    ("signals_are_waited_for", "it may give the host's number of a signal by signalfd(2)"),
    ("a_reader_keeps_nothing_from_whoever_waits_for_something_else", "it has no SO_TIMESTAMPING"),
];

const HAS_A_THREAD: &str = "the emulator has a thread, which might end any wait";

const NO_FILTERS: &str = "qemu-user has no seccomp(2)";

/// When a handler has given a fault back to the default action, the library sends it again.
const FORGES_A_FAULT: &str =
    "qemu-user takes a fault that a thread sends to itself for one of its own";

/// Where programs and outputs go.
fn work_dir() -> PathBuf {
    let name = if is_emulated() { "emulated" } else { "programs" };
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// A directory that holds the library under the names that compiler and loader look for.
fn library() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let found = find_library();
        say(&format!("testing {}", found.display()));
        let dir = work_dir().join("lib");
        fs::create_dir_all(&dir).unwrap();
        let archive = found.with_extension("a");
        let shared = ["libgosched.so", "libgosched.so.1"].map(|name| (name, &found));
        for (name, file) in shared.into_iter().chain([("libgosched.a", &archive)]) {
            let link = dir.join(name);
            let _ = fs::remove_file(&link);
            symlink(file, &link).unwrap();
        }
        dir
    })
}

/// `GOSCHED_LIBRARY`, or the release build, brought up to date.
fn find_library() -> PathBuf {
    if let Some(given) = env::var_os("GOSCHED_LIBRARY") {
        return fs::canonicalize(&given).expect("GOSCHED_LIBRARY");
    }
    make(&["library"]);
    fs::canonicalize(manifest_dir().join("target/release/libgosched.so")).unwrap()
}

fn make(args: &[&str]) {
    let make = env::var("MAKE").unwrap_or_else(|_| "make".into());
    let mut cmd = Command::new(make);
    // Its own: not those of a make that runs this test.
    cmd.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env("CARGO", env!("CARGO"));
    must_succeed(cmd.arg("--no-print-directory").args(args).current_dir(manifest_dir()));
}

// ---- Building and running programs ----

/// The compiler of the C or C++ language that `CC`, `CXX`, `CFLAGS` and `CXXFLAGS` ask for, else the system's.
/// None, with the reason, if it isn't there.
fn compiler(is_cxx: bool) -> Option<Command> {
    // With an emulator too: `CC` is the compiler for the other CPU, and nothing else depends on this.
    let target = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    let mut build = cc::Build::new();
    build.cpp(is_cxx).target(&target).host(&target).opt_level(2).cargo_metadata(false);
    // Those of the programs come from here; cc's are those of a library.
    match build.no_default_flags(true).try_get_compiler() {
        Ok(tool) if tool.to_command().arg("--version").output().is_ok() => Some(tool.to_command()),
        Ok(tool) => skip_language(is_cxx, &format!("{} can't be run", tool.path().display())),
        Err(e) => skip_language(is_cxx, &e.to_string()),
    }
}

fn skip_language(is_cxx: bool, why: &str) -> Option<Command> {
    assert!(is_cxx, "no C compiler: {why} (install gcc, or set CC)");
    say(&format!("skip C++: {why} (install g++, or set CXX)"));
    None
}

fn c_compiler() -> Command {
    compiler(false).expect("compiler says why")
}

fn must_succeed(cmd: &mut Command) {
    let out = cmd.output().unwrap_or_else(|e| panic!("{cmd:?}: {e}"));
    assert!(out.status.success(), "{cmd:?} failed:\n{}", String::from_utf8_lossy(&out.stderr));
}

/// The program's path, built once for all that run it; None if there is no compiler for its language.
fn build(file: &str, options: &[&str]) -> Option<PathBuf> {
    type Built = Arc<OnceLock<Option<PathBuf>>>;
    static ALL: Mutex<Option<HashMap<String, Built>>> = Mutex::new(None);
    let name = format!("{file}{}", options.concat()).replace(['.', '-', ':'], "_");
    let mut all = ALL.lock().unwrap();
    let built = all.get_or_insert_default().entry(name.clone()).or_default().clone();
    drop(all);
    built.get_or_init(|| build_anew(file, options, work_dir().join(name))).clone()
}

fn build_anew(file: &str, options: &[&str], program: PathBuf) -> Option<PathBuf> {
    let is_cxx = file.ends_with(".cpp");
    let mut cmd = compiler(is_cxx)?;
    let dir = library();
    cmd.arg(if is_cxx { "-std=gnu++11" } else { "-std=gnu11" });
    cmd.args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    cmd.arg("-I").arg(manifest_dir().join("include"));
    cmd.arg(manifest_dir().join("tests/programs").join(file)).arg("-o").arg(&program);
    // Behind the source, because one may be a library that it needs.
    cmd.args(options);
    // The old kind of rpath comes before LD_LIBRARY_PATH, which cargo sets.
    cmd.arg("-L").arg(dir).arg(format!("-Wl,--disable-new-dtags,-rpath,{}", dir.display()));
    cmd.args(["-Wl,--as-needed", "-lgosched", "-lm", "-ldl"]);
    must_succeed(&mut cmd);
    Some(program)
}

/// Builds the program, and runs it with its setting of this number.
fn run_program(p: &Program, number: usize, setting: Setting) {
    let needs_archive = p.options.contains(&"-l:libgosched.a");
    if needs_archive && !library().join("libgosched.a").exists() {
        return say("skip: there is no libgosched.a beside the library under test");
    }
    if p.file == PLUGIN.file && PLUGINS.iter().any(|options| build("cxx.cpp", options).is_none()) {
        return;
    }
    if let Some(program) = build(p.file, p.options) {
        run_once(&program, number, &setting);
    }
}

fn run_once(program: &Path, number: usize, setting: &Setting) {
    let log = program.with_extension(format!("{number}.log"));
    let mut cmd = Command::new(program);
    cmd.env("GOSCHED_PROCS", setting.procs)
        .env("GOSCHED_TOPOLOGY", setting.topology)
        .env_remove("GOMAXPROCS")
        .env_remove("GOSCHED_DEBUG");
    if let Some(debug) = setting.debug {
        cmd.env("GOSCHED_DEBUG", debug);
    }
    let limit = limit(LIMIT);
    if is_emulated() {
        if program.ends_with("plugin_c") {
            // docs/rules.md, "Catch exceptions in the goroutine".
            cmd.env("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=0");
        }
        cmd.env("CHECK_SECONDS", (limit.as_secs() / 2).to_string());
        cmd.env(
            "CHECK_WITHOUT",
            NOT_EMULATED_WITHIN.iter().map(|t| t.0).collect::<Vec<_>>().join(" "),
        );
    }
    let status = run_with_limit(&mut cmd, &log, limit);
    let output = String::from_utf8_lossy(&fs::read(&log).unwrap()).into_owned();
    for line in output.lines().filter(|l| l.starts_with("skip")) {
        say(&format!("{}: {line}", command_line(program, setting)));
    }
    if !status.is_some_and(|s| s.success()) {
        panic!("{}\n  {}\n{output}", command_line(program, setting), describe(status, limit));
    }
}

fn describe(status: Option<ExitStatus>, limit: Duration) -> String {
    match status {
        None => format!("took longer than {} s and was killed; its output:", limit.as_secs()),
        Some(s) if s.signal().is_some() => {
            format!("died by signal {}; its output:", s.signal().unwrap())
        }
        Some(s) => format!("ended with {}; its output:", s.code().unwrap_or(-1)),
    }
}

/// As one would type it.
fn command_line(program: &Path, s: &Setting) -> String {
    let debug = s.debug.map_or(String::new(), |d| format!("GOSCHED_DEBUG={d} "));
    format!(
        "GOSCHED_PROCS={} GOSCHED_TOPOLOGY='{}' {debug}{}",
        s.procs,
        s.topology,
        program.display()
    )
}

/// Its output goes to the log. None if it had to be killed.
fn run_with_limit(cmd: &mut Command, log: &Path, limit: Duration) -> Option<ExitStatus> {
    let out = File::create(log).unwrap();
    cmd.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out);
    let mut child = cmd.spawn().unwrap();
    let status = child.wait_timeout(limit).unwrap();
    if status.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    status
}

// ---- The list ----

macro_rules! checks {
    ($($name:ident)*) => { &[$((stringify!($name), $name as fn())),*] };
}

/// Tests other than a program run with a setting. The compiler reports a function that isn't listed here as unused.
const CHECKS: &[(&str, fn())] = checks! {
    valgrind_finds_no_leak_and_no_error
    chaos_uses_every_function_of_the_header
    a_seed_gives_the_same_events_in_each_process
    fault_uses_every_function_of_the_header
    a_failure_of_a_tester_is_made_smaller
    every_program_has_a_test
    rust_program_that_depends_on_the_rlib
    program_of_the_first_release
    header_that_is_newer_than_the_library
    static_library_by_pkg_config
    what_is_installed_can_be_uninstalled
    no_program_has_a_copy_of_the_librarys_data
    the_header_compiles_as_c99_to_c23_without_a_warning
    the_header_compiles_as_cxx11_to_cxx23_without_a_warning
    structs_and_constants_are_as_layouts_h_says
    every_comment_says_who_may_call_the_function
    no_struct_of_the_header_has_padding
    only_gs_symbols_are_exported_and_each_has_a_version
    the_library_runs_with_glibc_2_28
    the_preload_library_runs_with_glibc_2_34
    every_function_of_the_header_is_exported
    each_function_that_never_switches_is_tried
    the_library_has_its_soname_and_stays_when_closed
};

/// How long each test has taken.
static TIMES: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());
/// How many of the slowest tests are named at the end.
const SLOWEST: usize = 12;

fn timed(name: String, test: Box<dyn FnOnce() + Send>) {
    let begin = Instant::now();
    test();
    TIMES.lock().unwrap().push((begin.elapsed(), name));
}

fn say_slowest() {
    let mut times = TIMES.lock().unwrap();
    times.sort_by(|a, b| b.cmp(a));
    let slowest =
        times.iter().take(SLOWEST).map(|(t, name)| format!("{name} {:.1}", t.as_secs_f64()));
    say(&format!("the slowest, in seconds: {}", slowest.collect::<Vec<_>>().join(", ")));
}

fn main() {
    let mut arguments = Arguments::from_args();
    let all = arguments.filter.is_some()
        || arguments.list
        || env::var("SETTINGS").is_ok_and(|which| which == "all");
    let chosen = |settings: &[Setting]| if all { settings.to_vec() } else { few(settings) };
    let mut trials: Vec<Trial> = Vec::new();
    let mut add = |name: String, test: Box<dyn FnOnce() + Send>| {
        trials.push(Trial::test(name.clone(), move || {
            timed(name, test);
            Ok(())
        }));
    };
    for program in PROGRAMS.iter().chain(VARIANTS).chain([&STATIC_CONSTRUCTOR, &PLUGIN]) {
        for (number, setting) in chosen(&(program.settings)()).into_iter().enumerate() {
            let name = format!("{}/{}", program.name, setting.name());
            add(name, Box::new(move || run_program(program, number, setting)));
        }
    }
    for setting in chosen(&chaos_settings()) {
        add(format!("chaos/{}", setting.name()), Box::new(move || chaos(setting)));
    }
    add("bubbles/chaos".to_string(), Box::new(move || chaos_in_bubbles(all)));
    for &name in IN_BUBBLES {
        add(format!("bubbles/{name}"), Box::new(move || tester_in_bubbles(name, all)));
    }
    for &(name, check) in CHECKS {
        add(name.to_string(), Box::new(check));
    }
    if let Ok(parts) = env::var("TESTS") {
        trials.retain(|t| parts.split_whitespace().any(|part| t.name().contains(part)));
    }
    if is_emulated() {
        for (part, why) in NOT_EMULATED {
            let before = trials.len();
            trials.retain(|t| !t.name().contains(part));
            if trials.len() < before {
                say(&format!("skip {part}: {why}"));
            }
        }
    }
    let is_program =
        |name: &&mut String| trials.iter().any(|t| t.name().starts_with(&format!("{name}/")));
    // `--exact chan` would find no test, and succeed: it stands for all settings of `chan`.
    if arguments.exact
        && let Some(name) = arguments.filter.as_mut().filter(is_program)
    {
        name.push('/');
        arguments.exact = false;
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if conclusion.num_passed > SLOWEST as u64 {
        say_slowest();
    }
    let chosen = conclusion.num_passed + conclusion.num_failed + conclusion.num_ignored;
    if chosen + conclusion.num_measured == 0 && !arguments.list {
        say("no test has this name: --list prints all names");
        std::process::exit(1);
    }
    conclusion.exit();
}
