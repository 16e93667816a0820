//! Sessions: the thread that ends generations, writes traces, and keeps what the flight recorder
//! keeps.

use super::batch::{self, Batch};
use super::clock::{self, Moment};
use super::format::{self, NO_THREAD, event, push_batch_header, push_number};
use super::model::{self, GoRef, GoState, Stream};
use super::tables::Tables;
use super::{LOST, probes, registry, stacks, strings};
use crate::backtrace::unwind;
use crate::os::locked::Locked;
use crate::os::spin::LongLock;
use crate::os::thread::{self, Thread};
use crate::os::{self, file, futex, time};
use crate::stack::on_large;
use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::collections::VecDeque;
use std::ffi::CString;

/// A goroutine that the scheduler lists for the first generation of a session, or for each
/// generation of a flight recorder.
pub struct Listed<'a> {
    pub go: GoRef<'a>,
    pub state: GoState,
    /// For a goroutine in a call: the stream of its M.
    pub stream: Option<&'a Stream>,
}

/// What the tracer asks of the scheduler.
pub struct Points {
    /// Stops the world, calls the function, and starts the world; just calls the function if there
    /// is no runtime.
    pub with_world_stopped: fn(&mut dyn FnMut()),
    /// Calls the function for each goroutine.
    pub list: fn(List),
    /// The number of P's; 0: there is no runtime.
    pub procs: fn() -> usize,
}

/// What is called for each goroutine.
pub type List<'a> = &'a mut dyn FnMut(Listed);

static POINTS: Locked<Option<&'static Points>> = Locked::new(None);

/// For the scheduler, once, before the first session.
pub fn on_load(points: &'static Points) {
    POINTS.with(|place| *place = Some(points));
}

/// Stops the world, if there is a runtime, calls the function, and starts the world.
pub fn with_world_stopped(f: &mut dyn FnMut()) {
    match POINTS.with(|points| *points) {
        Some(points) => (points.with_world_stopped)(f),
        None => f(),
    }
}

/// A generation ends at the latest after this time, in ns, as in Go.
const GENERATION: i64 = 1_000_000_000;
/// A generation ends when its batches take this number of bytes.
const GENERATION_BYTES: usize = 16 << 20;
/// The thread looks for full batches after this time, in ns. It isn't woken: the thread that fills
/// a batch may hold locks.
const LOOK: i64 = 5_000_000;
/// A trace ends when this number of bytes waits for its reader.
const MOST_WAITING: usize = 256 << 20;
/// The flight recorder keeps at most this number of bytes, besides the present generation.
const MOST_KEPT: usize = 64 << 20;
/// The clocks are compared over at least this time, in ns.
const COMPARED: i64 = 2_000_000;

/// What a thread asks of the tracer's thread.
#[derive(Clone, Copy)]
enum Request {
    /// A file, and when the trace ends by itself, in ns; `i64::MAX`: never.
    Trace(i32, i64),
    StopTrace,
    Flight(i64),
    StopFlight,
    /// Into [`COPY`].
    CopyFlight,
    /// To a file, by the tracer's thread: the thread that asks may hold any lock.
    WriteFlight(i32),
}

/// Held by the thread that has a request.
static ASKING: LongLock = LongLock::new();
static REQUEST: Locked<Option<Request>> = Locked::new(None);
/// A futex word: 1 while a request is under way.
static PENDING: AtomicU32 = AtomicU32::new(0);
static ANSWER: AtomicI32 = AtomicI32::new(0);
/// A futex word on which the tracer's thread sleeps between two looks.
static BELL: AtomicU32 = AtomicU32::new(0);
/// Whether the tracer's thread is there.
static IS_THERE: AtomicBool = AtomicBool::new(false);
/// The tracer's thread, for the join.
static THREAD: Locked<Option<Thread>> = Locked::new(None);

/// Whether a trace is being written.
static WRITES: AtomicBool = AtomicBool::new(false);

/// Begins to write a trace to the file. `-EBUSY`: a trace is being written, whatever `fd` is, or
/// another thread asks; `-EBADF`: no such file; `-EAGAIN`: the system gives no thread.
pub fn trace_start(fd: i32) -> i32 {
    if WRITES.load(Ordering::Relaxed) {
        return -libc::EBUSY;
    }
    if !file::is_open(fd) {
        return -libc::EBADF;
    }
    ask(Request::Trace(fd, i64::MAX), true)
}

