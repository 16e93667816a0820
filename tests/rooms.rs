//! The rooms of the source: a room calls only those below it.
//!
//! This reads the sources as text, follows each `use` and each path that begins with `crate::`
//! or `super::`, and fails if one leads up. `docs/architecture.md` has the picture. The figures
//! there are printed by `cargo test --test rooms -- --nocapture`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The rooms of the library, from the top down.
const HOUSE: [&str; 16] = [
    "capi",
    "replay",
    "observe",
    "io",
    "time",
    "chan",
    "sync",
    "sched",
    "trace",
    "backtrace",
    "cxx",
    "stack",
    "numa",
    "os",
    "arch",
    "atomic",
];
/// The rooms of the scheduler, from the top down.
const SCHED: [&str; 10] =
    ["inspect", "lifecycle", "services", "schedule", "ext", "take", "run", "wait", "types", "prim"];

/// The arrows that lead up in the scheduler: from a room to a file above it, and why. The list only shrinks: an arrow that
/// is gone leaves the list, and no other comes in.
const UP: [(&str, &str, &str); 19] = [
    // The state of a subsystem is in the subsystem's file. What it belongs to holds it by value, so it needs no pointer.
    (
        "types",
        "ext::gang::state",
        "a P has its place in the gangs' matrix; the runtime has the gangs",
    ),
    ("types", "ext::hooks", "an M has the hooks that its thread has started with"),
    ("types", "run::aside", "the runtime has the tasks that wait aside"),
    ("types", "run::group", "an M has its places in worker groups; a goroutine has its group"),
    ("types", "run::requests", "the runtime has the state of stopping the world"),
    ("types", "services::inspector", "the runtime has the inspector's questions"),
    ("types", "services::sysmon::state", "the runtime has sysmon's bell"),
    ("types", "services::workers", "the runtime has the pool of threads for calls"),
    ("types", "take::loan::state", "a P has its loan"),
    ("types", "take::template", "the runtime has the template thread's gate"),
    ("types", "wait::netpoll::state", "a P and a node have their epoll instances"),
    ("types", "wait::timers::queue", "a P has its timers"),
    // What waits makes goroutines ready, and an M looks at what waits.
    ("wait", "run::park", "a timer wakes what is parked"),
    ("wait", "run::preempted", "the next timer of a P that can't be taken counts"),
    ("wait", "run::ready", "a file makes goroutines ready"),
    ("wait", "run::start", "what is made ready wakes an M"),
    ("wait", "take::events", "a timer that no P serves takes one"),
    // An event gets the P of a goroutine that computes.
    ("run", "take::events", "an event finds no idle P"),
    // In the switch, where a call by pointer would cost each goroutine.
    ("run", "ext::exceptions", "a switch carries the goroutine's C++ exceptions"),
];

/// A source file: its module path, such as `["sched", "core", "park"]`, and its text without
/// comments, literals and tests.
struct Source {
    path: PathBuf,
    module: Vec<String>,
    code: String,
}

/// A path that a file names, with the line where it does.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    line: usize,
    path: Vec<String>,
}

/// Blanks out comments, strings and characters; lines stay lines.
fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    let blank = |out: &mut String, part: &str| {
        out.extend(part.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
    };
    while at < bytes.len() {
        let rest = &text[at..];
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with('"') {
            let mut end = 1;
            while end < rest.len() && bytes[at + end] != b'"' {
                end += if bytes[at + end] == b'\\' { 2 } else { 1 };
            }
            end + 1
        } else if rest.starts_with('\'')
            && (rest[1..].starts_with('\\') || rest[2..].starts_with('\''))
        {
            // Not a lifetime.
            2 + rest[2..].find('\'').unwrap_or(0) + usize::from(rest[1..].starts_with('\\'))
        } else {
            0
        };
        if len == 0 {
            let c = rest.chars().next().unwrap();
            out.push(c);
            at += c.len_utf8();
        } else {
            let len = len.min(rest.len());
            blank(&mut out, &rest[..len]);
            at += len;
        }
    }
    out
}

/// The text without its `#[cfg(test)]` modules, which may look at everything.
fn without_tests(mut code: String) -> String {
    while let Some(at) = code.find("#[cfg(test)]\nmod ") {
        let rest = &code[at..];
        let opens = rest.find('{').unwrap_or(rest.len());
        let ends = rest.find(';').unwrap_or(rest.len());
        let end = if ends < opens { ends + 1 } else { opens + matching_brace(&rest[opens..]) + 1 };
        let end = end.min(rest.len());
        let gone: String = rest[..end].chars().filter(|&c| c == '\n').collect();
        code.replace_range(at..at + end, &gone);
    }
    code
}

/// Where the brace at the beginning is closed.
fn matching_brace(text: &str) -> usize {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Every file below `src`, without the modules that are tests.
fn sources() -> Vec<Source> {
    sources_below("src")
}

/// Every Rust file below a folder of the repository that has a crate's sources, without the modules that are tests.
fn sources_below(root: &str) -> Vec<Source> {
    fn collect(folder: &Path, module: &[String], out: &mut Vec<Source>) {
        let mut entries: Vec<_> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            let name = path.file_stem().unwrap().to_str().unwrap().to_string();
            if path.is_dir() {
                collect(&path, &[module, &[name]].concat(), out);
            } else if path.extension().is_some_and(|e| e == "rs") && name != "tests" {
                let module = match name.as_str() {
                    "lib" | "mod" => module.to_vec(),
                    _ => [module, &[name]].concat(),
                };
                let code = without_tests(code_of(&fs::read_to_string(&path).unwrap()));
                out.push(Source { path, module, code });
            }
        }
    }
    let mut out = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(root), &[], &mut out);
    out
}

