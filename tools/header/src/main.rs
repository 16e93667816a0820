//! Writes `gosched.h` from `src/capi` to the path in the first argument.

use std::path::Path;

fn main() {
    let out = std::env::args().nth(1).expect("usage: header PATH");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let config =
        cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml is valid");
    let mut files: Vec<_> = std::fs::read_dir(root.join("src/capi"))
        .expect("src/capi is there")
        .map(|entry| entry.expect("readable").path())
        .collect();
    files.sort();
    let builder =
        files.iter().fold(cbindgen::Builder::new().with_config(config), |b, f| b.with_src(f));
    let bindings = builder.generate().expect("src/capi can be parsed");
    let mut text = Vec::new();
    bindings.write(&mut text);
    let text = String::from_utf8(text).expect("UTF-8");
    std::fs::write(out, tidy(&text)).expect("the header can be written");
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