/// [`trace_start`] for a trace that ends by itself after `ns`.
pub fn trace_for(fd: i32, ns: i64) -> i32 {
    ask(Request::Trace(fd, time::now().saturating_add(ns)), true)
}

/// Ends the trace, and waits until all of it is written. `-EINVAL`: there is none; `-EBUSY`: another
/// thread asks; `-ENOBUFS`: the trace has ended before, because its reader was too slow, `-ENOMEM`:
/// because there was no memory; or the error of write(2).
pub fn trace_stop() -> i32 {
    ask(Request::StopTrace, false)
}

/// Begins to keep the events of at least the last `ns`. `-EBUSY`: that is so already; `-EINVAL`.
pub fn flight_start(ns: i64) -> i32 {
    if ns <= 0 {
        return -libc::EINVAL;
    }
    ask(Request::Flight(ns), true)
}

/// Keeps events no longer. `-EINVAL`: no events are kept.
pub fn flight_stop() -> i32 {
    ask(Request::StopFlight, false)
}

/// The answer to [`Request::CopyFlight`].
static COPY: Locked<Vec<Vec<u8>>> = Locked::new(Vec::new());

/// Writes the events that are kept to the file: a copy of them, so that the tracer goes on however
/// long the file takes. `-EINVAL`: none are kept; `-EBUSY`: another thread asks; or the error of
/// write(2).
pub fn flight_write(fd: i32) -> i32 {
    if !file::is_open(fd) {
        return -libc::EBADF;
    }
    if !ASKING.try_lock() {
        return -libc::EBUSY;
    }
    let e = ask_locked(Request::CopyFlight, false);
    let copy = COPY.with(core::mem::take);
    // SAFETY: `try_lock` has locked it.
    unsafe { ASKING.unlock() };
    if e != 0 {
        return e;
    }
    let write = |part: Vec<u8>| Some(file::write_whole(fd, &part)).filter(|&e| e != 0);
    copy.into_iter().find_map(write).unwrap_or(0)
}

/// The file of [`flight_write_at_end`], or null.
static AT_END: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());

/// The file into which a process that is about to end by a failure writes the events that are kept.
pub fn flight_file(path: CString) {
    // Never freed: a signal handler may be reading the path.
    AT_END.store(path.into_raw(), Ordering::Release);
}

/// [`flight_write_at_end`] waits for this time, in ns: the failure may be that of a thread that
/// holds a lock of the tracer's.
const AT_END_WITHIN: i64 = 2_000_000_000;

/// Before a failure is reported that ends the process: writes the events that are kept to the file
/// of [`flight_file`], once. Async-signal-safe.
pub fn flight_write_at_end() {
    let path = AT_END.swap(ptr::null_mut(), Ordering::AcqRel);
    if path.is_null() || !IS_THERE.load(Ordering::Acquire) || !ASKING.try_lock() {
        return;
    }
    // SAFETY: `flight_file` has leaked the path.
    let path = unsafe { CStr::from_ptr(path) };
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
    let e = match file::open(path, flags, 0o666) {
        // The lock stays held: the answer may come later.
        fd if fd >= 0 => ask_until(Request::WriteFlight(fd), time::now() + AT_END_WITHIN),
        e => e,
    };
    if e != 0 {
        for part in
            [&b"gosched: the latest events could not be written to "[..], path.to_bytes(), b"\n"]
        {
            os::write_all(libc::STDERR_FILENO, part);
        }
    }
}

/// Puts the request to the tracer's thread, which is started if `starts`, and waits for the answer.
fn ask(request: Request, starts: bool) -> i32 {
    if !ASKING.try_lock() {
        return -libc::EBUSY;
    }
    let answer = ask_locked(request, starts);
    // SAFETY: `try_lock` has locked it.
    unsafe { ASKING.unlock() };
    answer
}

