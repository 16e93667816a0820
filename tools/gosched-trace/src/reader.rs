//! Merges the batches of all M's of a generation into one order of events.
//!
//! The events of one M are in order. Among the next events of all M's that can happen ([`crate::order`]) the earliest comes
//! first. An M whose next event can't happen yet is put aside until what the event waits for has changed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io::Read;

use crate::error::{Cause, Error};
use crate::generation::{Batch, Generation, Piece, Sample, Source, Tables, piece};
use crate::order::{Order, Raw, Step, Wait, check_tables};
use crate::wire::{Bytes, Kind, MAX_ARGS, NONE, Version};

/// An event of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub kind: Kind,
    /// Nanoseconds of the trace's clock. Each event is later than the one before.
    pub time: i64,
    /// Who has written the event; [`NONE`] for none.
    pub m: u64,
    /// The P of the M just before the event; [`NONE`] for none.
    pub p: u64,
    /// The goroutine of the M just before the event; [`NONE`] for none.
    pub g: u64,
    /// What [`Kind::args`] lists.
    pub args: [u64; MAX_ARGS],
    /// Where the event is in the file.
    pub offset: u64,
    /// How many bytes it takes there.
    pub size: u32,
}

/// What [`Reader::next`] reads.
#[derive(Clone, Copy, Debug)]
pub enum Item {
    /// A generation begins; [`Reader::tables`] are its tables.
    Generation,
    Event(Event),
}

/// A place in the batches of an M: its next event has been read.
struct Cursor {
    m: u64,
    batches: VecDeque<Batch>,
    /// How much of the first batch has been read.
    at: usize,
    /// The time of the event in the trace's units.
    time: u64,
    raw: Raw,
    offset: u64,
    size: u32,
}

impl Cursor {
    fn new(m: u64, batches: Vec<Batch>) -> Cursor {
        let raw = Raw { kind: Kind::ProcStop, args: [0; MAX_ARGS] };
        Cursor { m, batches: batches.into(), at: 0, time: 0, raw, offset: 0, size: 0 }
    }

    /// Reads the next event; false if there is none.
    fn step(&mut self) -> Result<bool, Error> {
        while self.batches.front().is_some_and(|batch| self.at >= batch.data.len()) {
            self.batches.pop_front();
            self.at = 0;
        }
        let Some(batch) = self.batches.front() else { return Ok(false) };
        if self.at == 0 {
            self.time = batch.time;
        }
        let offset = batch.offset + self.at as u64;
        let mut bytes = Bytes::new(&batch.data, self.at);
        let mut read = || {
            let number = bytes.byte()?;
            let kind = Kind::timed(number).ok_or_else(|| format!("{number} is no event"))?;
            let delta = bytes.number()?;
            let mut args = [0; MAX_ARGS];
            for arg in args.iter_mut().take(kind.args().len()) {
                *arg = bytes.number()?;
            }
            Ok((Raw { kind, args }, delta))
        };
        let (raw, delta) = read().map_err(|what: String| Error::format(offset, what))?;
        self.raw = raw;
        self.time = self.time.saturating_add(delta);
        self.offset = offset;
        self.size = (bytes.at() - self.at) as u32;
        self.at = bytes.at();
        Ok(true)
    }
}