/// The leaves of a `use` tree, such as `a::{b, c::{self, D}}`.
fn leaves(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim();
    if let Some(inner) = tree.strip_prefix('{').and_then(|t| t.strip_suffix('}')) {
        let (mut depth, mut from, mut out) = (0, 0, Vec::new());
        for (at, c) in inner.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    out.extend(leaves(&inner[from..at]));
                    from = at + 1;
                }
                _ => {}
            }
        }
        if !inner[from..].trim().is_empty() {
            out.extend(leaves(&inner[from..]));
        }
        return out;
    }
    match tree.split_once("::") {
        Some((first, rest)) => {
            let first = first.trim().to_string();
            leaves(rest).into_iter().map(|leaf| [vec![first.clone()], leaf].concat()).collect()
        }
        None => vec![vec![tree.split_whitespace().next().unwrap_or("").to_string()]],
    }
}

/// Every path of this crate that the code names, from the crate's root.
fn names(module: &[String], code: &str) -> Vec<Named> {
    let mut out = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back().unwrap_or(' ');
            if before.is_alphanumeric() || before == '_' || (before == ':' && start == "super::") {
                continue;
            }
            let is_use = code[..at].trim_end().ends_with("use");
            let rest = &code[at..];
            let text = if is_use {
                &rest[..rest.find(';').unwrap_or(rest.len())]
            } else {
                let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
                &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())]
            };
            let line = 1 + code[..at].matches('\n').count();
            for mut leaf in leaves(text.trim_end_matches(':')) {
                let mut base = match leaf[0].as_str() {
                    "crate" => Vec::new(),
                    _ => module.to_vec(),
                };
                while leaf.first().is_some_and(|name| name == "super") {
                    base.pop();
                    leaf.remove(0);
                }
                if leaf.first().is_some_and(|name| name == "crate") {
                    leaf.remove(0);
                }
                base.extend(leaf);
                out.push(Named { line, path: base });
            }
        }
    }
    out.sort();
    out
}

/// Where the room stands, from the top; `None`: it is none of these.
fn floor(rooms: &[&str], name: Option<&String>) -> Option<usize> {
    rooms.iter().position(|room| Some(*room) == name.map(String::as_str))
}

/// The rooms that a path leads from and to, if both are rooms of the library, or of the scheduler.
fn arrow<'a>(from: &[String], to: &[String], rooms: &[&'a str]) -> Option<(&'a str, &'a str)> {
    let (from, to) = (floor(rooms, from.first())?, floor(rooms, to.first())?);
    (from != to).then(|| (rooms[from], rooms[to]))
}

/// Whether an arrow leads up.
fn leads_up(rooms: &[&str], (from, to): (&str, &str)) -> bool {
    let at = |room: &str| rooms.iter().position(|r| *r == room);
    at(to) < at(from)
}

/// All arrows between rooms, with what shows them.
fn arrows(all: &[Source]) -> BTreeMap<(&'static str, &'static str), Vec<String>> {
    let mut found: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for source in all {
        for named in names(&source.module, &source.code) {
            let inner = |path: &[String]| match path {
                [room, rest @ ..] if room == "sched" => rest.to_vec(),
                _ => Vec::new(),
            };
            let within = arrow(&inner(&source.module), &inner(&named.path), &SCHED);
            if let Some(arrow) = arrow(&source.module, &named.path, &HOUSE).or(within) {
                let at =
                    format!("{}:{}: {}", source.path.display(), named.line, named.path.join("::"));
                found.entry(arrow).or_default().push(at);
            }
        }
    }
    found
}

/// The methods that a file of an upper room adds to a type, with the file. A lower room that calls
/// one calls upwards, though it names no path.
fn added_methods(all: &[Source]) -> Vec<(usize, String, PathBuf)> {
    let room_of = |source: &Source| match &source.module[..] {
        [sched, room, _, ..] if sched == "sched" => floor(&SCHED, Some(room)),
        _ => None,
    };
    let mut types: BTreeMap<String, usize> = BTreeMap::new();
    let mut functions: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    for source in all {
        let Some(room) = room_of(source) else { continue };
        for line in source.code.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let name = |at: usize| {
                let end = |c: char| !c.is_alphanumeric() && c != '_';
                words.get(at + 1).map(|w| w.split(end).next().unwrap_or("").to_string())
            };
            if let Some(at) = words.iter().position(|w| *w == "struct" || *w == "enum") {
                types.insert(name(at).unwrap_or_default(), room);
            }
            if let Some(at) = words.iter().position(|w| *w == "fn") {
                functions.entry(name(at).unwrap_or_default()).or_default().insert(room);
            }
        }
    }
    let mut out = Vec::new();
    for source in all {
        let Some(room) = room_of(source) else { continue };
        for (at, _) in source.code.match_indices("\nimpl") {
            let head = &source.code[at + 5..];
            let Some(opens) = head.find('{') else { continue };
            let (header, body) = (&head[..opens], &head[opens..]);
            if header.contains(" for ") {
                continue;
            }
            let end = |c: char| !c.is_alphanumeric() && c != '_';
            let header = header.trim_start_matches(|c| c != ' ' && c != '\n').trim();
            let name = header.split(end).next().unwrap_or("");
            // Rooms count from the top: a type below has the greater number.
            if types.get(name).is_none_or(|&of| of <= room) {
                continue;
            }
            let body = &body[..matching_brace(body)];
            for (at, _) in body.match_indices("fn ") {
                let method: String = body[at + 3..]
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect();
                // Another function of that name below would be found too.
                if functions[&method].iter().all(|&of| of <= room) {
                    out.push((room, method, source.path.clone()));
                }
            }
        }
    }
    out
}