fn ask_locked(request: Request, starts: bool) -> i32 {
    // The thread leaves only with `ASKING` held, by the asker or by itself.
    if !IS_THERE.load(Ordering::Acquire) {
        // A former thread may have left.
        THREAD.with(Option::take).into_iter().for_each(Thread::join);
        if !starts {
            return -libc::EINVAL;
        }
        IS_THERE.store(true, Ordering::Release);
        match Thread::start(main, ptr::null_mut()) {
            Ok(thread) => THREAD.with(|place| *place = Some(thread)),
            Err(e) => {
                IS_THERE.store(false, Ordering::Release);
                return e;
            }
        }
    }
    let answer = ask_until(request, -1);
    if !IS_THERE.load(Ordering::Acquire) {
        THREAD.with(Option::take).into_iter().for_each(Thread::join);
    }
    answer
}

/// The number of the tracer's threads, which wake no goroutine.
pub fn threads() -> usize {
    usize::from(IS_THERE.load(Ordering::Acquire))
}

/// Puts the request to the tracer's thread, which is there, and waits for the answer until the
/// deadline (ns; negative: none).
fn ask_until(request: Request, deadline: i64) -> i32 {
    REQUEST.with(|place| *place = Some(request));
    // Release: pairs with the Acquire of the tracer's thread, which then sees the request.
    PENDING.store(1, Ordering::Release);
    wake();
    while PENDING.load(Ordering::Acquire) == 1 {
        if !futex::wait(&PENDING, 1, deadline) {
            return -libc::ETIMEDOUT;
        }
    }
    ANSWER.load(Ordering::Relaxed)
}

fn wake() {
    BELL.fetch_add(1, Ordering::Release);
    futex::wake(&BELL, 1);
}

fn answer(with: i32) {
    ANSWER.store(with, Ordering::Relaxed);
    PENDING.store(0, Ordering::Release);
    futex::wake(&PENDING, 1);
}

/// The tracer's thread is about to end: events are traced no longer, and a later request starts
/// another thread. `ASKING` is held.
fn leave() {
    registry::cut(0, 0);
    IS_THERE.store(false, Ordering::Release);
}

/// In the child of a fork: there is neither a trace nor a flight recorder.
///
/// # Safety
/// The caller is the child's only thread.
pub unsafe fn forked() {
    // SAFETY: as the caller says; the values are replaced without a look at them.
    unsafe {
        registry::forked();
        probes::forked();
        batch::forked();
        stacks::forked();
        strings::forked();
        ASKING.reset();
        REQUEST.reset();
        THREAD.reset();
        THREAD.with(|place| *place = None);
        COPY.reset();
        COPY.with(|place| core::mem::forget(core::mem::take(place)));
    }
    PENDING.store(0, Ordering::Relaxed);
    IS_THERE.store(false, Ordering::Relaxed);
    WRITES.store(false, Ordering::Relaxed);
    LOST.store(false, Ordering::Relaxed);
}

/// The stream of a trace that goes to a file.
struct Sink {
    fd: i32,
    /// Bytes that wait to be written, oldest first, of which `written` are written.
    waiting: VecDeque<Vec<u8>>,
    written: usize,
    bytes: usize,
    /// Whether a write may block: the file is written in pieces that poll(2) allows.
    may_block: bool,
    /// The error that has ended the trace, or 0.
    error: i32,
    /// When the trace ends by itself, in ns.
    until: i64,
}

/// A pipe that poll(2) calls writable takes this number of bytes without blocking.
const PIECE: usize = 4096;
/// poll(2) waits for a reader for at most this time, in ms.
const POLL: i32 = 5;

impl Sink {
    fn new(fd: i32, until: i64) -> Sink {
        let may_block = !file::has_position(fd);
        let waiting = VecDeque::new();
        let mut sink = Sink { fd, waiting, written: 0, bytes: 0, may_block, error: 0, until };
        sink.add(format::HEADER.to_vec());
        sink
    }

    fn add(&mut self, bytes: Vec<u8>) {
        if self.error == 0 && !bytes.is_empty() {
            self.bytes += bytes.len();
            self.waiting.push_back(bytes);
        }
    }

