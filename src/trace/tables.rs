//! The tables of strings and stacks at the end of a generation.

use super::format::{MOST_DATA, MOST_FRAMES, NO_THREAD, event, push_batch_header, push_number};
use super::stacks::{self, Entry};
use super::strings;
use crate::backtrace::symbols::{Symbol, Symbols};
use crate::backtrace::unwind::Frame;
use std::collections::HashMap;

/// A frame as a reader sees it.
struct Line {
    pc: usize,
    function: String,
    file: String,
    line: u32,
    /// Whether other functions have frames at this address, too: the functions inlined there, or
    /// those of `gosched.h` that `arch::call_resumable` calls, whose return address is the same.
    shares_pc: bool,
}

impl Line {
    fn of(symbol: &Symbol) -> Line {
        let function = match symbol.function {
            "" => format!("{}+{:#x}", symbol.module, symbol.offset),
            name => name.to_owned(),
        };
        Line {
            pc: symbol.pc,
            function,
            file: symbol.file.to_owned(),
            line: symbol.line,
            shares_pc: symbol.is_inlined || symbol.is_library,
        }
    }
}

/// What is known of addresses from one generation to the next.
pub struct Tables {
    /// Made with the first table, and read again from the files when objects were loaded since.
    symbols: Option<Symbols>,
    /// What users see of a stack, by the stack's id.
    lines: HashMap<u32, Vec<Line>>,
}

/// Addresses of frames without a code address of their own begin here. Readers know a frame by its
/// address alone.
const MADE_UP: u64 = 1 << 62;

/// The tables of one generation.
struct Encoder {
    generation: u32,
    time: u64,
    /// Strings that only the tables have.
    ids: HashMap<String, u32>,
    next_string: u32,
    next_pc: u64,
    strings: Vec<u8>,
    out: Vec<u8>,
}

impl Encoder {
    fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let id = self.next_string;
        self.next_string += 1;
        self.ids.insert(text.to_owned(), id);
        self.add_string(id, text.as_bytes());
        id
    }

    fn add_string(&mut self, id: u32, text: &[u8]) {
        let text = strings::cut(text);
        if self.strings.len() + text.len() + 32 > MOST_DATA {
            self.flush_strings();
        }
        if self.strings.is_empty() {
            self.strings.push(event::STRINGS);
        }
        self.strings.push(event::STRING);
        push_number(&mut self.strings, u64::from(id));
        push_number(&mut self.strings, text.len() as u64);
        self.strings.extend_from_slice(text);
    }

    fn flush_strings(&mut self) {
        let strings = core::mem::take(&mut self.strings);
        self.batch(&strings);
    }

    fn batch(&mut self, data: &[u8]) {
        if !data.is_empty() {
            push_batch_header(&mut self.out, self.generation, NO_THREAD, self.time, data.len());
            self.out.extend_from_slice(data);
        }
    }

    fn made_up_pc(&mut self) -> u64 {
        self.next_pc += 1;
        MADE_UP + self.next_pc
    }
}

impl Tables {
    pub fn new() -> Tables {
        Tables { symbols: None, lines: HashMap::new() }
    }

    /// Forgets what is known of the files of code: objects were loaded or unloaded, and another may be
    /// where one was.
    pub fn forget_symbols(&mut self) {
        self.symbols = None;
        self.lines.clear();
    }

    /// Appends the tables of a generation whose events have these stacks and strings, which are
    /// sorted.
    pub fn encode(
        &mut self,
        (generation, time): (u32, u64),
        ids: &[u32],
        strings: &[u32],
        out: &mut Vec<u8>,
    ) {
        let mut to = Encoder {
            generation,
            time,
            ids: HashMap::new(),
            next_string: strings::first_free(),
            next_pc: 0,
            strings: Vec::new(),
            out: core::mem::take(out),
        };
        let mut table = Vec::new();
        for &id in ids {
            let mut stack = vec![event::STACK];
            self.encode_stack(id, &mut to, &mut stack);
            if table.len() + stack.len() > MOST_DATA {
                to.batch(&core::mem::take(&mut table));
            }
            if table.is_empty() {
                table.push(event::STACKS);
            }
            table.append(&mut stack);
        }
        to.batch(&table);
        strings::fixed::all().for_each(|(id, text)| to.add_string(id, text.as_bytes()));
        strings::each(strings, |id, text| to.add_string(id, text));
        to.flush_strings();
        *out = to.out;
    }

    fn encode_stack(&mut self, id: u32, to: &mut Encoder, stack: &mut Vec<u8>) {
        let mut frames: Vec<(u64, u32, u32, u32)> = Vec::new();
        if let Some(entry) = stacks::entry(id) {
            for foreign in &entry.foreign {
                let pc = to.made_up_pc();
                frames.push((pc, foreign.function, foreign.file, foreign.line));
            }
            for line in self.lines_of(id, entry) {
                let at = if line.shares_pc { to.made_up_pc() } else { line.pc as u64 };
                let (function, file) = (to.string(&line.function), to.string(&line.file));
                frames.push((at, function, file, line.line));
            }
        }
        frames.truncate(MOST_FRAMES);
        push_number(stack, u64::from(id));
        push_number(stack, frames.len() as u64);
        for (pc, function, file, line) in frames {
            for n in [pc, u64::from(function), u64::from(file), u64::from(line)] {
                push_number(stack, n);
            }
        }
    }

    /// The functions of a stack that users see, leaf first.
    fn lines_of(&mut self, id: u32, entry: &Entry) -> &[Line] {
        let symbols = self.symbols.get_or_insert_with(|| Symbols::new(false));
        self.lines.entry(id).or_insert_with(|| {
            let mut lines = Vec::new();
            let mut add = |symbol: &Symbol| lines.push(Line::of(symbol));
            match &*entry.pcs {
                [function] => symbols.frames(*function, true, &mut add),
                pcs => {
                    // 0 tells the first address, which is no return address.
                    let frame = |(n, &pc)| Frame { pc, slot: n };
                    let frames: Vec<Frame> = pcs.iter().enumerate().map(frame).collect();
                    symbols.visible(&frames, &mut add);
                }
            }
            lines
        })
    }
}
