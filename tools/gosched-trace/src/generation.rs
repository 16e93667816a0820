//! A generation of a trace: the batches of its M's, and its tables.

use std::collections::HashMap;
use std::io::{self, Read};

use crate::error::{Cause, Error};
use crate::wire::{self, Bytes, MAX_BATCH, MAX_FRAMES, MAX_STRING, NONE, Version, batch};

/// A trace as a stream of bytes, which knows its place.
pub struct Source<R> {
    input: io::BufReader<R>,
    offset: u64,
}

impl<R: Read> Source<R> {
    pub fn new(input: R) -> Source<R> {
        Source { input: io::BufReader::with_capacity(64 << 10, input), offset: 0 }
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Up to `count` bytes; fewer at the end of the file.
    pub fn take(&mut self, count: u64) -> Result<Vec<u8>, Error> {
        let mut data = Vec::new();
        let read = (&mut self.input).take(count).read_to_end(&mut data);
        let offset = self.offset;
        self.offset += data.len() as u64;
        read.map(|_| data).map_err(|error| Error { offset, cause: Cause::Io(error) })
    }

    /// The next byte; None at the end of the file.
    fn byte(&mut self) -> Result<Option<u8>, Error> {
        let mut byte = [0];
        loop {
            match self.input.read(&mut byte) {
                Ok(0) => return Ok(None),
                Ok(_) => {
                    self.offset += 1;
                    return Ok(Some(byte[0]));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error { offset: self.offset, cause: Cause::Io(error) }),
            }
        }
    }

    fn byte_of_batch(&mut self) -> Result<u8, Error> {
        self.byte()?.ok_or_else(|| self.truncated("the file ends within the header of a batch"))
    }

    fn truncated(&self, what: &str) -> Error {
        Error { offset: self.offset, cause: Cause::Truncated(what.to_string()) }
    }

    fn number(&mut self) -> Result<u64, Error> {
        let begin = self.offset;
        wire::number(|| self.byte_of_batch().map_err(NumberError::Read)).map_err(|e| match e {
            NumberError::Read(error) => error,
            NumberError::Number(what) => Error::format(begin, what),
        })
    }
}

enum NumberError {
    Read(Error),
    Number(String),
}

impl From<String> for NumberError {
    fn from(what: String) -> NumberError {
        NumberError::Number(what)
    }
}

/// The data of a batch, and what its header says.
pub struct Batch {
    pub generation: u64,
    pub m: u64,
    /// The time of the batch in the trace's units.
    pub time: u64,
    /// Where the data is in the file.
    pub offset: u64,
    pub data: Box<[u8]>,
    /// A batch of an experiment of Go's, whose data is unknown.
    experimental: bool,
}

/// What is read at once.
pub enum Piece {
    Batch(Batch),
    EndOfGeneration,
    EndOfFile,
}

/// Reads a batch, or the byte that ends a generation.
pub fn piece<R: Read>(source: &mut Source<R>) -> Result<Piece, Error> {
    let begin = source.offset();
    let experimental = match source.byte()? {
        None => return Ok(Piece::EndOfFile),
        Some(batch::END_OF_GENERATION) => return Ok(Piece::EndOfGeneration),
        Some(batch::EVENTS) => false,
        Some(batch::EXPERIMENTAL) => {
            source.byte_of_batch()?;
            true
        }
        Some(byte) => {
            return Err(Error::format(begin, format!("a batch can't begin with the byte {byte}")));
        }
    };
    let generation = source.number()?;
    let m = source.number()?;
    let time = source.number()?;
    let size_at = source.offset();
    let size = source.number()?;
    if size > MAX_BATCH {
        let what = format!("a batch of {size} bytes: {MAX_BATCH} are the most");
        return Err(Error::format(size_at, what));
    }
    let offset = source.offset();
    let data = source.take(size)?.into_boxed_slice();
    if (data.len() as u64) < size {
        return Err(source.truncated("the file ends within a batch"));
    }
    Ok(Piece::Batch(Batch { generation, m, time, offset, data, experimental }))
}

/// A frame of a stack.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub pc: u64,
    /// The function's name, as the id of a string.
    pub function: u64,
    /// The file's name, as the id of a string.
    pub file: u64,
    pub line: u64,
}

/// The clocks at one moment of a generation.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    /// The trace's own time in nanoseconds.
    pub trace: i64,
    /// CLOCK_MONOTONIC in nanoseconds.
    pub mono: u64,
    /// CLOCK_REALTIME in nanoseconds.
    pub wall: u64,
}

