//! Converts a trace for Perfetto: to its `TrackEvent` protocol.
//!
//! | track | what is on it |
//! | --- | --- |
//! | a P | slices: the goroutines that it ran, by function; within them their system calls; wake-ups and logs as instants |
//! | a thread (an M) | slices: system calls, also after their P was taken; what it did without a P as instants |
//! | a counter | each key of a user log whose values are numbers; goroutines that can run; P's; the heap |
//! | the stopped world, the collector, a task | slices |
//! | a goroutine that has regions | slices: its regions |
//!
//! Arrows (flows) lead from what makes a goroutine runnable to where it runs next. Slices of a track nest. Packets are in the
//! order of their times, CLOCK_MONOTONIC if the trace says how its clock relates to it. Names are interned anew in each
//! generation, so that the memory does not grow with the trace.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};

use crate::change::{self, Change, GoState, ProcState};
use crate::generation::Tables;
use crate::names::Names;
use crate::proto::Message;
use crate::reader::Event;
use crate::wire::{Kind, NONE};

/// The process to which all tracks belong. A trace does not say the real one.
const PID: u64 = 1;
/// Nanoseconds: the counter of runnable goroutines is written at most once in this time.
const COUNTER_INTERVAL: i64 = 10_000;
/// `BUILTIN_CLOCK_REALTIME` and `BUILTIN_CLOCK_MONOTONIC`.
const REALTIME: u64 = 1;
const MONOTONIC: u64 = 3;

/// What kind of track it is: the upper byte of its UUID.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Track {
    Process = 1,
    Proc,
    Thread,
    Counter,
    World,
    Collector,
    Task,
    Goroutine,
    /// What has neither a P nor an M.
    Outside,
}

fn uuid(track: Track, id: u64) -> u64 {
    (track as u64) << 56 | id & ((1 << 56) - 1)
}

/// The fields of `TracePacket`, `TrackEvent`, `TrackDescriptor` and what is in them.
mod field {
    pub const TRACE_PACKET: u32 = 1;

    pub const PACKET_CLOCK_SNAPSHOT: u32 = 6;
    pub const PACKET_TIMESTAMP: u32 = 8;
    pub const PACKET_SEQUENCE_ID: u32 = 10;
    pub const PACKET_TRACK_EVENT: u32 = 11;
    pub const PACKET_INTERNED_DATA: u32 = 12;
    pub const PACKET_SEQUENCE_FLAGS: u32 = 13;
    pub const PACKET_TRACK_DESCRIPTOR: u32 = 60;
    pub const PACKET_DEFAULTS: u32 = 59;
    pub const DEFAULTS_CLOCK_ID: u32 = 58;

    pub const SNAPSHOT_CLOCKS: u32 = 1;
    pub const SNAPSHOT_PRIMARY: u32 = 2;
    pub const CLOCK_ID: u32 = 1;
    pub const CLOCK_TIMESTAMP: u32 = 2;

    pub const EVENT_ANNOTATIONS: u32 = 4;
    pub const EVENT_TYPE: u32 = 9;
    pub const EVENT_NAME_IID: u32 = 10;
    pub const EVENT_TRACK: u32 = 11;
    pub const EVENT_COUNTER: u32 = 30;
    pub const EVENT_DOUBLE_COUNTER: u32 = 44;
    pub const EVENT_FLOWS: u32 = 47;
    pub const EVENT_TERMINATING_FLOWS: u32 = 48;

    pub const ANNOTATION_NAME_IID: u32 = 1;
    pub const ANNOTATION_UINT: u32 = 3;
    pub const ANNOTATION_STRING_IID: u32 = 17;

    pub const INTERNED_EVENT_NAMES: u32 = 2;
    pub const INTERNED_ANNOTATION_NAMES: u32 = 3;
    pub const INTERNED_ANNOTATION_STRINGS: u32 = 29;
    pub const INTERNED_IID: u32 = 1;
    pub const INTERNED_TEXT: u32 = 2;

    pub const TRACK_UUID: u32 = 1;
    pub const TRACK_NAME: u32 = 2;
    pub const TRACK_PROCESS: u32 = 3;
    pub const TRACK_THREAD: u32 = 4;
    pub const TRACK_PARENT: u32 = 5;
    pub const TRACK_COUNTER: u32 = 8;
    pub const TRACK_CHILD_ORDERING: u32 = 11;
    pub const TRACK_RANK: u32 = 12;
    pub const PROCESS_PID: u32 = 1;
    pub const PROCESS_NAME: u32 = 6;
    pub const THREAD_PID: u32 = 1;
    pub const THREAD_TID: u32 = 2;
    pub const THREAD_NAME: u32 = 5;
}