/// The arrows of the scheduler that lead up: the room, and the file above it.
fn arrows_up(all: &[Source]) -> BTreeSet<(String, String)> {
    let files: BTreeSet<&[String]> = all.iter().map(|s| &s.module[..]).collect();
    let mut up = BTreeSet::new();
    for source in all {
        for named in names(&source.module, &source.code) {
            let (from, to) = (&source.module, &named.path);
            if from.first().zip(to.first()).is_none_or(|(a, b)| a != "sched" || b != "sched") {
                continue;
            }
            let Some(arrow) = arrow(&from[1..], &to[1..], &SCHED) else { continue };
            if leads_up(&SCHED, arrow) {
                let file = (2..=to.len()).rev().find(|&n| files.contains(&to[..n])).unwrap_or(2);
                up.insert((arrow.0.to_string(), to[1..file].join("::")));
            }
        }
    }
    up
}

#[test]
fn no_arrow_between_rooms_leads_up() {
    let all = sources();
    assert!(all.len() > 100, "only {} files were found", all.len());
    let mut wrong = String::new();
    for (arrow, shown) in arrows(&all) {
        if leads_up(&HOUSE, arrow) {
            writeln!(wrong, "{} -> {}:\n    {}", arrow.0, arrow.1, shown.join("\n    ")).unwrap();
        }
    }
    assert!(wrong.is_empty(), "these lead up:\n{wrong}");
    let listed: BTreeSet<_> = UP.iter().map(|(a, b, _)| (a.to_string(), b.to_string())).collect();
    let found = arrows_up(&all);
    let new: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(new.is_empty(), "these lead up, and have no reason: {new:?}");
    assert!(gone.is_empty(), "take these out of the list: {gone:?}");
}

#[test]
fn no_room_of_the_scheduler_calls_a_method_that_a_room_above_adds() {
    let all = sources();
    let added = added_methods(&all);
    assert!(!added.is_empty(), "run adds methods to types");
    let mut wrong = String::new();
    for source in &all {
        let [sched, name, _, ..] = &source.module[..] else { continue };
        let Some(room) = floor(&SCHED, Some(name)).filter(|_| sched == "sched") else { continue };
        for (of, method, from) in added.iter().filter(|(of, ..)| *of < room) {
            if source.code.contains(&format!(".{method}(")) {
                let (to, at) = (SCHED[*of], source.path.display());
                writeln!(wrong, "{at} calls {method} of {to} ({})", from.display()).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "these lead up:\n{wrong}");
}

#[test]
fn a_path_that_leads_up_is_found_wherever_it_stands() {
    let module = ["sched", "types", "m"].map(String::from);
    let lines = [
        "use crate::sched::lifecycle::spawn;",
        "use crate::sched::{prim::idle::Idle, run::{self, park::{Block, Cause}}};",
        "use super::p::P;",
        "fn f() { super::super::lifecycle::spawn::spawn(); }",
        "// crate::sched::lifecycle::comment",
        "const S: &str = \"crate::sched::lifecycle::string\";",
        "fn g(c: char) -> bool { c == '\"' && crate::sched::services::sysmon::x() }",
        "#[cfg(test)]\nmod tests {\n    use crate::sched::lifecycle::test;\n}",
    ];
    let code = without_tests(code_of(&lines.join("\n")));
    let found: Vec<(usize, String)> =
        names(&module, &code).into_iter().map(|n| (n.line, n.path.join("::"))).collect();
    let expected = [
        (1, "sched::lifecycle::spawn"),
        (2, "sched::prim::idle::Idle"),
        (2, "sched::run::park::Block"),
        (2, "sched::run::park::Cause"),
        (2, "sched::run::self"),
        (3, "sched::types::p::P"),
        (4, "sched::lifecycle::spawn::spawn"),
        (7, "sched::services::sysmon::x"),
    ];
    assert_eq!(found, expected.map(|(line, path)| (line, path.to_string())));
}

#[test]
fn an_arrow_up_is_told_from_an_arrow_down() {
    let path = |text: &str| text.split("::").map(String::from).collect::<Vec<_>>();
    let up = arrow(&path("types::m"), &path("lifecycle::spawn::spawn"), &SCHED).unwrap();
    let down = arrow(&path("lifecycle::spawn"), &path("types::m"), &SCHED).unwrap();
    assert!(leads_up(&SCHED, up) && !leads_up(&SCHED, down));
    assert_eq!(arrow(&path("types::m"), &path("types::p"), &SCHED), None);
    assert_eq!(arrow(&path("types::m"), &path("sched"), &SCHED), None);
}

#[test]
fn the_figures_of_the_drawing() {
    let all = sources();
    let found = arrows(&all);
    for rooms in [&HOUSE[..], &SCHED[..]] {
        print!("{:>10}", "");
        rooms.iter().for_each(|room| print!("{room:>10}"));
        println!();
        for from in rooms {
            print!("{from:>10}");
            for to in rooms {
                match found.get(&(*from, *to)) {
                    Some(shown) => print!("{:>10}", shown.len()),
                    None => print!("{:>10}", if from == to { "-" } else { "." }),
                }
            }
            println!();
        }
        println!();
    }
    // Each room but the lowest needs one below it, or the sources were not read as they should be.
    let is_lowest = |room: &str| ["prim", "atomic", "arch"].contains(&room);
    for room in HOUSE.iter().chain(&SCHED).filter(|room| !is_lowest(room)) {
        assert!(found.keys().any(|(from, _)| from == room), "{room} needs nothing");
    }
}

/// The rows that the tags of a text name: `seed: N4, S3 (why)` names N4 and S3.
fn seeds_of(text: &str) -> BTreeSet<String> {
    let mut rows = BTreeSet::new();
    for tag in text.split("seed: ").skip(1) {
        let list = tag.lines().next().unwrap_or("");
        for part in list.split([',', ' ']).map(|p| p.trim_matches(|c| ".)".contains(c))) {
            let is_row = part.len() >= 2
                && "SBRNW".contains(&part[..1])
                && part[1..].chars().all(|c| c.is_ascii_digit());
            if is_row {
                rows.insert(part.to_string());
            }
        }
    }
    rows
}

/// All text files below a folder.
fn texts(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        let name = entry.file_name().unwrap().to_string_lossy().into_owned();
        let is_text = [".rs", ".md", ".c", ".h", ".cpp", ".hpp", ".py", "check"];
        if entry.is_dir() && name != "target" && !name.starts_with('.') {
            texts(&entry, all);
        } else if is_text.iter().any(|end| name.ends_with(end)) {
            all.push(entry);
        }
    }
}

#[test]
fn each_tag_of_a_source_document_has_a_row_in_the_docs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = fs::read_to_string(root.join("docs/seeds.md")).unwrap();
    let mut files = Vec::new();
    for folder in ["src", "include", "tests", "examples-c"] {
        texts(&root.join(folder), &mut files);
    }
    let mut seen = 0;
    for file in files.iter().filter(|f| !f.ends_with("tests/rooms.rs")) {
        let Ok(text) = fs::read_to_string(file) else { continue };
        for row in seeds_of(&text) {
            seen += 1;
            let has_row = docs.contains(&format!("\n| {row} | "));
            assert!(has_row, "{}: docs/seeds.md has no row {row}", file.display());
        }
    }
    assert!(seen > 50, "only {seen} tags found");
}