    /// Writes what waits. Returns after one piece that a reader has not taken yet.
    fn write(&mut self) {
        while let Some(first) = self.waiting.front() {
            let rest = &first[self.written..];
            let mut piece = rest;
            if self.may_block {
                if !file::is_writable(self.fd, POLL) {
                    return;
                }
                piece = &rest[..rest.len().min(PIECE)];
            }
            let e = file::write_whole(self.fd, piece);
            if e != 0 {
                return self.fail(e);
            }
            self.bytes -= piece.len();
            self.written += piece.len();
            if self.written == first.len() {
                self.written = 0;
                self.waiting.pop_front();
            }
        }
    }

    fn fail(&mut self, error: i32) {
        self.error = error;
        self.waiting.clear();
        (self.written, self.bytes) = (0, 0);
    }
}

/// A generation that has not ended, or that the flight recorder keeps.
struct Generation {
    number: u32,
    began: Moment,
    /// Its batches as they are written, for the flight recorder.
    batches: Vec<Vec<u8>>,
    /// Bytes of data so far.
    bytes: usize,
    /// The stacks and strings of a generation that has ended, which later generations' use would hide.
    stacks: Vec<u32>,
    strings: Vec<u32>,
}

struct Flight {
    /// The time that is kept, in ns.
    ns: i64,
    kept: VecDeque<Generation>,
}

/// The session of the tracer's thread.
struct Session {
    points: &'static Points,
    trace: Option<Sink>,
    flight: Option<Flight>,
    present: Generation,
    first: u32,
    /// Whether neither a trace nor the flight recorder has begun yet.
    is_fresh: bool,
    /// When the session began.
    began: Moment,
    /// Ticks of a second; 0: not known yet.
    frequency: u64,
    tables: Tables,
}

/// The number of the latest generation in this process. Numbers are never used again: words of
/// goroutines may have old ones.
static LATEST: AtomicU32 = AtomicU32::new(0);

fn next_number() -> u32 {
    LATEST.fetch_add(1, Ordering::Relaxed) + 1
}

extern "C" fn main(_: *mut c_void) -> *mut c_void {
    thread::set_up_current(c"gosched-trace");
    let points = POINTS.with(|points| *points).expect("the scheduler has said who it is");
    clock::begin();
    LOST.store(false, Ordering::Relaxed);
    let mut session = Session::begin(points);
    // The thread was started for a request, which comes about now.
    while PENDING.load(Ordering::Acquire) == 0 {
        let seen = BELL.load(Ordering::Acquire);
        if PENDING.load(Ordering::Acquire) == 0 {
            futex::wait(&BELL, seen, -1);
        }
    }
    while session.turn() {}
    session.end();
    ptr::null_mut()
}

impl Session {
    fn begin(points: &'static Points) -> Session {
        let number = next_number();
        let mut began = Moment::now();
        unwind::refresh_modules();
        (points.with_world_stopped)(&mut || {
            registry::cut(number, number);
            stacks::begin_generation(number);
            began = Moment::now();
            model::procs_are((points.procs)());
            (points.list)(&mut |listed| match (listed.state, listed.stream) {
                (GoState::Syscall, Some(stream)) => stream.has_in_call(listed.go),
                _ => registry::LISTER.lists(listed.go, listed.state),
            });
        });
        Session {
            points,
            trace: None,
            flight: None,
            present: Generation::new(number, began),
            first: number,
            is_fresh: true,
            began,
            frequency: 0,
            tables: Tables::new(),
        }
    }

    /// Whether a trace is written, or events are kept.
    fn is_wanted(&self) -> bool {
        self.trace.is_some() || self.flight.is_some()
    }

    /// One look at what is to be done. False: the session has ended.
    fn turn(&mut self) -> bool {
        let seen = BELL.load(Ordering::Acquire);
        if PENDING.load(Ordering::Acquire) == 1
            && let Some(request) = REQUEST.with(Option::take)
        {
            let e = self.serve(request);
            let ends = !self.is_wanted();
            if ends {
                leave();
            }
            answer(e);
            if ends {
                return false;
            }
        } else if !self.is_wanted() && ASKING.try_lock() {
            // The trace has ended by itself, and no thread is about to ask for another.
            leave();
            // SAFETY: `try_lock` has locked it.
            unsafe { ASKING.unlock() };
            return false;
        }
        self.follow_loader();
        self.collect();
        let age = time::now() - self.present.began.monotonic;
        if age >= GENERATION || self.present.bytes >= GENERATION_BYTES {
            self.end_generation();
        }
        if let Some(sink) = &mut self.trace {
            sink.write();
            if sink.bytes > MOST_WAITING && sink.error == 0 {
                sink.fail(-libc::ENOBUFS);
            }
            if LOST.load(Ordering::Relaxed) && sink.error == 0 {
                sink.fail(-libc::ENOMEM);
            }
            if time::now() >= sink.until {
                self.stop_trace();
            }
        }
        if PENDING.load(Ordering::Acquire) == 0 {
            futex::wait(&BELL, seen, time::now() + LOOK);
        }
        true
    }

