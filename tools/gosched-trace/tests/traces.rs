//! Traces that are right, wrong and damaged.

mod common;

use std::collections::{BTreeMap, HashMap};

use common::{bad, event, file, good, one};
use gosched_trace::wire::Kind;
use gosched_trace::{Error, Event, Item, Reader, perfetto, print, summary};
use proptest::prelude::*;

/// The events of a trace, and what is wrong behind them.
fn read(data: &[u8]) -> (Vec<Event>, Option<Error>) {
    let mut events = Vec::new();
    let mut reader = match Reader::new(data) {
        Ok(reader) => reader,
        Err(error) => return (events, Some(error)),
    };
    loop {
        match reader.next() {
            Ok(Some(Item::Event(event))) => events.push(event),
            Ok(Some(Item::Generation)) => {}
            Ok(None) => return (events, None),
            Err(error) => {
                assert!(matches!(reader.next(), Ok(None)), "nothing comes behind an error");
                return (events, Some(error));
            }
        }
    }
}

/// What the commands make of a trace: the text, the JSON, the summary and the file for Perfetto.
fn outputs(data: &[u8]) -> [Vec<u8>; 4] {
    let mut all: [Vec<u8>; 4] = Default::default();
    let Ok(mut reader) = Reader::new(data) else { return all };
    let [text, json, summary, perfetto] = &mut all;
    let mut text = print::Printer::new(text, print::Options { stacks: true, json: false });
    let mut json = print::Printer::new(json, print::Options { stacks: false, json: true });
    let mut converter = perfetto::Converter::new(perfetto, "test");
    let mut sums = summary::Sums::new(reader.version());
    while let Ok(Some(item)) = reader.next() {
        let tables = reader.tables();
        match item {
            Item::Generation => {
                text.generation(tables).unwrap();
                json.generation(tables).unwrap();
                converter.generation(tables).unwrap();
                sums.generation(tables);
            }
            Item::Event(event) => {
                text.event(&event, tables).unwrap();
                json.event(&event, tables).unwrap();
                converter.event(&event, tables).unwrap();
                sums.event(&event, tables);
            }
        }
    }
    converter.finish().unwrap();
    let sums = sums.finish(reader.offset(), 20);
    sums.text(&mut *summary).unwrap();
    sums.json(&mut *summary).unwrap();
    drop((text, json, converter));
    all
}