#[test]
fn the_rows_of_a_tag_are_found() {
    let rows = |text| seeds_of(text).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(rows("// seed: S3, N5"), "N5 S3");
    assert_eq!(rows(" * seed: B6 (10,000 threads), S11 (throttled) */"), "B6 S11");
    assert_eq!(rows("goes home (seed: N7)."), "N7");
    assert_eq!(rows("fn bursts(seed: u64, n: usize)"), "");
}

/// Words that hide the subject of a sentence. A comment says "no goroutine", "the M that ...", "up to 64 threads".
const VAGUE: [&str; 7] =
    ["nobody", "somebody", "anybody", "everybody", "so many", "one that", "ones that"];

/// The blocks of comments in a Rust source, with the line where each begins and as one line of text.
fn comments_of(text: &str) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (i, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            continues = false;
            continue;
        };
        let words = comment.trim_start_matches(['/', '!']).trim();
        match blocks.last_mut().filter(|_| continues) {
            Some((_, block)) => {
                block.push(' ');
                block.push_str(words);
            }
            None => blocks.push((i + 1, words.to_string())),
        }
        continues = true;
    }
    blocks
}

/// The first vague word of a comment, if it has one.
fn vague_word(comment: &str) -> Option<&'static str> {
    if comment.starts_with("The same ") {
        return Some("The same");
    }
    let spaced: String = comment
        .chars()
        .map(|c| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { ' ' })
        .collect();
    let spaced = format!(" {} ", spaced.split_whitespace().collect::<Vec<_>>().join(" "));
    VAGUE.into_iter().find(|word| spaced.contains(&format!(" {word} ")))
}

#[test]
fn comments_of_the_library_name_their_subject() {
    let mut files = Vec::new();
    texts(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let mut seen = 0;
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "rs")) {
        for (line, comment) in comments_of(&fs::read_to_string(file).unwrap()) {
            seen += 1;
            let vague = vague_word(&comment);
            assert_eq!(vague, None, "{}:{line}: name the subject: {comment}", file.display());
        }
    }
    assert!(seen > 3000, "only {seen} comments found");
}

#[test]
fn vague_words_of_comments_are_found() {
    let source =
        "/// Takes one\n/// that is idle.\nfn f() {}\n//! The same for Q.\nlet x = 1; // nobody\n";
    let found: Vec<_> =
        comments_of(source).into_iter().map(|(line, c)| (line, vague_word(&c))).collect();
    assert_eq!(found, [(1, Some("one that")), (4, Some("The same"))]);
    assert_eq!(vague_word("Somebody's."), Some("somebody"));
    assert_eq!(vague_word("Takes the oldest task that waits."), None);
}

/// The names of code in a text: what stands between two backticks on a line and is a path (`a::b`, perhaps with a
/// call's brackets), a constant, a name with an underscore, or a file of Rust. Words, symbols and expressions aren't names.
fn code_names(text: &str) -> Vec<(usize, String)> {
    let is_word = |w: &str| {
        !w.is_empty()
            && !w.starts_with(|c: char| c.is_ascii_digit())
            && w.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let is_name = |name: &str| {
        let is_path = name.contains("::") && name.split("::").all(is_word);
        let is_constant = name.len() > 2 && !name.chars().any(|c| c.is_ascii_lowercase());
        let has_underscore = name.trim_matches('_').contains('_');
        let is_file = name.strip_suffix(".rs").is_some_and(|n| n.split('/').all(is_word));
        is_path || (is_word(name) && (is_constant || has_underscore)) || is_file
    };
    let mut names = Vec::new();
    let mut is_block = false;
    for (i, line) in text.lines().enumerate() {
        is_block ^= line.trim_start().starts_with("```");
        if is_block {
            continue;
        }
        for quoted in line.split('`').skip(1).step_by(2) {
            let name = quoted.split('(').next().unwrap_or("");
            if is_name(name) {
                names.push((i + 1, name.to_string()));
            }
        }
    }
    names
}

/// The words of a file, those of a Rust file without its comments: a name that only a comment mentions doesn't exist.
fn words_of(file: &Path) -> BTreeSet<String> {
    let Ok(text) = fs::read_to_string(file) else { return BTreeSet::new() };
    let is_rust = file.extension().is_some_and(|e| e == "rs");
    let ends = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    let code = |line| if is_rust { str::split(line, "//").next().unwrap_or("") } else { line };
    text.lines().flat_map(|line| code(line).split(ends)).map(String::from).collect()
}

/// The text of a document, or the comments of a Rust file with all other lines empty.
fn prose_of(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    if file.extension().is_some_and(|e| e == "md") {
        return text;
    }
    let comment = |line: &str| line.trim_start().starts_with("//").then(|| line.to_string());
    text.lines().map(|line| comment(line).unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

#[test]
fn names_in_the_documents_of_the_library_exist_in_its_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let src = root.join("src");
    let mut files = vec![root.join("docs/architecture.md")];
    for folder in ["src", "lib", "include", "tests"] {
        texts(&root.join(folder), &mut files);
    }
    let (mut words, mut modules) = (BTreeSet::new(), BTreeMap::<String, BTreeSet<String>>::new());
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e != "md")) {
        let these = words_of(file);
        // A path may lead through a module that exports what its files have: `arch::run`.
        for module in file.strip_prefix(&src).into_iter().flat_map(Path::iter) {
            let name = module.to_string_lossy().trim_end_matches(".rs").to_string();
            modules.entry(name).or_default().extend(these.iter().cloned());
        }
        words.extend(these);
    }
    let exists = |name: &str| {
        let path: Vec<_> = name.split("::").collect();
        match path[..] {
            [file] if file.ends_with(".rs") => files.iter().any(|f| f.ends_with(file)),
            [.., module, item] if modules.contains_key(module) => modules[module].contains(item),
            _ => path.iter().all(|word| words.contains(*word)),
        }
    };
    let of_library = |f: &&PathBuf| f.starts_with(&src) || f.starts_with(root.join("docs"));
    let (mut seen, mut wrong) = (0, String::new());
    for file in files.iter().filter(of_library) {
        let of_comments = file.extension().is_some_and(|e| e == "rs");
        for (line, name) in code_names(&prose_of(file)) {
            // Comments of code also name what is around the library, but by no path.
            if of_comments && !name.contains("::") {
                continue;
            }
            seen += 1;
            if !exists(&name) {
                writeln!(wrong, "{}:{line}: {name}", file.display()).unwrap();
            }
        }
    }
    assert!(seen > 500, "only {seen} names found");
    assert!(wrong.is_empty(), "these don't exist:\n{wrong}");
}