/// A sample of a CPU profile.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub time: u64,
    pub m: u64,
    pub p: u64,
    pub g: u64,
    pub stack: u64,
    /// Where the sample is in the file.
    pub offset: u64,
    /// How many bytes it takes there.
    pub size: u32,
}

/// How many bytes of a generation are no events: by what they are.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Overhead {
    /// Headers of batches, and ends of generations.
    pub headers: u64,
    pub strings: u64,
    pub stacks: u64,
    pub sync: u64,
    pub experiments: u64,
}

/// What the events of a generation refer to.
#[derive(Default)]
pub struct Tables {
    /// The number of the generation.
    pub number: u64,
    pub overhead: Overhead,
    /// Nanoseconds in a unit of time.
    unit: f64,
    pub snapshot: Option<Snapshot>,
    strings: HashMap<u64, Box<str>>,
    stacks: HashMap<u64, Box<[u64]>>,
    frames: HashMap<u64, Frame>,
}

impl Tables {
    /// The string with this id; "" for 0 and for ids that a reader would have refused.
    pub fn string(&self, id: u64) -> &str {
        self.strings.get(&id).map_or("", |s| s)
    }

    pub fn has_string(&self, id: u64) -> bool {
        id == 0 || self.strings.contains_key(&id)
    }

    pub fn has_stack(&self, id: u64) -> bool {
        id == 0 || self.stacks.contains_key(&id)
    }

    /// The frames of the stack with this id, the innermost first; none for 0.
    pub fn stack(&self, id: u64) -> impl DoubleEndedIterator<Item = Frame> {
        let pcs = self.stacks.get(&id).map_or(&[][..], |stack| stack);
        pcs.iter().filter_map(|pc| self.frames.get(pc)).copied()
    }

    /// The function of the outermost frame of a stack.
    pub fn root(&self, stack: u64) -> Option<&str> {
        self.stack(stack).next_back().map(|frame| self.string(frame.function))
    }

    /// The function of the innermost frame of a stack.
    pub fn leaf(&self, stack: u64) -> Option<&str> {
        self.stack(stack).next().map(|frame| self.string(frame.function))
    }

    /// Nanoseconds, of a time in the trace's units.
    pub fn nanoseconds(&self, units: u64) -> i64 {
        (units as f64 * self.unit) as i64
    }
}

/// A generation, as it is read.
pub struct Generation {
    pub tables: Tables,
    /// The batches of each M, in the order in which the M wrote them. The M's are in the order in which the file has them.
    pub ms: Vec<(u64, Vec<Batch>)>,
    places: HashMap<u64, usize>,
    pub samples: Vec<Sample>,
    snapshot: Option<(u64, u64, u64)>,
    /// Where the generation begins in the file.
    offset: u64,
}

impl Generation {
    pub fn new(number: u64, offset: u64) -> Generation {
        Generation {
            tables: Tables { number, ..Tables::default() },
            ms: Vec::new(),
            places: HashMap::new(),
            samples: Vec::new(),
            snapshot: None,
            offset,
        }
    }

    /// Adds a batch, which begins at `begin` in the file.
    pub fn add(&mut self, batch: Batch, begin: u64, version: Version) -> Result<(), Error> {
        self.tables.overhead.headers += batch.offset - begin;
        let size = batch.data.len() as u64;
        if batch.experimental {
            self.tables.overhead.experiments += size;
            return Ok(());
        }
        let sync = if version.has_snapshot() { batch::SYNC } else { batch::FREQUENCY };
        let mut bytes = Bytes::new(&batch.data, 0);
        let read = match batch.data.first() {
            Some(&batch::STRINGS) => {
                self.tables.overhead.strings += size;
                self.strings(&mut bytes)
            }
            Some(&batch::STACKS) => {
                self.tables.overhead.stacks += size;
                self.stacks(&mut bytes)
            }
            Some(&batch::SAMPLES) => {
                self.tables.overhead.headers += 1;
                self.samples(&mut bytes, batch.offset)
            }
            Some(&first) if first == sync => {
                self.tables.overhead.sync += size;
                self.sync(&mut bytes, batch.time, version)
            }
            _ => {
                let place = *self.places.entry(batch.m).or_insert_with(|| {
                    self.ms.push((batch.m, Vec::new()));
                    self.ms.len() - 1
                });
                self.ms[place].1.push(batch);
                return Ok(());
            }
        };
        let at = bytes.at() as u64;
        read.map_err(|what| Error::format(batch.offset + at, what))
    }

