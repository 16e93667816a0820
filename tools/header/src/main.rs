//! Writes `gosched.h` from `src/capi` to the path in the first argument.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The files of `src/capi`, in the order of the header's sections.
const SECTIONS: [&str; 12] = [
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
];

/// The files of `src/capi` that are no section.
const OTHERS: [&str; 2] = ["mod", "sized"];

/// What the library exports and the header doesn't declare: programs that were compiled with the
/// header of the first release look at this word.
const NOT_DECLARED: [&str; 1] = ["gs_preempt_word"];

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
    let mut text = tidy(&String::from_utf8(text).expect("UTF-8"));
    for path in &paths {
        text = with_heading(&text, &std::fs::read_to_string(path).expect("readable"));
    }
    check_map(&paths, &root.join("lib/gosched.map"));
    let end = text.rfind("#ifdef __cplusplus").expect("the end of extern \"C\"");
    text.insert_str(end, include_str!("inline.h"));
    std::fs::write(out, text).expect("the header can be written");
}

/// Panics unless the version script lists just what the files define.
fn check_map(paths: &[PathBuf], map: &Path) {
    let map = std::fs::read_to_string(map).expect("the version script can be read");
    let listed: BTreeSet<&str> = map
        .lines()
        .filter_map(|l| l.trim().strip_suffix(';'))
        .filter(|l| l.starts_with("gs_"))
        .collect();
    let sources: Vec<String> =
        paths.iter().map(|p| std::fs::read_to_string(p).expect("readable")).collect();
    let defined: BTreeSet<&str> = sources
        .iter()
        .flat_map(|s| s.split("extern \"C\" fn ").skip(1))
        .map(|s| s.split(['(', '<']).next().expect("a name"))
        .filter(|n| n.starts_with("gs_"))
        .chain(NOT_DECLARED)
        .collect();
    for f in defined.difference(&listed) {
        panic!("{f} is in no node of lib/gosched.map: add it to the last one");
    }
    for f in listed.difference(&defined) {
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