#[test]
fn names_of_code_are_told_from_words() {
    let text = "`stop::stop` and `hand_off`, `Gate` and `TO_G0`, `a + b`, `yield`, `P`, `core/order.rs`\n\
                ```\n`not_here`\n```\n`P::take_back(m)` `kill -9` `15_000`";
    let found: Vec<_> =
        code_names(text).into_iter().map(|(line, n)| format!("{line} {n}")).collect();
    assert_eq!(
        found,
        ["1 stop::stop", "1 hand_off", "1 TO_G0", "1 core/order.rs", "5 P::take_back"]
    );
}

/// The lines of a document outside of blocks of code, with their numbers, and without what stands between backticks.
fn lines_of_prose(text: &str) -> Vec<(usize, String)> {
    let mut is_block = false;
    let mut lines = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        is_block ^= is_fence;
        if !is_block && !is_fence {
            lines.push((i + 1, line.split('`').step_by(2).collect::<Vec<_>>().join("``")));
        }
    }
    lines
}

/// The targets of a document's links and pictures, with their lines.
fn links_of(text: &str) -> Vec<(usize, String)> {
    let in_line = |(i, line): (usize, String)| {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        targets.map(|(target, _)| (i, target.to_string())).collect::<Vec<_>>()
    };
    lines_of_prose(text).into_iter().flat_map(in_line).collect()
}

/// The anchors of a document's headings, as forges and mdBook make them.
fn anchors_of(text: &str) -> BTreeSet<String> {
    let mut times = BTreeMap::<String, usize>::new();
    let mut anchors = BTreeSet::new();
    let source: Vec<_> = text.lines().collect();
    for (line, _) in lines_of_prose(text).iter().filter(|(_, line)| line.starts_with('#')) {
        let heading = source[line - 1].trim_start_matches('#').trim();
        let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
        let anchor = heading.to_lowercase().chars().filter(kept).collect::<String>();
        let anchor = anchor.replace(' ', "-");
        let before = times.entry(anchor.clone()).or_default();
        anchors.insert(if *before == 0 { anchor } else { format!("{anchor}-{before}") });
        *before += 1;
    }
    anchors
}

#[test]
fn links_of_documents_lead_to_files_and_headings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    texts(root, &mut files);
    let (mut seen, mut wrong) = (0, String::new());
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "md")) {
        for (line, link) in links_of(&fs::read_to_string(file).unwrap()) {
            if link.contains("://") {
                continue;
            }
            seen += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() { file.clone() } else { file.with_file_name(path) };
            let has_heading = || anchors_of(&fs::read_to_string(&target).unwrap()).contains(anchor);
            if !target.exists() || !anchor.is_empty() && !has_heading() {
                writeln!(wrong, "{}:{line}: {link}", file.display()).unwrap();
            }
        }
    }
    assert!(seen > 150, "only {seen} links found");
    assert!(wrong.is_empty(), "these lead nowhere:\n{wrong}");
}

#[test]
fn each_page_of_the_docs_is_a_chapter_of_the_book() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let mut files = Vec::new();
    texts(&docs, &mut files);
    let name = |f: &PathBuf| f.strip_prefix(&docs).unwrap().to_string_lossy().into_owned();
    let pages: BTreeSet<_> = files.iter().map(name).filter(|n| n != "SUMMARY.md").collect();
    let summary = links_of(&fs::read_to_string(docs.join("SUMMARY.md")).unwrap());
    let chapters: BTreeSet<_> = summary.iter().map(|(_, page)| page.clone()).collect();
    assert_eq!(chapters, pages);
    assert_eq!(chapters.len(), summary.len(), "a page is there twice");
}

/// What a checkout has at its root.
const ROOT: [&str; 25] = [
    ".ci",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "benches",
    "bindings",
    "book.toml",
    "cbindgen.toml",
    "deny.toml",
    "docs",
    "examples-c",
    "include",
    "lib",
    "packaging",
    "rustfmt.toml",
    "src",
    "tests",
    "tools",
];