/// `SEQ_INCREMENTAL_STATE_CLEARED` and `SEQ_NEEDS_INCREMENTAL_STATE`.
const CLEARED: u64 = 1;
const NEEDED: u64 = 2;
/// `TrackDescriptor.ChildTracksOrdering.EXPLICIT`.
const EXPLICIT: u64 = 3;

/// `TrackEvent.Type`.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Type {
    Begin = 1,
    End = 2,
    Instant = 3,
    Counter = 4,
}

#[derive(Clone, Copy)]
enum Count {
    Integer(i64),
    Fraction(f64),
}

/// What an event is about, and its number.
#[derive(Clone, Copy)]
enum Annotation<'a> {
    Number(&'static str, u64),
    Text(&'static str, &'a str),
}

/// Texts that stand for numbers, until the next generation.
struct Interned {
    field: u32,
    iids: HashMap<Box<str>, u64>,
}

impl Interned {
    fn new(field: u32) -> Interned {
        Interned { field, iids: HashMap::new() }
    }

    /// The number of a text, which is defined in `data` if it is new.
    fn get(&mut self, text: &str, data: &mut Message) -> u64 {
        if let Some(&iid) = self.iids.get(text) {
            return iid;
        }
        let iid = self.iids.len() as u64 + 1;
        self.iids.insert(text.into(), iid);
        data.message(self.field, |entry| {
            entry.number(field::INTERNED_IID, iid).string(field::INTERNED_TEXT, text);
        });
        iid
    }
}

/// The open slices of a P.
#[derive(Default)]
struct Row {
    g: Option<u64>,
    /// Within the goroutine's slice: its system call.
    call: bool,
}

/// Where a goroutine is.
#[derive(Clone, Copy)]
struct Place {
    state: GoState,
    /// The M of its system call.
    m: u64,
}

/// Writes a trace for Perfetto to `out`.
pub struct Converter<W: Write> {
    out: W,
    process: String,
    names: Names,
    labels: HashMap<u64, Box<str>>,
    event_names: Interned,
    annotation_names: Interned,
    annotation_strings: Interned,
    described: HashSet<u64>,
    counters: HashMap<Box<str>, u64>,
    gs: HashMap<u64, Place>,
    rows: BTreeMap<u64, Row>,
    /// The threads that have an open system call.
    calls: BTreeMap<u64, u64>,
    /// How many slices of the stopped world are open.
    stopped: u64,
    collects: bool,
    tasks: HashSet<u64>,
    /// How many regions of a goroutine are open.
    regions: BTreeMap<u64, u64>,
    /// The arrows that lead to a goroutine's next slice.
    flows: HashMap<u64, u64>,
    last_flow: u64,
    runnable: i64,
    /// The last value of the counter of runnable goroutines, and when it was written.
    shown: (i64, i64),
    /// CLOCK_MONOTONIC minus the trace's clock; None before the first generation.
    offset: Option<i64>,
    /// The next packet forgets the interned texts.
    clear: bool,
    last: i64,
    message: Message,
}

impl<W: Write> Converter<W> {
    /// `process`: the name of the process.
    pub fn new(out: W, process: &str) -> Converter<W> {
        Converter {
            out,
            process: process.to_string(),
            names: Names::default(),
            labels: HashMap::new(),
            event_names: Interned::new(field::INTERNED_EVENT_NAMES),
            annotation_names: Interned::new(field::INTERNED_ANNOTATION_NAMES),
            annotation_strings: Interned::new(field::INTERNED_ANNOTATION_STRINGS),
            described: HashSet::new(),
            counters: HashMap::new(),
            gs: HashMap::new(),
            rows: BTreeMap::new(),
            calls: BTreeMap::new(),
            stopped: 0,
            collects: false,
            tasks: HashSet::new(),
            regions: BTreeMap::new(),
            flows: HashMap::new(),
            last_flow: 0,
            runnable: 0,
            shown: (0, i64::MIN),
            offset: None,
            clear: true,
            last: 0,
            message: Message::default(),
        }
    }

