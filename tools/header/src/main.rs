//! Writes `gosched.h` from `src/capi` to the path in the first argument.

use std::collections::BTreeSet;
use std::path::Path;

/// The files of `src/capi`, in the order of the header's sections.
const SECTIONS: [&str; 14] = [
    "start",
    "goroutines",
    "channels",
    "sync",
    "timers",
    "io",
    "syscalls",
    "embed",
    "hooks",
    "gangs",
    "numa",
    "stats",
    "trace",
    "test",
];

/// The files of `src/capi` that are not sections of the header.
const OTHERS: [&str; 4] = ["abi", "layout", "mod", "sized"];

/// What the library exports and the header doesn't declare: programs that were compiled with the
/// header of the first release look at the word, and debuggers at the layout.
const NOT_DECLARED: [&str; 2] = ["gs_debug_layout", "gs_preempt_word"];

/// Functions that never run another goroutine in the caller's place.
const NEVER_SWITCH: [&str; 34] = [
    "gs_abi_version",
    "gs_add_frames",
    "gs_after_ms",
    "gs_after_ns",
    "gs_after_us",
    "gs_cancel_disable",
    "gs_cancel_enable",
    "gs_cancelled",
    "gs_chan_cap",
    "gs_chan_len",
    "gs_chan_put",
    "gs_chan_take",
    "gs_data",
    "gs_eai",
    "gs_g_info_read",
    "gs_getspecific",
    "gs_hold",
    "gs_id",
    "gs_mutex_trylock",
    "gs_name",
    "gs_now",
    "gs_numa_unbound_cpus",
    "gs_own_threads",
    "gs_preempt_disable",
    "gs_preempt_flag",
    "gs_retain",
    "gs_self",
    "gs_set_data",
    "gs_set_log",
    "gs_strerror",
    "gs_test_seed",
    "gs_uncancel",
    "gs_unhold",
    "gs_version",
];

/// Functions that a signal handler may call.
const SIGNAL_SAFE: [&str; 15] = [
    "gs_abi_version",
    "gs_after_ms",
    "gs_after_ns",
    "gs_after_us",
    "gs_cancelled",
    "gs_data",
    "gs_eai",
    "gs_hold",
    "gs_id",
    "gs_now",
    "gs_preempt_flag",
    "gs_retain",
    "gs_set_data",
    "gs_strerror",
    "gs_version",
];

/// As cbindgen declares it.
const ONE_ARGUMENT: &str = "long gs_syscall(long nr)";

fn main() {
    let out = std::env::args().nth(1).expect("usage: header PATH");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let capi = root.join("src/capi");
    let files = std::fs::read_dir(&capi).expect("src/capi is there").count();
    let known = SECTIONS.len() + OTHERS.len();
    assert_eq!(files, known, "a file of src/capi is neither in SECTIONS nor in OTHERS");
    let config =
        cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml is valid");
    let paths = SECTIONS.map(|name| capi.join(name).with_extension("rs"));
    let builder =
        paths.iter().fold(cbindgen::Builder::new().with_config(config), |b, p| b.with_src(p));
    let bindings = builder.generate().expect("src/capi can be parsed");
    let mut text = Vec::new();
    bindings.write(&mut text);
    let sources = paths.iter().map(|p| std::fs::read_to_string(p).expect("readable"));
    let sources: Vec<String> = sources.collect();
    let mut text = tidy(&String::from_utf8(text).expect("UTF-8"));
    text = text.replace("@NEVER_SWITCH@", &wrapped(&NEVER_SWITCH));
    text = text.replace("@VERSION@", &version(&root.join("Cargo.toml")));
    text = with_callers(&with_types(&text, &sources));
    for source in &sources {
        text = with_heading(&text, source);
    }
    check_map(&sources, &root.join("lib/gosched.map"));
    // Rust can't define a function with any number of arguments, but by hand.
    assert!(text.contains(ONE_ARGUMENT), "gs_syscall is declared otherwise");
    text = text.replace(ONE_ARGUMENT, "long gs_syscall(long nr, ...)");
    let end = text.rfind("#ifdef __cplusplus").expect("the end of extern \"C\"");
    text.insert_str(end, include_str!("inline.h"));
    std::fs::write(out, text).expect("the header can be written");
}

/// Names for the comment at the head, in lines that are indented as that is.
fn wrapped(names: &[&str]) -> String {
    let mut lines = vec![String::new()];
    for (i, name) in names.iter().enumerate() {
        let word = format!("{name}{}", if i + 1 < names.len() { "," } else { "." });
        if lines.last().expect("a line").len() + word.len() > 80 {
            lines.push(String::new());
        }
        let line = lines.last_mut().expect("a line");
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&word);
    }
    lines.join("\n   ")
}

/// The macros of the version, which is that of the crate.
fn version(manifest: &Path) -> String {
    let text = std::fs::read_to_string(manifest).expect("Cargo.toml can be read");
    let version = text.lines().find_map(|l| l.strip_prefix("version = \"")).expect("a version");
    let mut parts = version.trim_end_matches('"').split(['.', '-']);
    ["MAJOR", "MINOR", "PATCH"]
        .map(|part| format!("#define GS_VERSION_{part} {}", parts.next().expect("three numbers")))
        .join("\n")
}