/// A command with a mistyped option easily makes a file there, and the next commit takes it along.
#[test]
fn nothing_strays_at_the_root() {
    let git =
        Command::new("git").args(["ls-files"]).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let Some(listed) = git.ok().filter(|git| git.status.success()) else {
        println!("skip nothing_strays_at_the_root: this is no checkout of git");
        return;
    };
    let listed = String::from_utf8(listed.stdout).unwrap();
    let strays: BTreeSet<_> = listed
        .lines()
        .filter_map(|path| path.split('/').next())
        .filter(|entry| !ROOT.contains(entry))
        .collect();
    assert!(strays.is_empty(), "add these to ROOT if they belong there: {strays:?}");
}

/// The tables of a Markdown text: for each row its cells, by the names of their columns.
fn rows_of(text: &str) -> Vec<BTreeMap<String, String>> {
    let cells = |line: &str| -> Option<Vec<String>> {
        let line = line.strip_prefix('|')?.strip_suffix('|')?;
        Some(line.split('|').map(|cell| cell.trim().trim_matches('`').to_string()).collect())
    };
    let (mut rows, mut names) = (Vec::new(), None::<Vec<String>>);
    for line in text.lines() {
        match (cells(line), &names) {
            (None, _) => names = None,
            (Some(cells), None) => names = Some(cells),
            (Some(cells), Some(names)) => rows.push(names.iter().cloned().zip(cells).collect()),
        }
    }
    rows
}

#[test]
fn figures_of_the_comparison_are_those_of_the_benchmarks() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let rows = |page| rows_of(&fs::read_to_string(docs.join(page)).unwrap());
    let measured = rows("benchmarks.md");
    let of_row = |row: &BTreeMap<String, String>, name: &str| row.get(name).cloned();
    let median = |cell: String| cell.split(' ').next().unwrap_or("").to_string();
    let mut seen = 0;
    for row in rows("why-not.md") {
        let Some(workload) = of_row(&row, "workload").filter(|w| !w.starts_with("--")) else {
            continue;
        };
        for (side, figure) in &row {
            if ["workload", "P", "unit"].contains(&side.as_str()) {
                continue;
            }
            let is_it = |other: &&BTreeMap<String, String>| {
                ["workload", "P", "unit"].iter().all(|name| other.get(*name) == row.get(*name))
            };
            let found: Vec<_> =
                measured.iter().filter(is_it).filter_map(|r| of_row(r, side)).collect();
            assert!(
                found.into_iter().map(median).any(|m| m == *figure),
                "{workload}: {side} {figure}"
            );
            seen += 1;
        }
    }
    assert!(seen > 30, "only {seen} figures found");
}

/// The lines of a Markdown text in blocks of C.
fn code_in_c(text: &str) -> String {
    let (mut code, mut kind) = (String::new(), None);
    for line in text.lines() {
        kind = match (line.strip_prefix("```"), kind) {
            (Some(opened), None) => Some(opened.trim()),
            (Some(_), Some(_)) => None,
            (None, kind) => {
                if kind == Some("c") {
                    code += &format!("{line}\n");
                }
                kind
            }
        };
    }
    code
}

/// Programs call these by the macros `gs_init` and `gs_run`.
const CALLED_BY_MACROS: [&str; 2] = ["gs_init_for", "gs_run_for"];

#[test]
fn the_book_shows_a_call_of_each_function_of_the_header() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap();
    let header = read("include/gosched.h");
    let map = read("lib/gosched.map");
    let names = map.lines().filter_map(|line| line.trim().strip_suffix(';'));
    let functions: Vec<_> = names
        .filter(|name| name.starts_with("gs_") && header.contains(&format!("{name}(")))
        .filter(|name| !CALLED_BY_MACROS.contains(name))
        .collect();
    let mut pages = Vec::new();
    texts(&root.join("docs"), &mut pages);
    let code: String =
        pages.iter().map(|page| code_in_c(&fs::read_to_string(page).unwrap())).collect();
    let calls: BTreeSet<&str> = code
        .split(|c: char| c != '(' && c != '_' && !c.is_ascii_alphanumeric())
        .flat_map(|word| word.split_inclusive('('))
        .filter_map(|word| word.strip_suffix('('))
        .collect();
    let missing: Vec<_> = functions.iter().filter(|name| !calls.contains(*name)).collect();
    assert!(functions.len() > 150, "only {} functions found", functions.len());
    assert!(missing.is_empty(), "add these to docs/api-examples.md: {missing:?}");
}

/// Forges and browsers load all pictures of a page at once.
const MOST_BYTES_OF_A_PICTURE: u64 = 150_000;

#[test]
fn each_picture_of_the_docs_is_shown_with_a_text() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let mut pages = Vec::new();
    texts(&docs, &mut pages);
    let pages: String = pages.iter().map(|page| fs::read_to_string(page).unwrap()).collect();
    // What stands in `![text](target)`.
    let shown: BTreeMap<_, _> = pages
        .split("![")
        .filter_map(|rest| rest.split_once("]("))
        .filter_map(|(text, rest)| Some((rest.split_once(')')?.0, text)))
        .collect();
    let (mut seen, mut wrong) = (0, String::new());
    for file in fs::read_dir(docs.join("pictures")).unwrap().map(Result::unwrap) {
        let name = file.file_name().into_string().unwrap();
        if !name.ends_with(".svg") && !name.ends_with(".png") {
            continue;
        }
        seen += 1;
        match shown.get(format!("pictures/{name}").as_str()).copied() {
            None => writeln!(wrong, "{name} is on no page").unwrap(),
            Some("") => writeln!(wrong, "{name} has no text").unwrap(),
            Some(_) => (),
        }
        let size = file.metadata().unwrap().len();
        if size > MOST_BYTES_OF_A_PICTURE {
            writeln!(wrong, "{name} has {size} bytes").unwrap();
        }
    }
    assert!(seen > 5, "only {seen} pictures found");
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn links_and_headings_are_told_from_code() {
    let text = "# What's `a_b`?\n[x](y.md#z) and ![p](q.svg), `v[0](1)`\n```c\n# no\na[0](b)\n```\n## A b\n## A b\n";
    let links: Vec<_> = links_of(text).into_iter().map(|(l, t)| format!("{l} {t}")).collect();
    assert_eq!(links, ["2 y.md#z", "2 q.svg"]);
    assert_eq!(anchors_of(text).into_iter().collect::<Vec<_>>(), ["a-b", "a-b-1", "whats-a_b"]);
}

