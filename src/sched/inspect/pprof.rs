//! Dumps as a profile that `go tool pprof` reads: where goroutines wait. `gs_dump_pprof`.
//!
//! The format is `profile.proto` of pprof, of which a few messages are written here. A sample is a
//! stack with the number of goroutines that have it, and are in the same state for the same reason.

use super::snapshot::{self, Goroutine, Snapshot, status_name};
use crate::backtrace::symbols::Symbols;
use crate::os::file;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes the profile to the file. Returns as [`dump`](super::dump::dump) does.
pub fn dump(fd: i32) -> i32 {
    snapshot::with(fd, |snapshot, symbols| {
        file::write_whole(fd, &Profile::of(snapshot, symbols).write())
    })
}

/// Fields of the messages, by name.
mod field {
    pub mod profile {
        pub const SAMPLE_TYPE: u64 = 1;
        pub const SAMPLE: u64 = 2;
        pub const MAPPING: u64 = 3;
        pub const LOCATION: u64 = 4;
        pub const FUNCTION: u64 = 5;
        pub const STRING_TABLE: u64 = 6;
        pub const TIME_NANOS: u64 = 9;
    }
    pub mod value_type {
        pub const TYPE: u64 = 1;
        pub const UNIT: u64 = 2;
    }
    pub mod sample {
        pub const LOCATION_ID: u64 = 1;
        pub const VALUE: u64 = 2;
        pub const LABEL: u64 = 3;
    }
    pub mod label {
        pub const KEY: u64 = 1;
        pub const STR: u64 = 2;
    }
    pub mod mapping {
        pub const ID: u64 = 1;
        pub const FILENAME: u64 = 5;
        pub const HAS_FUNCTIONS: u64 = 7;
        pub const HAS_FILENAMES: u64 = 8;
        pub const HAS_LINE_NUMBERS: u64 = 9;
        pub const HAS_INLINE_FRAMES: u64 = 10;
    }
    pub mod location {
        pub const ID: u64 = 1;
        pub const MAPPING_ID: u64 = 2;
        pub const ADDRESS: u64 = 3;
        pub const LINE: u64 = 4;
    }
    pub mod line {
        pub const FUNCTION_ID: u64 = 1;
        pub const LINE: u64 = 2;
    }
    pub mod function {
        pub const ID: u64 = 1;
        pub const NAME: u64 = 2;
        pub const SYSTEM_NAME: u64 = 3;
        pub const FILENAME: u64 = 4;
    }
}

/// A message of protobuf.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A field of an integer type; 0 is the default, which is not written.
    fn number(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.varint(field << 3);
            self.varint(value);
        }
    }

    /// A string, or the packed values of a repeated field, or another message.
    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, fill: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }
}

/// Values with numbers: equal values have one number.
struct Numbered<T> {
    numbers: BTreeMap<T, u64>,
    all: Vec<T>,
    /// The number of the first value.
    first: u64,
}

impl<T: Ord + Clone> Numbered<T> {
    fn new(first: u64) -> Numbered<T> {
        Numbered { numbers: BTreeMap::new(), all: Vec::new(), first }
    }

    fn number_of(&mut self, value: T) -> u64 {
        let next = self.first + self.all.len() as u64;
        let (all, key) = (&mut self.all, value.clone());
        *self.numbers.entry(key).or_insert_with(|| {
            all.push(value);
            next
        })
    }

    fn each(&self) -> impl Iterator<Item = (u64, &T)> {
        (self.first..).zip(&self.all)
    }
}

/// A function: the numbers of the strings of its name and its file.
type Function = (u64, u64);

/// An address, the number of its mapping, and the functions there with their lines, the innermost
/// first.
type Location = (usize, u64, Vec<(u64, u64)>);

/// The numbers of the locations of a stack, the innermost first, and the strings of the labels
/// state, reason and name.
type Sample = (Vec<u64>, [u64; 3]);

struct Profile {
    strings: Numbered<String>,
    functions: Numbered<Function>,
    /// The numbers of the strings of their paths.
    mappings: Numbered<u64>,
    locations: Numbered<Location>,
    samples: BTreeMap<Sample, u64>,
}

impl Profile {
    fn of(snapshot: &Snapshot, symbols: &mut Symbols) -> Profile {
        let mut profile = Profile {
            strings: Numbered::new(0),
            functions: Numbered::new(1),
            mappings: Numbered::new(1),
            locations: Numbered::new(1),
            samples: BTreeMap::new(),
        };
        // The format wants the empty string first.
        profile.string("");
        for g in &snapshot.all {
            profile.add(snapshot, g, symbols);
        }
        profile
    }