    /// A generation begins: its names are interned anew.
    pub fn generation(&mut self, tables: &Tables) -> io::Result<()> {
        for interned in
            [&mut self.event_names, &mut self.annotation_names, &mut self.annotation_strings]
        {
            interned.iids.clear();
        }
        self.clear = true;
        if self.offset.is_some() {
            return Ok(());
        }
        let mut clocks = vec![(MONOTONIC, 0)];
        let mut offset = 0;
        if let Some(snapshot) = tables.snapshot {
            offset =
                i64::try_from(snapshot.mono).unwrap_or(i64::MAX).saturating_sub(snapshot.trace);
            clocks = vec![(MONOTONIC, snapshot.mono), (REALTIME, snapshot.wall)];
        }
        self.offset = Some(offset);
        let begin = clocks[0].1;
        self.packet(None, |packet| {
            packet.number(field::PACKET_TIMESTAMP, begin);
            packet.message(field::PACKET_CLOCK_SNAPSHOT, |message| {
                for (id, time) in clocks {
                    message.message(field::SNAPSHOT_CLOCKS, |clock| {
                        clock.number(field::CLOCK_ID, id).number(field::CLOCK_TIMESTAMP, time);
                    });
                }
                message.number(field::SNAPSHOT_PRIMARY, MONOTONIC);
            });
        })?;
        let name = self.process.clone();
        self.describe(Track::Process, 0, |track| {
            track.number(field::TRACK_CHILD_ORDERING, EXPLICIT);
            track.message(field::TRACK_PROCESS, |process| {
                process.number(field::PROCESS_PID, PID).string(field::PROCESS_NAME, &name);
            });
        })?;
        Ok(())
    }

    /// Converts an event.
    pub fn event(&mut self, event: &Event, tables: &Tables) -> io::Result<()> {
        self.names.learn(event, tables);
        self.count_runnable(event.time)?;
        self.last = event.time;
        match event.kind {
            Kind::GoUnblock | Kind::GoSwitch | Kind::GoSwitchDestroy => {
                self.arrow(event, "wake", event.args[0])?;
            }
            Kind::GoCreate => self.arrow(event, "go", event.args[0])?,
            _ => self.annotation(event, tables)?,
        }
        let why = match event.kind {
            Kind::GoStop | Kind::GoBlock => Some(tables.string(event.args[0])),
            _ => None,
        };
        let call = match event.kind {
            Kind::GoSyscallBegin => tables.leaf(event.args[1]),
            Kind::GoStatusStack => tables.leaf(event.args[3]),
            _ => None,
        };
        for change in change::of(event) {
            match change {
                Change::G { g, to, m, p } => self.change_g(g, to, m, p, why, call)?,
                Change::P { p, to: ProcState::Idle | ProcState::Abandoned } => {
                    self.close_row(p, None)?;
                }
                Change::P { .. } => {}
            }
        }
        self.names.forget(event);
        Ok(())
    }

    /// Closes all slices.
    pub fn finish(&mut self) -> io::Result<()> {
        self.count_runnable(i64::MAX)?;
        for p in self.rows.keys().copied().collect::<Vec<_>>() {
            self.close_row(p, None)?;
        }
        for m in std::mem::take(&mut self.calls).into_keys() {
            self.end(uuid(Track::Thread, m), None)?;
        }
        for (g, count) in std::mem::take(&mut self.regions) {
            for _ in 0..count {
                self.end(uuid(Track::Goroutine, g), None)?;
            }
        }
        let mut tasks: Vec<_> = std::mem::take(&mut self.tasks).into_iter().collect();
        tasks.sort_unstable();
        for task in tasks {
            self.end(uuid(Track::Task, task), None)?;
        }
        for _ in 0..std::mem::take(&mut self.stopped) {
            self.end(uuid(Track::World, 0), None)?;
        }
        if std::mem::take(&mut self.collects) {
            self.end(uuid(Track::Collector, 0), None)?;
        }
        self.out.flush()
    }

    // What events mean.