/// The names that a file in C has for other files. True: a variable or a constant, which any mention
/// uses; false: a function. `header` is the code of the file's header, empty if it has none.
fn names_in_c(code: &str, header: &str) -> BTreeMap<String, bool> {
    let ends = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    let last = |text: &str| text.rsplit(ends).find(|w| !w.is_empty()).unwrap_or("").to_string();
    let mut names = BTreeMap::new();
    for line in header.lines() {
        if let Some(macro_of) = line.strip_prefix("#define ").filter(|m| m.contains([' ', '('])) {
            let name = macro_of.split(ends).next().unwrap_or("");
            names.insert(name.to_string(), !macro_of[name.len()..].starts_with('('));
        } else if line.starts_with("extern ") {
            let variables = line.trim_end().trim_end_matches(';').split(',');
            names.extend(variables.map(|v| (last(v.split('[').next().unwrap_or("")), true)));
        }
    }
    let declares = header.lines().map(|line| line.trim_start_matches("static inline "));
    let defines =
        code.lines().filter(|line| !line.starts_with("static ") && !line.contains("__typeof__"));
    for line in declares.chain(defines).filter(|line| line.starts_with(|c: char| !ends(c))) {
        let Some((before, _)) = line.split_once('(') else { continue };
        let name = match line.split_once(", (") {
            // A macro that makes a function: MACRO(type, name, (parameters), ...).
            Some((made, _)) if !before.contains(' ') => last(made),
            _ if before.contains(' ') => last(before),
            _ => continue,
        };
        names.entry(name).or_insert(false);
    }
    names
}

/// The files of a binding in C, from the top down, with those that each calls, as a table in a text
/// says it.
fn layers_of(text: &str) -> Vec<(String, BTreeSet<String>)> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, file, _, calls, _] = cells[..] else { return None };
        let file = file.strip_prefix('`')?.strip_suffix(".c`")?;
        let calls = calls.split(", ").filter(|c| *c != "none").map(String::from).collect();
        Some((file.to_string(), calls))
    };
    text.lines().filter_map(row).collect()
}

/// The files in C of a folder, with those that each calls. A header belongs to the file of its name.
fn calls_in_c(folder: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let read = |path: PathBuf| code_of(&fs::read_to_string(path).unwrap_or_default());
    let mut files = BTreeMap::new();
    for path in fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        if path.extension().is_some_and(|e| e == "c") {
            let (code, header) = (read(path.clone()), read(path.with_extension("h")));
            let names = names_in_c(&code, &header);
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            files.insert(name, (names, code + &header));
        }
    }
    let mut calls = BTreeMap::new();
    for (name, (_, code)) in &files {
        let mut called = BTreeSet::new();
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut at = 0;
        for word in code.split(|c| !is_part(c)) {
            let before = code[..at].chars().next_back().unwrap_or(' ');
            let is_call = code[at + word.len()..].starts_with('(') || before == ')';
            let is_member = before == '.' || code[..at].ends_with("->");
            at += word.len() + 1;
            for (other, (names, _)) in files.iter().filter(|(other, _)| *other != name) {
                let is_use = |&plain: &bool| plain || is_call || word.starts_with("lgs_");
                if !is_member && names.get(word).is_some_and(is_use) {
                    called.insert(other.clone());
                }
            }
        }
        calls.insert(name.clone(), called);
    }
    calls
}