    fn strings(&mut self, bytes: &mut Bytes) -> Result<(), String> {
        bytes.byte()?;
        while !bytes.is_empty() {
            expect(bytes, batch::STRING, "a string")?;
            let id = bytes.number()?;
            let size = bytes.number()?;
            if size > MAX_STRING {
                return Err(format!("a string of {size} bytes: {MAX_STRING} are the most"));
            }
            let text = String::from_utf8_lossy(bytes.take(size as usize)?);
            if self.tables.strings.insert(id, text.into()).is_some() {
                return Err(format!("the string {id} comes a second time"));
            }
        }
        Ok(())
    }

    fn stacks(&mut self, bytes: &mut Bytes) -> Result<(), String> {
        bytes.byte()?;
        while !bytes.is_empty() {
            expect(bytes, batch::STACK, "a stack")?;
            let id = bytes.number()?;
            let count = bytes.number()?;
            if count > MAX_FRAMES {
                return Err(format!("a stack of {count} frames: {MAX_FRAMES} are the most"));
            }
            let mut pcs = Vec::with_capacity(count as usize);
            for _ in 0..count {
                let pc = bytes.number()?;
                let (function, file) = (bytes.number()?, bytes.number()?);
                let line = bytes.number()?;
                // As Go does: the first names of an address hold.
                self.tables.frames.entry(pc).or_insert(Frame { pc, function, file, line });
                pcs.push(pc);
            }
            if self.tables.stacks.insert(id, pcs.into()).is_some() {
                return Err(format!("the stack {id} comes a second time"));
            }
        }
        Ok(())
    }

    fn samples(&mut self, bytes: &mut Bytes, offset: u64) -> Result<(), String> {
        bytes.byte()?;
        while !bytes.is_empty() {
            let begin = bytes.at();
            expect(bytes, batch::SAMPLE, "a CPU sample")?;
            let time = bytes.number()?;
            let (m, p) = (bytes.number()?, bytes.number()?);
            let g = match bytes.number()? {
                0 => NONE,
                g => g,
            };
            let stack = bytes.number()?;
            let size = (bytes.at() - begin) as u32;
            let offset = offset + begin as u64;
            self.samples.push(Sample { time, m, p, g, stack, offset, size });
        }
        Ok(())
    }

    fn sync(&mut self, bytes: &mut Bytes, time: u64, version: Version) -> Result<(), String> {
        if version.has_snapshot() {
            bytes.byte()?;
        }
        while !bytes.is_empty() {
            match bytes.byte()? {
                batch::FREQUENCY => {
                    let frequency = bytes.number()?;
                    if frequency == 0 {
                        return Err("a frequency of 0".to_string());
                    }
                    if self.tables.unit != 0.0 {
                        return Err("the generation has a second frequency".to_string());
                    }
                    self.tables.unit = 1.0 / (frequency as f64 / 1e9);
                }
                batch::CLOCK_SNAPSHOT if version.has_snapshot() => {
                    if self.snapshot.is_some() {
                        return Err(
                            "the generation has a second snapshot of the clocks".to_string()
                        );
                    }
                    let at = time.saturating_add(bytes.number()?);
                    let mono = bytes.number()?;
                    let (seconds, nanoseconds) = (bytes.number()?, bytes.number()?);
                    let wall = seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds);
                    self.snapshot = Some((at, mono, wall));
                }
                other => return Err(format!("an event {other} in a sync batch")),
            }
        }
        Ok(())
    }

    /// Checks the tables of a generation that has been read to its end.
    pub fn complete(&mut self, version: Version) -> Result<(), Error> {
        let lacks = |what: &str| {
            let number = self.tables.number;
            Error::format(
                self.offset,
                format!("the generation {number}, which begins here, {what}"),
            )
        };
        if self.tables.unit == 0.0 {
            return Err(lacks("has no frequency"));
        }
        if version.has_snapshot() && self.snapshot.is_none() {
            return Err(lacks("has no snapshot of the clocks"));
        }
        let strings = |frame: &&Frame| {
            !self.tables.has_string(frame.function) || !self.tables.has_string(frame.file)
        };
        if let Some(frame) = self.tables.frames.values().find(strings) {
            return Err(lacks(&format!("lacks a string of the frame at {:#x}", frame.pc)));
        }
        self.tables.snapshot = self.snapshot.map(|(at, mono, wall)| Snapshot {
            trace: self.tables.nanoseconds(at),
            mono,
            wall,
        });
        self.samples.sort_by_key(|sample| sample.time);
        Ok(())
    }
}

fn expect(bytes: &mut Bytes, kind: u8, what: &str) -> Result<(), String> {
    match bytes.byte()? {
        byte if byte == kind => Ok(()),
        byte => Err(format!("the byte {byte} where {what} should begin")),
    }
}