    fn change_g(
        &mut self,
        g: u64,
        to: Option<GoState>,
        m: u64,
        p: u64,
        why: Option<&str>,
        call: Option<&str>,
    ) -> io::Result<()> {
        let old = self.gs.get(&g).copied();
        let was = old.map(|place| place.state);
        if was == to {
            return Ok(());
        }
        self.runnable += i64::from(to == Some(GoState::Runnable));
        self.runnable -= i64::from(was == Some(GoState::Runnable));
        let has_p = self.rows.get(&p).is_some_and(|row| row.g == Some(g));
        if was == Some(GoState::Syscall) {
            if let Some(place) = old
                && self.calls.get(&place.m) == Some(&g)
            {
                self.calls.remove(&place.m);
                self.end(uuid(Track::Thread, place.m), None)?;
            }
            if has_p {
                self.close_call(p)?;
            }
        }
        match to {
            Some(GoState::Running) if !has_p && p != NONE => {
                self.close_row(p, None)?;
                let track = self.proc(p)?;
                let name = self.name(g);
                let flow = self.flows.remove(&g);
                self.begin(track, &name, &[Annotation::Number("goroutine", g)], flow)?;
                self.rows.entry(p).or_default().g = Some(g);
            }
            Some(GoState::Syscall) => {
                let name = call.unwrap_or("system call");
                let thread = self.thread(m)?;
                if m != NONE && !self.calls.contains_key(&m) {
                    self.begin(thread, name, &[Annotation::Number("goroutine", g)], None)?;
                    self.calls.insert(m, g);
                }
                if has_p {
                    self.begin(uuid(Track::Proc, p), name, &[], None)?;
                    self.rows.entry(p).or_default().call = true;
                }
            }
            Some(GoState::Running) => {}
            Some(GoState::Runnable | GoState::Waiting) | None if has_p => {
                self.close_row(p, why)?;
            }
            Some(GoState::Runnable | GoState::Waiting) | None => {}
        }
        match to {
            Some(state) => {
                self.gs.insert(g, Place { state, m });
            }
            None => {
                self.gs.remove(&g);
                self.flows.remove(&g);
                self.labels.remove(&g);
                let track = uuid(Track::Goroutine, g);
                for _ in 0..self.regions.remove(&g).unwrap_or(0) {
                    self.end(track, None)?;
                }
                self.described.remove(&track);
            }
        }
        Ok(())
    }

    /// The arrow to a goroutine's next slice begins here.
    fn arrow(&mut self, event: &Event, verb: &str, g: u64) -> io::Result<()> {
        let track = self.track_of(event)?;
        self.last_flow += 1;
        let flow = self.last_flow;
        let name = format!("{verb} {}", self.names.get(g));
        self.flows.insert(g, flow);
        self.track_event(
            Type::Instant,
            track,
            Some(&name),
            &[Annotation::Number("goroutine", g)],
            |event| {
                event.fixed64(field::EVENT_FLOWS, flow);
            },
        )
    }

    fn annotation(&mut self, event: &Event, tables: &Tables) -> io::Result<()> {
        let [a, b, c, _] = event.args;
        let number = |value: u64| Count::Integer(i64::try_from(value).unwrap_or(i64::MAX));
        match event.kind {
            Kind::ProcsChange => self.count("P's", number(a)),
            Kind::HeapAlloc => self.count("heap (bytes)", number(a)),
            Kind::HeapGoal => self.count("heap goal (bytes)", number(a)),
            Kind::GoLabel => {
                let label = tables.string(a);
                match label {
                    "" => self.labels.remove(&event.g),
                    label => self.labels.insert(event.g, label.into()),
                };
                Ok(())
            }
            Kind::UserLog => {
                let (key, value) = (tables.string(b), tables.string(c));
                match count_of(value) {
                    Some(value) => self.count(key, value),
                    None if key.is_empty() => self.instant(event, value),
                    None => self.instant(event, &format!("{key}: {value}")),
                }
            }
            Kind::CPUSample => {
                let function = tables.leaf(a).unwrap_or("no stack");
                self.instant(event, &format!("CPU sample: {function}"))
            }
            Kind::STWBegin => {
                let track = self.simple(Track::World, 0, "stopped world")?;
                self.stopped += 1;
                self.begin(
                    track,
                    tables.string(a),
                    &[Annotation::Number("goroutine", event.g)],
                    None,
                )
            }
            Kind::STWEnd if self.stopped > 0 => {
                self.stopped -= 1;
                self.end(uuid(Track::World, 0), None)
            }
            Kind::GCBegin | Kind::GCActive if !self.collects => {
                let track = self.simple(Track::Collector, 0, "garbage collector")?;
                self.collects = true;
                self.begin(track, "mark", &[], None)
            }
            Kind::GCEnd if self.collects => {
                self.collects = false;
                self.end(uuid(Track::Collector, 0), None)
            }
            Kind::UserTaskBegin => {
                let name = tables.string(c);
                let track = self.simple(Track::Task, a, &format!("task {name}"))?;
                if !self.tasks.insert(a) {
                    return Ok(());
                }
                let args =
                    [Annotation::Number("task", a), Annotation::Number("goroutine", event.g)];
                self.begin(track, name, &args, None)
            }
            Kind::UserTaskEnd if self.tasks.remove(&a) => {
                self.described.remove(&uuid(Track::Task, a));
                self.end(uuid(Track::Task, a), None)
            }
            Kind::UserRegionBegin => {
                let name = format!("G{} {}", event.g, self.names.get(event.g));
                let track = self.simple(Track::Goroutine, event.g, &name)?;
                *self.regions.entry(event.g).or_default() += 1;
                self.begin(track, tables.string(b), &[Annotation::Number("task", a)], None)
            }
            Kind::UserRegionEnd => match self.regions.entry(event.g) {
                Entry::Vacant(_) => Ok(()),
                Entry::Occupied(mut open) => {
                    *open.get_mut() -= 1;
                    if *open.get() == 0 {
                        open.remove();
                    }
                    self.end(uuid(Track::Goroutine, event.g), None)
                }
            },
            _ => Ok(()),
        }
    }