    fn serve(&mut self, request: Request) -> i32 {
        match request {
            Request::Trace(..) if self.trace.is_some() => -libc::EBUSY,
            Request::Trace(fd, until) => {
                self.begin_whole_generation();
                self.trace = Some(Sink::new(fd, until));
                WRITES.store(true, Ordering::Relaxed);
                0
            }
            Request::StopTrace => self.stop_trace(),
            Request::Flight(_) if self.flight.is_some() => -libc::EBUSY,
            Request::Flight(ns) => {
                self.begin_whole_generation();
                self.flight = Some(Flight { ns, kept: VecDeque::new() });
                0
            }
            Request::StopFlight => match self.flight.take() {
                None => -libc::EINVAL,
                Some(_) => 0,
            },
            Request::CopyFlight => {
                let mut copy = Vec::new();
                let e = self.each_part_of_flight(&mut |part| {
                    copy.push(part);
                    0
                });
                COPY.with(|place| *place = copy);
                e
            }
            Request::WriteFlight(fd) => {
                self.each_part_of_flight(&mut |part| file::write_whole(fd, &part))
            }
        }
    }

    /// Begins a generation that describes all goroutines, and of which no batch has been written or
    /// freed yet: a trace or the flight recorder begins with it.
    fn begin_whole_generation(&mut self) {
        // The first generation of a session is whole as long as nothing takes its batches.
        if core::mem::replace(&mut self.is_fresh, false) {
            return;
        }
        self.end_generation();
        if self.flight.is_none() {
            self.list();
        }
    }

    /// Lets stacks be walked in objects that were loaded since.
    fn follow_loader(&mut self) {
        if unwind::needs_refresh() {
            unwind::refresh_modules();
            self.tables.forget_symbols();
        }
    }

    /// Takes the batches that streams have filled.
    fn collect(&mut self) {
        for batch in batch::take_full() {
            self.take(batch);
        }
    }

    fn take(&mut self, batch: Box<Batch>) {
        if batch.generation != self.present.number {
            // Of a generation of a former session.
            return batch::free(batch);
        }
        self.present.bytes += batch.data().len();
        let bytes = encoded(&batch);
        // Back to the streams while it is in a cache.
        batch::free(batch);
        if self.flight.is_some() {
            self.present.batches.push(bytes.clone());
        }
        if let Some(sink) = &mut self.trace {
            sink.add(bytes);
        }
    }

    /// Ends the present generation, and begins the next.
    fn end_generation(&mut self) {
        self.compare_clocks();
        let number = next_number();
        registry::cut(number, self.first);
        stacks::begin_generation(number);
        let next = Generation::new(number, Moment::now());
        self.finish();
        let ended = core::mem::replace(&mut self.present, next);
        self.keep(ended);
        if self.flight.is_some() {
            self.list();
        }
    }

    /// Takes the last batches of the present generation, which the cut has ended, and writes its
    /// tables.
    fn finish(&mut self) {
        // Batches of the next generation come behind those of the present one.
        let mut next = Vec::new();
        for batch in batch::take_full() {
            if batch.generation == self.present.number {
                self.take(batch);
            } else {
                next.push(batch);
            }
        }
        next.into_iter().for_each(|batch| {
            batch::filled(batch);
        });
        self.present.stacks = stacks::used_in(self.present.number);
        self.present.strings = strings::used_in(self.present.number);
        if self.trace.as_ref().is_some_and(|sink| sink.error == 0) {
            let end = self.encoded_end(None);
            if let Some(sink) = &mut self.trace {
                sink.add(end);
            }
        }
    }

