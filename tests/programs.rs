//! Builds the programs of `tests/programs` against the shared library and runs each of them with
//! several numbers of P's and topologies. One `#[test]` is one program; its own tests are listed in
//! its source. To see a failure again, run the command that the message names.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long one run of a program may take. Each test inside has a shorter watchdog of its own.
const LIMIT: Duration = Duration::from_secs(150);

const PROCS: [&str; 3] = ["1", "2", "8"];
const TOPOLOGIES: [&str; 3] = ["flat", "node:2 core:2 pu:1", "node:4 core:2 pu:1"];
const WIDENED: &str = "migrate=1,randomorder=1,tinyqueues=1";

/// The environment of one run.
struct Setting {
    procs: &'static str,
    topology: &'static str,
    debug: Option<&'static str>,
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

/// The matrix, and again with the switches that widen races.
fn widened() -> Vec<Setting> {
    let mut all = matrix();
    for procs in PROCS {
        all.push(Setting { procs, topology: "flat", debug: Some(WIDENED) });
    }
    all.push(Setting { procs: "8", topology: "node:4 core:2 pu:1", debug: Some(WIDENED) });
    all
}

/// Every number of P's on a machine with one node.
fn flat() -> Vec<Setting> {
    PROCS.map(|procs| Setting { procs, topology: "flat", debug: None }).into()
}

/// For what is too large to run many times.
fn once() -> Vec<Setting> {
    vec![Setting { procs: "2", topology: "flat", debug: None }]
}

macro_rules! programs {
    ($($name:ident $file:literal $settings:ident;)*) => {
        /// Every file that has a test here.
        const FILES: &[&str] = &[$($file),*];
        $(
            #[test]
            fn $name() {
                run_program($file, &[], &$settings());
            }
        )*
    };
}

programs! {
    start_stop "start_stop.c" matrix;
    life "life.c" widened;
    constructor "constructor.c" matrix;
    fork "fork.c" matrix;
    heap_lock "heap_lock.c" matrix;
    dlopen "dlopen.c" matrix;
    goroutine "goroutine.c" matrix;
    join "join.c" matrix;
    cancel "cancel.c" widened;
    keys "keys.c" matrix;
    priority "priority.c" matrix;
    fairness "fairness.c" matrix;
    gang "gang.c" matrix;
    state "state.c" widened;
    stacks "stacks.c" matrix;
    many "many.c" matrix;
    million "million.c" once;
    chan "chan.c" widened;
    chan_order "chan_order.c" widened;
    chan_close "chan_close.c" widened;
    chan_stress "chan_stress.c" widened;
    chan_foreign "chan_foreign.c" widened;
    chan_lifetime "chan_lifetime.c" widened;
    select "select.c" widened;
    mutex "mutex.c" matrix;
    numa "numa.c" matrix;
    rwmutex "rwmutex.c" matrix;
    cond "cond.c" matrix;
    waitgroup "waitgroup.c" matrix;
    sem "sem.c" matrix;
    once_object "once.c" matrix;
    sync_lifetime "sync_lifetime.c" widened;
    semantics "semantics.c" widened;
    sizes "sizes.c" matrix;
    timer "timer.c" matrix;
    syscall "syscall.c" matrix;
    os_thread "os_thread.c" matrix;
    bound "bound.c" widened;
    hooks "hooks.c" widened;
    workers "workers.c" widened;
    attach "attach.c" widened;
    gomaxprocs "gomaxprocs.c" matrix;
    max_threads "max_threads.c" matrix;
    misuse "misuse.c" matrix;
    deadlock "deadlock.c" matrix;
    stress "stress.c" widened;
    cxx "cxx.cpp" widened;
    leaks "leaks.c" matrix;
    fault "fault.c" flat;
    io "io.c" widened;
    io_net "io_net.c" widened;
    io_adopt "io_adopt.c" widened;
    io_reuse "io_reuse.c" widened;
    io_random "io_random.c" widened;
    io_process "io_process.c" matrix;
    io_disk "io_disk.c" matrix;
    io_calls "io_calls.c" flat;
    io_misuse "io_misuse.c" matrix;
    resolve "resolve.c" flat;
    rows "rows.c" matrix;
    regressions "regressions.c" widened;
    preempt "preempt.c" matrix;
    never_switch "never_switch.c" flat;
    embed "embed.c" matrix;
    signals "signals.c" matrix;
}

/// The callers optimised as hard as it gets: compilers then cache addresses of thread-locals.
#[test]
fn state_at_o3_with_lto() {
    run_program("state.c", &["-O3", "-flto"], &matrix());
}

/// The sanitizer knows the goroutines' stacks: exceptions on them, and goroutines that end in the middle
/// of a function, are no errors to it.
#[test]
fn under_address_sanitizer() {
    for file in ["cxx.cpp", "goroutine.c", "chan.c", "syscall.c", "stress.c"] {
        run_program(file, &["-fsanitize=address"], &once());
    }
}

/// The program has a copy of the C++ runtime, which others don't see unless they ask for it.
#[test]
fn cxx_linked_statically() {
    run_program("cxx.cpp", &["-static-libstdc++", "-static-libgcc"], &matrix());
}

/// Its constructors run before those of the library, unless the library takes care.
#[test]
fn constructor_of_a_program_that_links_the_static_library() {
    if !library().join("libgosched.a").exists() {
        return say("skip: there is no libgosched.a beside the library under test");
    }
    run_program("constructor.c", &["-l:libgosched.a", "-lhwloc", "-lgcc_s"], &matrix());
}

/// A program in C loads plugins in C++, which lie beside it.
#[test]
fn plugin() {
    let plugin = ["-shared", "-fPIC"];
    let with_a_copy = ["-shared", "-fPIC", "-static-libstdc++"];
    if build("cxx.cpp", &plugin).and_then(|_| build("cxx.cpp", &with_a_copy)).is_some() {
        run_program("plugin.c", &[], &widened());
    }
}

/// After a shutdown everything is given back: not a byte is left, nor was one used after it was freed.
#[test]
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
            assert!(out.status.success(), "{}\n{text}", describe(Some(out.status)));
            assert!(text.contains("no leaks are possible"), "{text}");
        }
        Err(e) => say(&format!("skip valgrind: {e}")),
    }
}