    fn close_call(&mut self, p: u64) -> io::Result<()> {
        match self.rows.get_mut(&p) {
            Some(row) if row.call => row.call = false,
            _ => return Ok(()),
        }
        self.end(uuid(Track::Proc, p), None)
    }

    fn close_row(&mut self, p: u64, why: Option<&str>) -> io::Result<()> {
        self.close_call(p)?;
        match self.rows.get_mut(&p).and_then(|row| row.g.take()) {
            Some(_) => self.end(uuid(Track::Proc, p), why),
            None => Ok(()),
        }
    }

    fn name(&mut self, g: u64) -> String {
        let name = self.names.get(g);
        match self.labels.get(&g) {
            Some(label) => format!("{name} ({label})"),
            None => name.to_string(),
        }
    }

    /// Writes the counter of runnable goroutines as it is before an event, unless it has just been written.
    fn count_runnable(&mut self, now: i64) -> io::Result<()> {
        let (value, written) = self.shown;
        let due = |from: i64, to: i64| to.saturating_sub(from) >= COUNTER_INTERVAL;
        if self.runnable != value && (due(written, self.last) || due(self.last, now)) {
            self.shown = (self.runnable, self.last);
            self.count("runnable goroutines", Count::Integer(self.runnable))?;
        }
        Ok(())
    }

    // Tracks.

    /// Where an event happens: on its P, else on its thread.
    fn track_of(&mut self, event: &Event) -> io::Result<u64> {
        match (event.p, event.m) {
            (NONE, NONE) => self.simple(Track::Outside, 0, "no thread"),
            (NONE, m) => self.thread(m),
            (p, _) => self.proc(p),
        }
    }

    fn proc(&mut self, p: u64) -> io::Result<u64> {
        self.describe(Track::Proc, p, |track| {
            track.string(field::TRACK_NAME, &format!("P {p}"));
            track.number(field::TRACK_PARENT, uuid(Track::Process, 0));
            track.number(field::TRACK_RANK, p.min(1 << 20));
        })
    }

    fn thread(&mut self, m: u64) -> io::Result<u64> {
        self.describe(Track::Thread, m, |track| {
            track.message(field::TRACK_THREAD, |thread| {
                thread
                    .number(field::THREAD_PID, PID)
                    .number(field::THREAD_TID, m & (i64::MAX as u64));
                thread.string(field::THREAD_NAME, &format!("M {m}"));
            });
        })
    }

    /// A track that has a name and nothing else, below the process.
    fn simple(&mut self, kind: Track, id: u64, name: &str) -> io::Result<u64> {
        self.describe(kind, id, |track| {
            track.string(field::TRACK_NAME, name);
            track.number(field::TRACK_PARENT, uuid(Track::Process, 0));
            track.number(field::TRACK_RANK, (1 << 21) + kind as u64);
        })
    }

    fn describe(
        &mut self,
        kind: Track,
        id: u64,
        fill: impl FnOnce(&mut Message),
    ) -> io::Result<u64> {
        let uuid = uuid(kind, id);
        if self.described.insert(uuid) {
            self.packet(None, |packet| {
                packet.message(field::PACKET_TRACK_DESCRIPTOR, |track| {
                    track.number(field::TRACK_UUID, uuid);
                    fill(track);
                });
            })?;
        }
        Ok(uuid)
    }

    // Events of tracks.