#[test]
fn valid_traces_are_read_to_their_end() {
    for (name, data) in good() {
        let (_, error) = read(&data);
        assert!(error.is_none(), "{name}: {}", error.unwrap());
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (name, data, said) in bad() {
        let (_, error) = read(&data);
        let error = error.unwrap_or_else(|| panic!("{name} is read without an error"));
        assert!(error.to_string().contains(said), "{name}: {error}");
        assert!(error.offset <= data.len() as u64, "{name}: {error}");
    }
}

#[test]
fn events_before_what_is_wrong_are_read() {
    let data = file(26, &[&one(&[(1, event::GO_STOP, &[0, 0]), (1, event::GO_STOP, &[0, 0])])]);
    let (events, error) = read(&data);
    assert_eq!(events.last().map(|event| event.kind), Some(Kind::GoStop));
    let offset = error.expect("a goroutine that doesn't run can't stop").offset as usize;
    assert_eq!(data[offset], event::GO_STOP);
}

#[test]
fn the_formats_of_all_versions_have_the_same_events() {
    let all: HashMap<_, _> = good().into_iter().collect();
    let kinds = |name: &str| {
        let (events, _) = read(&all[name]);
        events.iter().map(|event| (event.kind, event.m, event.time)).collect::<Vec<_>>()
    };
    for name in ["scheduler-1.22", "scheduler-1.23", "scheduler-1.25"] {
        assert_eq!(kinds(name), kinds("scheduler"), "{name}");
    }
}

#[test]
fn numbers_of_sequence_count_more_than_clocks() {
    let all: HashMap<_, _> = good().into_iter().collect();
    let (events, error) = read(&all["clocks-that-disagree"]);
    assert!(error.is_none());
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    let at = |kind| kinds.iter().position(|&other| other == kind);
    assert!(at(Kind::GoCreate) < at(Kind::GoStart), "{kinds:?}");
    assert!(events.windows(2).all(|pair| pair[0].time < pair[1].time));
}

#[test]
fn an_old_file_that_is_cut_off_shows_what_is_whole() {
    let all: HashMap<_, _> = good().into_iter().collect();
    let whole = &all["scheduler-1.22"];
    let (all_events, _) = read(whole);
    // Within the tables of the last generation.
    let (events, error) = read(&whole[..whole.len() - 3]);
    assert!(error.is_some_and(|error| error.is_truncated()));
    assert!(!events.is_empty() && events.len() <= all_events.len());
}

#[test]
fn wherever_a_file_is_cut_off_the_generations_before_are_read() {
    let [first, second] = common::scheduler();
    let data = file(26, &[&first, &second]);
    let (of_first, _) = read(&file(26, &[&first]));
    let begin = file(26, &[&first]).len();
    for end in begin + 1..data.len() {
        let (events, error) = read(&data[..end]);
        assert_eq!(events.len(), of_first.len(), "cut off at {end}");
        assert!(error.is_some_and(|error| error.is_truncated()), "cut off at {end}");
    }
}

#[test]
fn the_text_names_functions_and_reasons() {
    let all: HashMap<_, _> = good().into_iter().collect();
    let [text, json, ..] = outputs(&all["scheduler"]);
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find(|line| line.contains(" GoBlock ")).unwrap();
    assert!(line.contains("G=2 worker") && line.contains("reason=\"chan receive\""), "{line}");
    assert!(text.contains("        read\n            source.c:4\n        worker\n"), "{text}");
    let lines: Vec<serde_json::Value> = json
        .split(|&byte| byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    let (events, _) = read(&all["scheduler"]);
    assert_eq!(lines.len(), events.len() + 2);
    let block = lines.iter().find(|line| line["event"] == "GoBlock").unwrap();
    assert_eq!(block["args"]["reason"], "chan receive");
    assert_eq!(block["args"]["stack"][0]["function"], "worker");
}

#[test]
fn the_summary_adds_up_what_goroutines_did() {
    let [first, second] = common::scheduler();
    let data = file(26, &[&first, &second]);
    let mut reader = Reader::new(&data[..]).unwrap();
    let mut sums = summary::Sums::new(reader.version());
    while let Some(item) = reader.next().unwrap() {
        match item {
            Item::Generation => sums.generation(reader.tables()),
            Item::Event(event) => sums.event(&event, reader.tables()),
        }
    }
    let sums = sums.finish(reader.offset(), 20);
    let row = |table: &summary::Table, function: &str, reason: Option<&str>| {
        let found = table
            .rows
            .iter()
            .find(|row| &*row.function == function && row.reason.as_deref() == reason);
        found.unwrap_or_else(|| panic!("no row {function} {reason:?}")).clone()
    };
    // Goroutine 2 blocks at 20 and is woken at 30.
    let wait = row(&sums.waiting, "worker", Some("chan receive"));
    assert_eq!((wait.stat.count, wait.stat.total, wait.stat.longest), (1, 10, Some(2)));
    // Goroutine 4 waits in the network from 160 to 1010, in both generations.
    assert_eq!(row(&sums.waiting, "worker", Some("network")).stat.max, 850);
    // Two calls, of 1 and 20 ns; the second loses its P.
    let call = row(&sums.syscalls, "worker", Some("read"));
    assert_eq!((call.stat.count, call.stat.total, call.taken), (2, 21, Some(1)));
    let p1 = &sums.procs[1].uses;
    let all = p1.goroutines + p1.syscalls + p1.scheduler + p1.idle;
    assert_eq!(all, sums.duration - 1, "P 1 is known from 1 ns on");
    // Goroutine 2 ends on P 1: it ran from 18 to 20, from 32 to 60 with its calls, from 72 to 80 and from 81 to 90.
    let held: u64 = sums.holds.iter().filter(|hold| hold.g == 2).map(|hold| hold.time).sum();
    assert_eq!(held, 2 + 28 + 8 + 9);
    assert_eq!((sums.created, sums.ended, sums.alive), (4, 6, 1));
    let bytes = sums.events.iter().map(|event| event.size.bytes).sum::<u64>();
    let overhead = &sums.overhead;
    let rest = overhead.headers + overhead.strings + overhead.stacks + overhead.sync;
    assert_eq!(bytes + rest + 16, data.len() as u64);
}

/// The fields of a protobuf message: their numbers, and numbers or bytes.
fn fields(mut data: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(data: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = data[0];
            *data = &data[1..];
            value |= u64::from(byte & 127) << shift;
            shift += 7;
            if byte < 128 {
                return value;
            }
        }
    }
    let mut all = Vec::new();
    while !data.is_empty() {
        let key = varint(&mut data);
        let (number, bytes) = match key & 7 {
            0 => (varint(&mut data), &[][..]),
            1 => {
                let (eight, rest) = data.split_at(8);
                data = rest;
                (u64::from_le_bytes(eight.try_into().unwrap()), &[][..])
            }
            _ => {
                let length = varint(&mut data) as usize;
                let (bytes, rest) = data.split_at(length);
                data = rest;
                (0, bytes)
            }
        };
        all.push((key >> 3, number, bytes));
    }
    all
}

/// A file for Perfetto has nested slices that all end, and arrows that end where they begin. How many of each.
fn check_perfetto(data: &[u8]) -> (usize, usize) {
    let mut open: BTreeMap<u64, u64> = BTreeMap::new();
    let mut begun = std::collections::BTreeSet::new();
    let (mut slices, mut arrows) = (0, 0);
    for (_, _, packet) in fields(data) {
        for (number, _, track_event) in fields(packet) {
            if number != 11 {
                continue;
            }
            let parts = fields(track_event);
            let get = |wanted| parts.iter().find(|part| part.0 == wanted).map(|part| part.1);
            let track = get(11).unwrap();
            match get(9).unwrap() {
                1 => {
                    *open.entry(track).or_default() += 1;
                    slices += 1;
                }
                2 => {
                    let count = open.entry(track).or_default();
                    *count = count.checked_sub(1).expect("a slice begins before it ends");
                }
                _ => {}
            }
            if let Some(flow) = get(47) {
                assert!(begun.insert(flow));
            }
            if let Some(flow) = get(48) {
                assert!(begun.remove(&flow), "an arrow begins before it ends");
                arrows += 1;
            }
        }
    }
    assert!(open.values().all(|&count| count == 0), "all slices end");
    (slices, arrows)
}

#[test]
fn slices_of_the_converted_trace_nest_and_arrows_end() {
    for (name, data) in good() {
        let [.., converted] = outputs(&data);
        let (slices, arrows) = check_perfetto(&converted);
        let (events, _) = read(&data);
        let starts = events.iter().filter(|event| event.kind == Kind::GoStart).count();
        assert!(
            slices >= starts && arrows <= starts + 2,
            "{name}: {slices} slices, {arrows} arrows"
        );
    }
}

#[test]
fn logs_of_counts_are_counters_and_others_are_instants() {
    let mut trace = one(&[]);
    let logs = [
        ("P0 queue", "3"),
        ("depth", "-2"),
        ("load", "2.5"),
        ("stolen", "node 1"),
        ("path", "/x"),
        ("", "hello"),
    ];
    for (place, (key, value)) in logs.into_iter().enumerate() {
        let (key, value) =
            (if key.is_empty() { 0 } else { trace.string(key) }, trace.string(value));
        trace.event(1, 10 * (place as u64 + 1), event::LOG, &[0, key, value, 0]);
    }
    let [.., converted] = outputs(&file(26, &[&trace]));
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (mut tracks, mut names) = (BTreeMap::new(), BTreeMap::new());
    let (mut counters, mut instants) = (BTreeMap::new(), Vec::new());
    for (_, _, packet) in fields(&converted) {
        for (number, _, part) in fields(packet) {
            let parts = fields(part);
            let get = |wanted| parts.iter().find(|part| part.0 == wanted);
            match number {
                60 => {
                    let name = get(2).map_or(String::new(), |name| text(name.2));
                    tracks.insert(get(1).unwrap().1, name);
                }
                12 => {
                    for (_, _, entry) in parts.iter().filter(|part| part.0 == 2) {
                        let entry = fields(entry);
                        names.insert(entry[0].1, text(entry[1].2));
                    }
                }
                11 if get(9).unwrap().1 == 4 => {
                    let value = get(30)
                        .map_or_else(|| f64::from_bits(get(44).unwrap().1), |n| n.1 as i64 as f64);
                    counters.insert(tracks[&get(11).unwrap().1].clone(), value);
                }
                11 if get(9).unwrap().1 == 3 => instants.push(names[&get(10).unwrap().1].clone()),
                _ => {}
            }
        }
    }
    let wanted = [("P0 queue", 3.0), ("depth", -2.0), ("load", 2.5)];
    assert_eq!(counters, wanted.map(|(name, value)| (name.to_string(), value)).into());
    assert_eq!(instants, ["stolen: node 1", "path: /x", "hello"]);
}

#[derive(Clone, Debug)]
enum Damage {
    Byte(usize, u8),
    Bit(usize, u8),
    Remove(usize),
    Repeat(usize, usize),
    Cut(usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        4 => (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Damage::Byte(at, byte)),
        4 => (any::<usize>(), 0..8u8).prop_map(|(at, bit)| Damage::Bit(at, bit)),
        1 => any::<usize>().prop_map(Damage::Remove),
        1 => (any::<usize>(), 1..200usize).prop_map(|(at, count)| Damage::Repeat(at, count)),
        1 => any::<usize>().prop_map(Damage::Cut),
    ]
}

fn damaged(mut data: Vec<u8>, all: &[Damage]) -> Vec<u8> {
    const HEADER: usize = 16;
    for damage in all {
        let place = |at: usize| HEADER + at % (data.len() - HEADER).max(1);
        if data.len() <= HEADER + 1 {
            break;
        }
        match *damage {
            Damage::Byte(at, byte) => {
                let at = place(at);
                data[at] = byte;
            }
            Damage::Bit(at, bit) => {
                let at = place(at);
                data[at] ^= 1 << bit;
            }
            Damage::Remove(at) => {
                data.remove(place(at));
            }
            Damage::Repeat(at, count) => {
                let at = place(at);
                let part = data[at..(at + count).min(data.len())].to_vec();
                data.splice(at..at, part);
            }
            Damage::Cut(at) => data.truncate(place(at)),
        }
    }
    data
}

/// How many damaged files are read: 10,000, unless PROPTEST_CASES says otherwise.
fn damaged_files() -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 10_000 };
    ProptestConfig { cases, ..default }
}