/// Operations that meet a known fault. A change that mends it takes the name out.
const CHAOS_WITHOUT: &str = "";

/// Random operations of every kind at once, with 1, 2 and 8 P's, and again with the switches that widen
/// races (tests/chaos/README.md).
#[test]
fn chaos() {
    let dir = work_dir().join("chaos");
    must_succeed(Command::new(manifest_dir().join("tests/chaos/build")).arg(&dir).arg(library()));
    let mut settings = Vec::new();
    for debug in [None, Some(WIDENED)] {
        for procs in PROCS {
            settings.push(Setting { procs, topology: "flat", debug });
        }
    }
    settings.push(Setting { procs: "8", topology: "node:4 core:2 pu:1", debug: None });
    for setting in settings {
        let mut cmd = Command::new(dir.join("chaos"));
        cmd.arg("4").env("GOSCHED_PROCS", setting.procs).env("GOSCHED_TOPOLOGY", setting.topology);
        cmd.env("GOSCHED_DEBUG", setting.debug.unwrap_or(""));
        cmd.env_remove("GOMAXPROCS").env("CHAOS_WITHOUT", CHAOS_WITHOUT);
        // It has a watchdog of its own, which says more than a limit here could.
        let out = cmd.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{}\n{text}", describe(Some(out.status)));
    }
}

/// Functions that the chaos program need not call, and why.
const NOT_IN_CHAOS: &[(&str, &str)] =
    &[("gs_init_for", "gs_init is a macro for it"), ("gs_run_for", "gs_run is a macro for it")];

#[test]
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
];

#[test]
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

#[test]
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

#[test]
fn every_program_has_a_test() {
    for entry in fs::read_dir(manifest_dir().join("tests/programs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_program = name.ends_with(".c") || name.ends_with(".cpp");
        let has_test = FILES.contains(&name.as_str()) || name == "plugin.c";
        assert!(
            !is_program || has_test,
            "tests/programs/{name} is run by no test: add it to tests/programs.rs"
        );
    }
}

/// It has an allocator of its own.
#[test]
fn rust_program_that_depends_on_the_rlib() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--quiet", "--manifest-path", "tests/rlib/Cargo.toml"]);
    cargo.env("CARGO_TARGET_DIR", "target/rlib").env("GOSCHED_PROCS", "2");
    must_succeed(cargo.current_dir(manifest_dir()));
}

/// The objects' fast paths are in the header or in the library.
#[test]
fn without_the_inline_functions() {
    for file in ["mutex.c", "once.c", "preempt.c"] {
        run_program(file, &["-DGS_NO_INLINE"], &flat());
    }
}

// ---- Programs of other versions, and the static library ----

fn abi(file: &str) -> PathBuf {
    manifest_dir().join("tests/abi").join(file)
}