#[test]
fn files_of_the_bindings_in_c_call_only_those_below() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("bindings");
    let mut wrong = String::new();
    for (folder, table) in [("preload", "preload/README.md"), ("lua/src", "lua/src/lgs.h")] {
        let layers = layers_of(&fs::read_to_string(root.join(table)).unwrap());
        let floor = |name: &String| layers.iter().position(|(file, _)| file == name);
        let found = calls_in_c(&root.join(folder));
        assert!(found.len() > 10, "only {} files in {folder}", found.len());
        for (name, called) in &found {
            let Some(at) = floor(name) else {
                writeln!(wrong, "{table}: no row for {name}.c").unwrap();
                continue;
            };
            for up in called.iter().filter(|c| floor(c).is_some_and(|floor| floor < at)) {
                writeln!(wrong, "{folder}/{name}.c calls {up}.c, which is above it").unwrap();
            }
            if *called != layers[at].1 {
                let list = layers.iter().map(|(f, _)| f).filter(|f| called.contains(*f));
                let list = list.cloned().collect::<Vec<_>>().join(", ");
                writeln!(wrong, "{table}: {name}.c calls {list}").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn calls_between_files_in_c_are_found() {
    let header = "#define BOTH (x)\n#define CALL(a) f(a)\nextern struct s one, many[3];\nint declared(void);\n\
                  static inline int made(void)\n#define GUARD_H\n";
    let code = "EXPORT int *defined(int a)\n{\n    inner(a);\n}\nstatic int own(void)\nMAKES(int, named, (int a), (a))\n";
    let found: Vec<_> = names_in_c(code, header).into_iter().collect();
    let plain =
        |(name, plain): &(String, bool)| if *plain { format!("{name}!") } else { name.clone() };
    let found: Vec<_> = found.iter().map(plain).collect();
    assert_eq!(found, ["BOTH!", "CALL", "declared", "defined", "made", "many!", "named", "one!"]);
    let rows = layers_of(
        "| file | x | calls |\n| --- | --- | --- |\n| `a.c` | top | b, c |\n| `b.c` | low | none |\n",
    );
    let rows: Vec<_> = rows.into_iter().map(|(f, c)| (f, c.len())).collect();
    assert_eq!(rows, [("a".to_string(), 2), ("b".to_string(), 0)]);
}

/// The sources of the Python module.
const PYTHON: &str = "bindings/python/src";
/// The folders of `sys` there: the files of both are one module, of which each build has one.
const PYTHON_SIDES: [&str; 2] = ["gil", "free"];

/// The arrows between files that a circle may have: none.
const PYTHON_CIRCLES: &[(&str, &str)] = &[];

/// The modules that each module of the Python module uses: by its file, or by the files of both sides.
fn uses_of_python(all: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let joined = |path: &[String]| {
        let is_shared = |part: &&String| !PYTHON_SIDES.contains(&part.as_str());
        path.iter().filter(is_shared).cloned().collect::<Vec<_>>().join("::")
    };
    let mut uses: BTreeMap<_, BTreeSet<_>> =
        all.iter().map(|source| (joined(&source.module), BTreeSet::new())).collect();
    let modules: BTreeSet<String> = uses.keys().cloned().collect();
    for source in all {
        let from = joined(&source.module);
        for named in names(&source.module, &source.code) {
            // What the path leads to: its longest part that is a file.
            let to = (1..=named.path.len()).rev().map(|n| joined(&named.path[..n]));
            let to = to.into_iter().find(|to| modules.contains(to));
            uses.get_mut(&from).unwrap().extend(to.filter(|to| *to != from));
        }
    }
    uses
}

/// The floors of a drawing, from the bottom up: a module uses only modules of the floors below its own. Then the arrows of
/// the modules that have no floor: those of circles, and those that lead there.
fn floors_of(
    mut uses: BTreeMap<String, BTreeSet<String>>,
) -> (Vec<Vec<String>>, Vec<(String, String)>) {
    let mut floors = Vec::new();
    loop {
        let lowest: Vec<_> =
            uses.iter().filter(|(_, to)| to.is_empty()).map(|(from, _)| from.clone()).collect();
        if lowest.is_empty() {
            let arrows = |(from, to): (String, BTreeSet<String>)| {
                to.into_iter().map(move |to| (from.clone(), to)).collect::<Vec<_>>()
            };
            return (floors, uses.into_iter().flat_map(arrows).collect());
        }
        uses.retain(|from, _| !lowest.contains(from));
        uses.values_mut().for_each(|to| to.retain(|to| !lowest.contains(to)));
        floors.push(lowest);
    }
}

#[test]
fn no_file_of_the_python_module_uses_a_file_that_uses_it_back() {
    let all = sources_below(PYTHON);
    assert!(all.len() > 60, "only {} files were found", all.len());
    let mut uses = uses_of_python(&all);
    let arrows: usize = uses.values().map(BTreeSet::len).sum();
    assert!(arrows > 200, "only {arrows} uses were found");
    for (from, to) in PYTHON_CIRCLES {
        assert!(uses.get_mut(*from).unwrap().remove(*to), "{from} doesn't use {to} any more");
    }
    let (floors, circles) = floors_of(uses.clone());
    assert!(circles.is_empty(), "these are circles, or lead to one: {circles:#?}");
    // The drawing, from the top down.
    for (floor, modules) in floors.iter().enumerate().rev() {
        for module in modules {
            let to: Vec<_> = uses[module].iter().map(String::as_str).collect();
            println!("{floor:>2} {module}: {}", to.join(" "));
        }
    }
}

#[test]
fn a_circle_of_the_python_module_is_found() {
    let source = |module: &str, code: &str| Source {
        path: PathBuf::new(),
        module: module.split("::").filter(|part| !part.is_empty()).map(String::from).collect(),
        code: code.to_string(),
    };
    let files = [
        ("", "mod a;"),
        ("a", "use crate::b::{self, c::D};"),
        ("b", ""),
        ("b::c", "fn f() { crate::sys::lock::take() }"),
        ("sys", "pub use gil::*;"),
        ("sys::gil::lock", ""),
        ("sys::free::lock", "use super::guard::Guard;"),
        ("sys::free::guard", "use crate::b::c::E;"),
    ];
    let all: Vec<_> = files.iter().map(|(module, code)| source(module, code)).collect();
    let (floors, found) = floors_of(uses_of_python(&all));
    assert_eq!(floors, [["".to_string(), "b".to_string(), "sys".to_string()]]);
    let found: Vec<_> = found.iter().map(|(from, to)| format!("{from} {to}")).collect();
    let circle = ["b::c sys::lock", "sys::guard b::c", "sys::lock sys::guard"];
    assert_eq!(found, [&["a b::c"], &circle[..]].concat());
    let all: Vec<_> = files[..7].iter().map(|(module, code)| source(module, code)).collect();
    let (floors, found) = floors_of(uses_of_python(&all));
    assert_eq!(floors.last().unwrap(), &["a"]);
    assert_eq!(found, []);
}

#[test]
fn one_file_of_the_python_module_asks_which_python_it_is_built_for() {
    for source in sources_below(PYTHON) {
        let asks = source.code.contains("Py_GIL_DISABLED") || source.code.contains("Py_3_");
        assert!(!asks || source.path.ends_with("sys/mod.rs"), "{}", source.path.display());
    }
    let mut files = Vec::new();
    texts(&Path::new(env!("CARGO_MANIFEST_DIR")).join(PYTHON), &mut files);
    let is_c = |f: &&PathBuf| f.extension().is_some_and(|e| e == "c" || e == "h");
    for file in files.iter().filter(is_c).filter(|f| !f.ends_with("cpython/cpython.h")) {
        let code = code_of(&fs::read_to_string(file).unwrap());
        let mut asked = code.lines().filter(|line| line.trim_start().starts_with("#if"));
        let asks = asked.find(|l| l.contains("PY_VERSION") || l.contains("Py_GIL_DISABLED"));
        assert_eq!(asks, None, "{}", file.display());
    }
}