/// Gives constants the types that they have in Rust.
fn with_types(text: &str, sources: &[String]) -> String {
    let typed = |line: &str| {
        let (name, value) = line.strip_prefix("#define GS_")?.split_once(' ')?;
        let declaration = format!("pub const GS_{name}: ");
        let after = sources.iter().find_map(|s| s.split_once(&declaration))?.1;
        let value: i64 = value.parse().expect("constants are numbers");
        let macro_name = match after.split_once(' ')?.0 {
            "i64" | "gs_deadline" => "INT64_C",
            "u32" => "UINT32_C",
            "c_int" | "i32" | "usize" => "",
            other => panic!("GS_{name} has type {other}, for which there is no macro"),
        };
        let (sign, number) = (if value < 0 { "-" } else { "" }, value.abs());
        Some(match macro_name {
            "" => format!("#define GS_{name} ({sign}{number})"),
            typed => format!("#define GS_{name} ({sign}{typed}({number}))"),
        })
    };
    let lines = text.lines().map(|l| typed(l).unwrap_or_else(|| l.to_string()));
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// Adds to each function's comment what it leaves out of: who may call the function, whether it
/// may switch, and whether a signal handler may call it.
fn with_callers(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(end) = rest.find("\n */\n") {
        let (comment, after) = rest.split_at(end);
        let own = &comment[comment.rfind("/**").expect("the beginning of a comment")..];
        out.push_str(comment);
        rest = after;
        let declaration = after["\n */\n".len()..].split(';').next().expect("a declaration");
        let is_function = declaration.contains('(')
            && !["typedef", "#define", "struct {"].iter().any(|s| declaration.starts_with(s));
        let name = declaration.split('(').next().and_then(|d| d.split([' ', '*']).next_back());
        if let Some(name) = name.filter(|_| is_function) {
            let says = |words: &[&str]| words.iter().any(|w| own.contains(w));
            let mut line = Vec::new();
            if !says(&["oroutines and", "oroutines, plain", "Any thread", "rom anywhere"]) {
                line.push("goroutines and plain threads");
            }
            if !says(&["ever switches", "ay switch"]) {
                line.push(match NEVER_SWITCH.contains(&name) {
                    true => "never switches",
                    false => "may switch",
                });
            }
            if !says(&["ignal handlers;", "async-signal-safe"]) {
                line.push(match SIGNAL_SAFE.contains(&name) {
                    true => "async-signal-safe",
                    false => "not async-signal-safe",
                });
            }
            if let Some(first) = line.first() {
                let capital = first[..1].to_uppercase() + &first[1..];
                line[0] = &capital;
                out.push_str(&format!("\n * {}.", line.join("; ")));
            }
        }
        out.push_str("\n */\n");
        rest = &rest["\n */\n".len()..];
    }
    out + rest
}

/// Panics unless the version script lists just what the files define.
fn check_map(sources: &[String], map: &Path) {
    let map = std::fs::read_to_string(map).expect("the version script can be read");
    let listed: BTreeSet<&str> = map
        .lines()
        .filter_map(|l| l.trim().strip_suffix(';'))
        .filter(|l| l.starts_with("gs_"))
        .collect();
    let defined: BTreeSet<&str> = sources
        .iter()
        .flat_map(|s| s.split("extern \"C\" fn ").skip(1))
        .map(|s| s.split(['(', '<']).next().expect("a name"))
        .filter(|n| n.starts_with("gs_"))
        .chain(NOT_DECLARED)
        .collect();
    if let Some(f) = defined.difference(&listed).next() {
        panic!("{f} is in no node of lib/gosched.map: add it to the last one");
    }
    if let Some(f) = listed.difference(&defined).next() {
        panic!("lib/gosched.map lists {f}, which is not there");
    }
}

/// Puts the first line of a file's documentation above its first function.
fn with_heading(text: &str, source: &str) -> String {
    let title = source.lines().next().and_then(|l| l.strip_prefix("//! ")).expect("a title");
    let after = |s: &'static str| source.split(s).nth(1).expect("a function");
    let function = after("extern \"C\" fn ").split('(').next().expect("a name");
    let declaration = text.find(&format!("{function}(")).expect("it is declared");
    let comment = text[..declaration].rfind("/**").expect("it is documented");
    let heading = format!("/* ---- {} ---- */\n\n", title.trim_end_matches('.'));
    [&text[..comment], &heading, &text[comment..]].concat()
}

/// Rust's sections on safety say nothing to a C programmer.
fn tidy(text: &str) -> String {
    let mut out = Vec::new();
    let mut in_safety = false;
    for line in text.lines() {
        let comment = line.trim_start();
        if comment.starts_with("* # Safety") {
            in_safety = true;
            while out.last().is_some_and(|l: &&str| l.trim() == "*") {
                out.pop();
            }
        }
        if comment.starts_with("*/") {
            in_safety = false;
        }
        let blank_again = line.is_empty() && out.last().is_some_and(|l: &&str| l.is_empty());
        if !in_safety && !blank_again {
            out.push(line);
        }
    }
    out.join("\n") + "\n"
}