    /// The tables and the end of the present generation, or of a kept generation.
    fn encoded_end(&mut self, kept: Option<&Generation>) -> Vec<u8> {
        let (frequency, tables) = (self.frequency, &mut self.tables);
        let generation = kept.unwrap_or(&self.present);
        let mut out = Vec::new();
        let began = &generation.began;
        let mut sync = vec![event::SYNC, event::FREQUENCY];
        push_number(&mut sync, frequency);
        sync.push(event::CLOCK_SNAPSHOT);
        let wall = began.wall.max(0) as u64;
        for n in [0, began.monotonic as u64, wall / 1_000_000_000, wall % 1_000_000_000] {
            push_number(&mut sync, n);
        }
        push_batch_header(&mut out, generation.number, NO_THREAD, began.ticks, sync.len());
        out.extend_from_slice(&sync);
        let (number, ticks) = (generation.number, began.ticks);
        let (stacks, strings) = (&generation.stacks, &generation.strings);
        // Names are read by recursion, which may need more than the thread's own stack.
        on_large(|| tables.encode((number, ticks), stacks, strings, &mut out));
        out.push(event::END_OF_GENERATION);
        out
    }

    /// Keeps a generation that has ended for the flight recorder, and drops older generations that
    /// aren't needed. A file has a generation at least, however long it takes to write one.
    fn keep(&mut self, ended: Generation) {
        let Some(flight) = &mut self.flight else { return };
        flight.kept.push_back(ended);
        let now = time::now();
        loop {
            let bytes: usize = flight.kept.iter().map(|g| g.bytes).sum();
            // The oldest generation is needed as long as the second began less than `ns` ago.
            let second = flight.kept.get(1).map_or(self.present.began, |second| second.began);
            let is_old = now - second.monotonic >= flight.ns;
            if flight.kept.len() <= 1 || !is_old && bytes <= MOST_KEPT {
                return;
            }
            flight.kept.pop_front();
        }
    }

    /// Describes all goroutines to the present generation.
    fn list(&mut self) {
        (self.points.list)(&mut |listed| registry::LISTER.lists(listed.go, listed.state));
    }

    fn compare_clocks(&mut self) {
        if self.frequency != 0 {
            return;
        }
        let age = time::now() - self.began.monotonic;
        if age < COMPARED {
            time::sleep(COMPARED - age);
        }
        self.frequency = self.began.ticks_per_second(&Moment::now());
    }

    fn stop_trace(&mut self) -> i32 {
        if self.trace.is_none() {
            return -libc::EINVAL;
        }
        self.end_generation();
        let Some(mut sink) = self.trace.take() else { return -libc::EINVAL };
        WRITES.store(false, Ordering::Relaxed);
        while sink.error == 0 && !sink.waiting.is_empty() {
            sink.write();
        }
        sink.error
    }

    /// Calls `f` with the parts of a trace of the events that are kept, until the result isn't 0.
    fn each_part_of_flight(&mut self, f: &mut dyn FnMut(Vec<u8>) -> i32) -> i32 {
        if self.flight.is_none() {
            return -libc::EINVAL;
        }
        self.end_generation();
        let Some(flight) = self.flight.take() else { return -libc::EINVAL };
        let mut e = f(format::HEADER.to_vec());
        for generation in &flight.kept {
            for batch in &generation.batches {
                if e == 0 {
                    e = f(batch.clone());
                }
            }
            if e == 0 {
                e = f(self.encoded_end(Some(generation)));
            }
        }
        self.flight = Some(flight);
        e
    }

    fn end(self) {
        batch::take_full().into_iter().for_each(batch::free);
        batch::drop_free();
    }
}

impl Generation {
    fn new(number: u32, began: Moment) -> Generation {
        Generation {
            number,
            began,
            batches: Vec::new(),
            bytes: 0,
            stacks: Vec::new(),
            strings: Vec::new(),
        }
    }
}

/// A batch with its header.
fn encoded(batch: &Batch) -> Vec<u8> {
    let data = batch.data();
    let mut out = Vec::with_capacity(data.len() + 64);
    push_batch_header(&mut out, batch.generation, batch.thread, batch.time, data.len());
    out.extend_from_slice(data);
    out
}