    fn begin(
        &mut self,
        track: u64,
        name: &str,
        annotations: &[Annotation],
        flow: Option<u64>,
    ) -> io::Result<()> {
        self.track_event(Type::Begin, track, Some(name), annotations, |event| {
            if let Some(flow) = flow {
                event.fixed64(field::EVENT_TERMINATING_FLOWS, flow);
            }
        })
    }

    /// Ends the innermost open slice of a track. `why` the goroutine left its P.
    fn end(&mut self, track: u64, why: Option<&str>) -> io::Result<()> {
        match why {
            Some(why) => {
                self.track_event(Type::End, track, None, &[Annotation::Text("end", why)], |_| ())
            }
            None => self.track_event(Type::End, track, None, &[], |_| ()),
        }
    }

    fn instant(&mut self, event: &Event, name: &str) -> io::Result<()> {
        let track = self.track_of(event)?;
        self.track_event(Type::Instant, track, Some(name), &[], |_| ())
    }

    fn count(&mut self, name: &str, value: Count) -> io::Result<()> {
        let next = self.counters.len() as u64;
        let id = match self.counters.get(name) {
            Some(&id) => id,
            None => *self.counters.entry(name.into()).or_insert(next),
        };
        let track = self.describe(Track::Counter, id, |track| {
            track.string(field::TRACK_NAME, name);
            track.number(field::TRACK_PARENT, uuid(Track::Process, 0));
            track.number(field::TRACK_RANK, (1 << 21) + Track::Counter as u64);
            track.message(field::TRACK_COUNTER, |_| ());
        })?;
        self.track_event(Type::Counter, track, None, &[], |event| {
            match value {
                Count::Integer(value) => event.number(field::EVENT_COUNTER, value as u64),
                Count::Fraction(value) => event.double(field::EVENT_DOUBLE_COUNTER, value),
            };
        })
    }

    fn track_event(
        &mut self,
        kind: Type,
        track: u64,
        name: Option<&str>,
        annotations: &[Annotation],
        more: impl FnOnce(&mut Message),
    ) -> io::Result<()> {
        let mut data = Message::default();
        // A packet that forgets what is interned comes before what is interned anew.
        let name = name.map(|name| self.event_names.get(name, &mut data));
        let annotations: Vec<_> = annotations
            .iter()
            .map(|&annotation| {
                let (key, value) = match annotation {
                    Annotation::Number(key, value) => (key, (field::ANNOTATION_UINT, value)),
                    Annotation::Text(key, text) => {
                        let iid = self.annotation_strings.get(text, &mut data);
                        (key, (field::ANNOTATION_STRING_IID, iid))
                    }
                };
                (self.annotation_names.get(key, &mut data), value)
            })
            .collect();
        self.packet(Some(self.last), |packet| {
            if !data.bytes().is_empty() {
                packet.data(field::PACKET_INTERNED_DATA, data.bytes());
            }
            packet.message(field::PACKET_TRACK_EVENT, |event| {
                event.number(field::EVENT_TYPE, kind as u64).number(field::EVENT_TRACK, track);
                if let Some(iid) = name {
                    event.number(field::EVENT_NAME_IID, iid);
                }
                for (key, (number, value)) in annotations {
                    event.message(field::EVENT_ANNOTATIONS, |annotation| {
                        annotation.number(field::ANNOTATION_NAME_IID, key).number(number, value);
                    });
                }
                more(event);
            });
        })
    }

    fn packet(&mut self, time: Option<i64>, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
        self.message.clear();
        let clear = std::mem::take(&mut self.clear);
        let time = time.map(|time| time.saturating_add(self.offset.unwrap_or(0)));
        self.message.message(field::TRACE_PACKET, |packet| {
            if let Some(time) = time {
                packet.number(field::PACKET_TIMESTAMP, u64::try_from(time).unwrap_or(0));
            }
            packet.number(field::PACKET_SEQUENCE_ID, 1);
            packet.number(
                field::PACKET_SEQUENCE_FLAGS,
                if clear { CLEARED | NEEDED } else { NEEDED },
            );
            if clear {
                packet.message(field::PACKET_DEFAULTS, |defaults| {
                    defaults.number(field::DEFAULTS_CLOCK_ID, MONOTONIC);
                });
            }
            fill(packet);
        });
        self.out.write_all(self.message.bytes())
    }
}

/// The number that a text is, if it is one.
fn count_of(text: &str) -> Option<Count> {
    if let Ok(value) = text.parse() {
        return Some(Count::Integer(value));
    }
    text.parse().ok().filter(|value: &f64| value.is_finite()).map(Count::Fraction)
}