proptest! {
    #![proptest_config(damaged_files())]

    /// Each command ends, without a panic and with little to say, whatever the file has.
    #[test]
    fn a_damaged_file_does_no_harm(
        which in 0..17usize,
        all in proptest::collection::vec(damage(), 1..6),
    ) {
        let whole = good().swap_remove(which).1;
        let data = damaged(whole, &all);
        let (events, error) = read(&data);
        // An event has at least two bytes.
        prop_assert!(events.len() <= data.len() / 2);
        if let Some(error) = error {
            prop_assert!(error.offset <= data.len() as u64);
            prop_assert!(error.to_string().len() < 5_000);
        }
        let made = outputs(&data);
        check_perfetto(&made[3]);
        for output in made {
            prop_assert!(output.len() < 20_000 + data.len() * 2_000);
        }
    }

    /// Bytes that are no trace at all.
    #[test]
    fn noise_does_no_harm(noise in proptest::collection::vec(any::<u8>(), 0..300)) {
        let data = [b"go 1.26 trace\0\0\0", &noise[..]].concat();
        read(&data);
        outputs(&data);
    }
}

#[test]
fn the_sources_of_damage_are_all_good_traces() {
    assert_eq!(good().len(), 17, "a_damaged_file_does_no_harm takes one of them");
}