    fn string(&mut self, text: &str) -> u64 {
        self.strings.number_of(text.to_string())
    }

    fn add(&mut self, snapshot: &Snapshot, g: &Goroutine, symbols: &mut Symbols) {
        let mut stack = Vec::new();
        let mut lines = Vec::new();
        snapshot.each_symbol(g, symbols, &mut |symbol| {
            let module = self.string(symbol.module);
            let mapping = if module == 0 { 0 } else { self.mappings.number_of(module) };
            let name = match symbol.function {
                "" => format!("{}+{:#x}", symbol.module, symbol.offset),
                name => name.to_string(),
            };
            let function = (self.string(&name), self.string(symbol.file));
            lines.push((self.functions.number_of(function), u64::from(symbol.line)));
            if !symbol.is_inlined {
                let lines = core::mem::take(&mut lines);
                stack.push(self.locations.number_of((symbol.pc, mapping, lines)));
            }
        });
        let labels = [
            self.string(status_name(g.seen.status)),
            self.string(g.seen.why.map_or("", |_| g.state())),
            self.string(&snapshot.name(g)),
        ];
        *self.samples.entry((stack, labels)).or_default() += 1;
    }

    fn write(mut self) -> Vec<u8> {
        let kind = (self.string("goroutine"), self.string("count"));
        let keys = ["state", "reason", "name"].map(|key| self.string(key));
        let mut out = Message::default();
        out.message(field::profile::SAMPLE_TYPE, |m| {
            m.number(field::value_type::TYPE, kind.0);
            m.number(field::value_type::UNIT, kind.1);
        });
        for ((stack, labels), count) in &self.samples {
            out.message(field::profile::SAMPLE, |m| {
                let mut ids = Message::default();
                stack.iter().for_each(|&id| ids.varint(id));
                m.bytes(field::sample::LOCATION_ID, &ids.0);
                m.number(field::sample::VALUE, *count);
                for (key, &value) in keys.iter().zip(labels).filter(|(_, value)| **value != 0) {
                    m.message(field::sample::LABEL, |m| {
                        m.number(field::label::KEY, *key);
                        m.number(field::label::STR, value);
                    });
                }
            });
        }
        for (id, &path) in self.mappings.each() {
            out.message(field::profile::MAPPING, |m| {
                m.number(field::mapping::ID, id);
                m.number(field::mapping::FILENAME, path);
                // pprof need not look for symbols itself.
                m.number(field::mapping::HAS_FUNCTIONS, 1);
                m.number(field::mapping::HAS_FILENAMES, 1);
                m.number(field::mapping::HAS_LINE_NUMBERS, 1);
                m.number(field::mapping::HAS_INLINE_FRAMES, 1);
            });
        }
        for (id, (pc, mapping, lines)) in self.locations.each() {
            out.message(field::profile::LOCATION, |m| {
                m.number(field::location::ID, id);
                m.number(field::location::MAPPING_ID, *mapping);
                m.number(field::location::ADDRESS, *pc as u64);
                for &(function, line) in lines {
                    m.message(field::location::LINE, |m| {
                        m.number(field::line::FUNCTION_ID, function);
                        m.number(field::line::LINE, line);
                    });
                }
            });
        }
        for (id, &(name, file)) in self.functions.each() {
            out.message(field::profile::FUNCTION, |m| {
                m.number(field::function::ID, id);
                m.number(field::function::NAME, name);
                m.number(field::function::SYSTEM_NAME, name);
                m.number(field::function::FILENAME, file);
            });
        }
        for (_, text) in self.strings.each() {
            out.bytes(field::profile::STRING_TABLE, text.as_bytes());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos() as u64);
        out.number(field::profile::TIME_NANOS, now);
        out.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_strings_are_written_as_protobuf_has_them() {
        let mut m = Message::default();
        m.number(1, 300);
        m.number(2, 0);
        m.bytes(3, b"ab");
        m.message(4, |m| m.number(1, 1));
        assert_eq!(m.0, [8, 0xac, 2, 0x1a, 2, b'a', b'b', 0x22, 2, 8, 1]);
    }

    #[test]
    fn equal_values_have_one_number() {
        let mut all = Numbered::new(1);
        assert_eq!(["a", "b", "a"].map(|text| all.number_of(text)), [1, 2, 1]);
        assert_eq!(all.each().collect::<Vec<_>>(), [(1, &"a"), (2, &"b")]);
    }
}