/// Compiles a program of tests/abi, with these options before and behind it.
fn compile(program: &Path, before: &[String], file: &str, behind: &[String]) {
    let mut cmd = Command::new(c_compiler());
    cmd.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(before);
    cmd.arg("-I").arg(manifest_dir().join("include"));
    cmd.arg("-I").arg(manifest_dir().join("tests/programs"));
    must_succeed(cmd.arg(abi(file)).arg("-o").arg(program).args(behind));
}

fn rpath(dir: &Path) -> String {
    format!("-Wl,--disable-new-dtags,-rpath,{}", dir.display())
}

/// The program records the versions of the symbols that it found in the library of its time.
#[test]
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
    let mut cmd = Command::new(c_compiler());
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

#[test]
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
#[test]
fn static_library_by_pkg_config() {
    if env::var_os("GOSCHED_LIBRARY").is_some() {
        return say("skip: it would test another library than GOSCHED_LIBRARY");
    }
    library();
    let dir = work_dir().join("static");
    let _ = fs::remove_dir_all(&dir);
    let prefix = format!("PREFIX={}", dir.display());
    make(&["target/release/gosched-topo", "install", "DESTDIR=/", &prefix]);
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

/// A program that is linked with the library refers to none of its data, which the linker would
/// copy into the program.
#[test]
fn no_program_has_a_copy_of_the_librarys_data() {
    let Some(program) = build("preempt.c", &["-no-pie"]) else { return };
    match Command::new("readelf").args(["-rW"]).arg(&program).output() {
        Ok(out) => {
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            let copy = text.lines().find(|l| l.contains("_COPY") && l.contains("gs_"));
            assert_eq!(copy, None);
        }
        Err(e) => say(&format!("skip: readelf: {e}")),
    }
}

// ---- The header and the library as such ----

#[test]
fn the_header_is_c99() {
    compile_header("c", &c_compiler(), "-std=c99");
}

#[test]
fn the_header_is_cxx11() {
    if let Some(compiler) = cxx_compiler() {
        compile_header("cpp", &compiler, "-std=c++11");
    }
}

/// Beside errors: who may call it, whether it may switch, and whether a signal handler may.
#[test]
fn every_comment_says_who_may_call_the_function() {
    let header = fs::read_to_string(manifest_dir().join("include/gosched.h")).unwrap();
    let text = header.split(INLINE).next().unwrap();
    for name in declared_functions() {
        // In a comment, or in a macro, it is no declaration.
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
#[test]
fn no_struct_of_the_header_has_padding() {
    compile_header("c", &c_compiler(), "-Wpadded");
}

/// Includes the header twice and uses its initialisers. The option is one of the compiler's.
fn compile_header(ext: &str, compiler: &str, option: &str) {
    let source = work_dir().join(format!("header{option}.{ext}"));
    let text = "#include <gosched.h>\n#include <gosched.h>\n\
                gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;\n\
                int64_t forever = GS_FOREVER, nowait = GS_NOWAIT;\n\
                int ops[] = { GS_SEND, GS_RECV };\n\
                int priorities[] = { GS_PRIO_HIGH, GS_PRIO_NORMAL, GS_PRIO_LOW, GS_PRIO_IDLE };\n\
                unsigned flags = GS_SPAWN_PINNED | GS_SPAWN_NOPREEMPT;\n";
    fs::write(&source, text).unwrap();
    let mut cmd = Command::new(compiler);
    cmd.args([option, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"]);
    cmd.arg(manifest_dir().join("include")).arg(&source);
    must_succeed(&mut cmd);
}

/// A test that skips itself must say why, and the test harness hides what is printed with println.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// What a tool of the binutils prints about the library; None, with the reason, if it isn't there.
fn inspect(tool: &str, args: &[&str]) -> Option<String> {
    match Command::new(tool).args(args).arg(library().join("libgosched.so.1")).output() {
        Ok(out) if out.status.success() => Some(String::from_utf8_lossy(&out.stdout).into_owned()),
        Ok(out) => panic!("{tool} failed: {}", String::from_utf8_lossy(&out.stderr)),
        Err(e) => {
            say(&format!("skip: {tool}: {e}"));
            None
        }
    }
}

/// The defined dynamic symbols, with their versions: `name` or `name@@VERSION`.
fn exported() -> Option<Vec<String>> {
    let text = inspect("nm", &["-D", "--defined-only"])?;
    let fields = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
    // The version's own name is an absolute symbol (A).
    Some(fields.filter(|f| f.len() == 3 && f[1] != "A").map(|f| f[2].to_string()).collect())
}

#[test]
fn only_gs_symbols_are_exported_and_each_has_a_version() {
    let Some(symbols) = exported() else { return };
    assert!(!symbols.is_empty(), "the library exports nothing");
    for s in symbols {
        assert!(s.starts_with("gs_"), "{s} is exported");
        assert!(s.contains("@@"), "{s} has no version: is the symbol version script in use?");
    }
}

#[test]
fn every_function_of_the_header_is_exported() {
    let Some(symbols) = exported() else { return };
    let names: Vec<&str> = symbols.iter().map(|s| s.split('@').next().unwrap()).collect();
    let declared = declared_functions();
    assert!(declared.len() > 50, "only {} functions found in the header", declared.len());
    for (i, f) in declared.iter().enumerate() {
        assert!(!declared[..i].contains(f), "{f} is declared twice");
        assert!(names.contains(&f.as_str()), "{f} is in the header, but not exported");
    }
}

#[test]
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
const INLINE: &str = "/* ---- Within the caller ---- */";

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

#[test]
fn the_library_has_its_soname_and_stays_when_closed() {
    let Some(text) = inspect("readelf", &["-d", "-W"]) else {
        return;
    };
    assert!(text.contains("Library soname: [libgosched.so.1]"), "wrong soname:\n{text}");
    assert!(text.contains("NODELETE"), "not linked with -z nodelete:\n{text}");
}

// ---- Finding the library ----

fn manifest_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where programs and outputs go.
fn work_dir() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
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

fn c_compiler() -> String {
    env::var("CC").unwrap_or_else(|_| "cc".into())
}

/// None, with the reason, if there is no C++ compiler.
fn cxx_compiler() -> Option<String> {
    let compiler = env::var("CXX").unwrap_or_else(|_| "c++".into());
    match Command::new(&compiler).arg("--version").stdout(Stdio::null()).status() {
        Ok(_) => Some(compiler),
        Err(e) => {
            say(&format!("skip C++: {compiler}: {e} (install g++, or set CXX)"));
            None
        }
    }
}

fn must_succeed(cmd: &mut Command) {
    let out = cmd.output().unwrap_or_else(|e| panic!("{cmd:?}: {e}"));
    assert!(out.status.success(), "{cmd:?} failed:\n{}", String::from_utf8_lossy(&out.stderr));
}

/// The program's path; None if there is no compiler for its language.
fn build(file: &str, options: &[&str]) -> Option<PathBuf> {
    let (compiler, std) = match file.ends_with(".cpp") {
        true => (cxx_compiler()?, "-std=gnu++11"),
        false => (c_compiler(), "-std=gnu11"),
    };
    let dir = library();
    let program =
        work_dir().join(format!("{file}{}", options.concat()).replace(['.', '-', ':'], "_"));
    let mut cmd = Command::new(compiler);
    cmd.args([std, "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]);
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

fn run_program(file: &str, options: &[&str], settings: &[Setting]) {
    let Some(program) = build(file, options) else {
        return;
    };
    for (i, setting) in settings.iter().enumerate() {
        run_once(&program, i, setting);
    }
}

fn run_once(program: &Path, number: usize, setting: &Setting) {
    let log = program.with_extension(format!("{number}.log"));
    let status = run_with_limit(program, &log, setting);
    let output = String::from_utf8_lossy(&fs::read(&log).unwrap()).into_owned();
    for line in output.lines().filter(|l| l.starts_with("skip")) {
        say(&format!("{}: {line}", command_line(program, setting)));
    }
    if !status.is_some_and(|s| s.success()) {
        panic!("{}\n  {}\n{output}", command_line(program, setting), describe(status));
    }
}

fn describe(status: Option<ExitStatus>) -> String {
    match status {
        None => format!("took longer than {} s and was killed; its output:", LIMIT.as_secs()),
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

/// None if it had to be killed.
fn run_with_limit(program: &Path, log: &Path, s: &Setting) -> Option<ExitStatus> {
    let out = File::create(log).unwrap();
    let mut cmd = Command::new(program);
    cmd.env("GOSCHED_PROCS", s.procs)
        .env("GOSCHED_TOPOLOGY", s.topology)
        .env_remove("GOMAXPROCS")
        .env_remove("GOSCHED_DEBUG");
    if let Some(debug) = s.debug {
        cmd.env("GOSCHED_DEBUG", debug);
    }
    cmd.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out);
    let mut child = cmd.spawn().unwrap();
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if start.elapsed() > LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