/// Reads a trace event by event. It holds one generation at a time.
pub struct Reader<R> {
    source: Source<R>,
    version: Version,
    order: Order,
    tables: Tables,
    /// The M's whose events haven't all been read.
    cursors: HashMap<usize, Cursor>,
    /// Those of them whose next event may be possible: by its time and their place.
    ready: BinaryHeap<Reverse<(u64, usize)>>,
    /// The others, by what their next event waits for.
    aside: HashMap<Wait, Vec<usize>>,
    samples: VecDeque<Sample>,
    /// The first batch of the next generation and where it begins: in formats without a mark at the end.
    spilled: Option<(Batch, u64)>,
    /// What is wrong behind the generation that is being read.
    pending: Option<Error>,
    last: i64,
    done: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub fn new(input: R) -> Result<Reader<R>, Error> {
        let mut source = Source::new(input);
        let header = source.take(Version::HEADER as u64)?;
        let version = Version::parse(&header).map_err(|what| Error::format(0, what))?;
        Ok(Reader {
            source,
            version,
            order: Order::new(),
            tables: Tables::default(),
            cursors: HashMap::new(),
            ready: BinaryHeap::new(),
            aside: HashMap::new(),
            samples: VecDeque::new(),
            spilled: None,
            pending: None,
            last: i64::MIN,
            done: false,
        })
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// The tables of the generation to which the last item belongs.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// How many bytes have been read.
    pub fn offset(&self) -> u64 {
        self.source.offset()
    }

    /// The next item; None at the end. After an error there is nothing more to read.
    #[expect(clippy::should_implement_trait, reason = "its items don't outlive a generation")]
    pub fn next(&mut self) -> Result<Option<Item>, Error> {
        if self.done {
            return Ok(None);
        }
        let item = self.item();
        self.done = !matches!(item, Ok(Some(_)));
        item
    }

    fn item(&mut self) -> Result<Option<Item>, Error> {
        if let Some(event) = self.event()? {
            return Ok(Some(Item::Event(event)));
        }
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        let Some(generation) = self.generation()? else { return Ok(None) };
        self.install(generation)?;
        Ok(Some(Item::Generation))
    }

    /// The next generation; None at the end of the file.
    fn generation(&mut self) -> Result<Option<Generation>, Error> {
        let mut generation: Option<Generation> = None;
        if let Some((batch, begin)) = self.spilled.take() {
            let mut first = Generation::new(batch.generation, begin);
            first.add(batch, begin, self.version)?;
            generation = Some(first);
        }
        let marks = self.version.marks_the_end();
        loop {
            let begin = self.source.offset();
            let batch = match piece(&mut self.source) {
                Ok(Piece::Batch(batch)) => batch,
                Ok(Piece::EndOfGeneration) if marks => {
                    let mut ended = generation.unwrap_or_else(|| Generation::new(0, begin));
                    ended.tables.overhead.headers += 1;
                    ended.complete(self.version)?;
                    return Ok(Some(ended));
                }
                Ok(Piece::EndOfGeneration) => {
                    return Err(Error::format(begin, "a batch can't begin with the byte 52"));
                }
                Ok(Piece::EndOfFile) => match generation {
                    None => return Ok(None),
                    Some(generation) if marks => return Err(unfinished(&generation, begin)),
                    Some(mut generation) => {
                        generation.complete(self.version)?;
                        return Ok(Some(generation));
                    }
                },
                // Without a mark at the end, what has been read of the generation may be all of it.
                Err(error) if !marks && error.is_truncated() => {
                    let Some(mut generation) = generation else { return Err(error) };
                    if generation.complete(self.version).is_err() {
                        return Err(error);
                    }
                    self.pending = Some(error);
                    return Ok(Some(generation));
                }
                Err(error) => return Err(error),
            };
            if batch.generation == 0 {
                return Err(Error::format(begin, "a batch of the generation 0"));
            }
            let number = batch.generation;
            let current = generation.get_or_insert_with(|| Generation::new(number, begin));
            if number != current.tables.number {
                if !marks && current.tables.number.checked_add(1) == Some(number) {
                    self.spilled = Some((batch, begin));
                    current.complete(self.version)?;
                    return Ok(generation);
                }
                let what = format!(
                    "a batch of the generation {number} within the generation {}",
                    current.tables.number
                );
                return Err(Error::format(begin, what));
            }
            current.add(batch, begin, self.version)?;
        }
    }

    fn install(&mut self, generation: Generation) -> Result<(), Error> {
        self.order.begin(generation.tables.number);
        self.tables = generation.tables;
        self.samples = generation.samples.into();
        for (place, (m, batches)) in generation.ms.into_iter().enumerate() {
            let mut cursor = Cursor::new(m, batches);
            if cursor.step()? {
                self.ready.push(Reverse((cursor.time, place)));
                self.cursors.insert(place, cursor);
            }
        }
        Ok(())
    }

    /// The next event of the generation; None at its end.
    fn event(&mut self) -> Result<Option<Event>, Error> {
        loop {
            let next = self.ready.peek().map(|Reverse((time, _))| *time);
            let sampled = |sample: &Sample| next.is_none_or(|time| sample.time < time);
            if self.samples.front().is_some_and(sampled) {
                return self.sample().map(Some);
            }
            let Some(Reverse((_, place))) = self.ready.pop() else {
                return if self.cursors.is_empty() { Ok(None) } else { Err(self.stuck()) };
            };
            let Some(cursor) = self.cursors.get_mut(&place) else { continue };
            let offset = cursor.offset;
            let name = cursor.raw.kind.name();
            let wrong = |what: String| Error {
                offset,
                cause: Cause::Order(format!("{name} can't happen here: {what}")),
            };
            check_tables(&cursor.raw, &self.tables)
                .map_err(|what| Error::format(offset, format!("{name}: {what}")))?;
            let step =
                self.order.advance(&mut cursor.raw, cursor.m, &self.tables).map_err(wrong)?;
            let context = match step {
                Step::Done(context) => context,
                Step::Wait(wait) => {
                    self.aside.entry(wait).or_default().push(place);
                    continue;
                }
            };
            let event = Event {
                kind: cursor.raw.kind,
                time: self.tables.nanoseconds(cursor.time).max(self.last.saturating_add(1)),
                m: context.m,
                p: context.p,
                g: context.g,
                args: cursor.raw.args,
                offset,
                size: cursor.size,
            };
            self.last = event.time;
            if cursor.step()? {
                self.ready.push(Reverse((cursor.time, place)));
            } else {
                self.cursors.remove(&place);
            }
            for wait in &self.order.touched {
                for place in self.aside.remove(wait).into_iter().flatten() {
                    if let Some(cursor) = self.cursors.get(&place) {
                        self.ready.push(Reverse((cursor.time, place)));
                    }
                }
            }
            return Ok(Some(event));
        }
    }

    fn sample(&mut self) -> Result<Event, Error> {
        let Some(sample) = self.samples.pop_front() else { unreachable!("there is a sample") };
        let raw = Raw { kind: Kind::CPUSample, args: [sample.stack, 0, 0, 0] };
        check_tables(&raw, &self.tables)
            .map_err(|what| Error::format(sample.offset, format!("CPUSample: {what}")))?;
        self.last = self.tables.nanoseconds(sample.time).max(self.last.saturating_add(1));
        Ok(Event {
            kind: raw.kind,
            time: self.last,
            m: sample.m,
            p: sample.p,
            g: sample.g,
            args: raw.args,
            offset: sample.offset,
            size: sample.size,
        })
    }

    /// What is wrong when no next event of any M can happen.
    fn stuck(&self) -> Error {
        let mut waiting: Vec<_> = self
            .aside
            .iter()
            .flat_map(|(wait, places)| places.iter().map(move |place| (wait, place)))
            .filter_map(|(wait, place)| self.cursors.get(place).map(|cursor| (cursor, wait)))
            .collect();
        waiting.sort_by_key(|(cursor, _)| (cursor.time, cursor.offset));
        let offset = waiting.first().map_or(self.offset(), |(cursor, _)| cursor.offset);
        let first: Vec<_> = waiting
            .iter()
            .take(3)
            .map(|(cursor, wait)| format!("{} {}", words(cursor), reason(**wait)))
            .collect();
        let more = match waiting.len() {
            0..=3 => String::new(),
            count => format!("; and {} M's more", count - 3),
        };
        let what = format!("no event can happen next: {}{more}", first.join("; "));
        Error { offset, cause: Cause::Order(what) }
    }
}

fn words(cursor: &Cursor) -> String {
    let name = cursor.raw.kind.name();
    match cursor.m {
        NONE => format!("the {name} of no M at byte {}", cursor.offset),
        m => format!("the {name} of M {m} at byte {}", cursor.offset),
    }
}

fn reason(wait: Wait) -> String {
    match wait {
        Wait::G(g, seq) => {
            format!("waits for goroutine {g} (its number {seq} is not next, or its state is wrong)")
        }
        Wait::P(p, seq) => {
            format!("waits for P {p} (its number {seq} is not next, or its state is wrong)")
        }
        Wait::M(m) => format!("waits until M {m} has lost its P"),
        Wait::Gc(seq) => format!("waits for the collector's number {seq}"),
    }
}

fn unfinished(generation: &Generation, offset: u64) -> Error {
    let number = generation.tables.number;
    let what = format!("the file ends within the generation {number}, which is left out");
    Error { offset, cause: Cause::Truncated(what) }
}
