//! Channels and select.

use crate::bubble;
use crate::errors::{self, Closed};
use crate::ffi::*;
use crate::format::{Format, Item};
use crate::handle;
use crate::park::{self, Ended, Timeout};
use crate::shared::Shared;
use crate::sys::give::give;
use crate::worker::current;
use pyo3::exceptions::{PyStopIteration, PyTypeError};
use pyo3::ffi as py_ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::{mem, ptr};

/// The kinds of a channel's elements, of eight bytes each except `Struct`.
enum Kind {
    /// A reference to an object.
    Object,
    /// An `int64_t`: C code without the GIL may send and receive.
    Int,
    /// A `double`, with the use of `Int`.
    Float,
    /// A time in ns, given as seconds.
    Time,
    /// Another C value, with the use of `Int`.
    Struct(Box<Format>),
}

impl Kind {
    fn size(&self) -> usize {
        if let Kind::Struct(format) = self { format.size() } else { 8 }
    }
}

/// Go's channel: carries values from one goroutine to another.
#[pyclass(frozen, weakref, subclass, module = "gosched")]
pub struct Channel {
    /// Null once the channel has been freed.
    chan: AtomicPtr<gs_chan>,
    kind: Kind,
    capacity: usize,
    is_closed: Shared<bool>,
}

/// Channels without an object, to be freed where the GIL is released: freeing may switch.
static GARBAGE: Shared<Vec<*mut gs_chan>> = Shared::new(Vec::new());
static GARBAGE_LEN: AtomicUsize = AtomicUsize::new(0);

/// Frees the channels that have lost their objects.
fn collect(py: Python<'_>) {
    // In a bubble the calls would be steps, and no run like the one before.
    if bubble::is_inside() {
        return;
    }
    handle::collect(py);
    if GARBAGE_LEN.load(Ordering::Relaxed) == 0 {
        return;
    }
    let garbage = GARBAGE.with(py, |g| {
        GARBAGE_LEN.store(0, Ordering::Relaxed);
        mem::take(g)
    });
    current::call(py, || {
        for chan in garbage {
            // SAFETY: nothing refers to the channel any more.
            unsafe { gs_chan_free(chan) };
        }
    });
}

/// Takes all values out of a channel that has lost its object, and drops them.
#[cold]
fn drain(py: Python<'_>, chan: *mut gs_chan) {
    let mut words: Vec<u64> = Vec::new();
    current::call(py, || {
        let mut word = 0u64;
        // SAFETY: nothing else refers to the channel any more.
        while unsafe { gs_chan_recv(chan, (&raw mut word).cast(), GS_NOWAIT) } == 0 {
            words.push(word);
        }
    });
    for word in words {
        // SAFETY: the sender passed this reference on.
        drop(unsafe { Bound::from_owned_ptr(py, word as *mut py_ffi::PyObject).unbind() });
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let chan = *self.chan.get_mut();
        if chan.is_null() {
            return;
        }
        Python::attach(|py| {
            // SAFETY: the call never switches.
            if matches!(self.kind, Kind::Object) && unsafe { gs_chan_len(chan) } > 0 {
                drain(py, chan);
            }
            GARBAGE.with(py, |g| {
                g.push(chan);
                GARBAGE_LEN.store(g.len(), Ordering::Relaxed);
            });
        });
    }
}

impl Channel {
    fn make(py: Python<'_>, capacity: usize, kind: Kind) -> PyResult<Channel> {
        collect(py);
        let size = kind.size();
        // SAFETY: called without the GIL.
        let chan =
            current::call(py, || unsafe { gs_chan_make(size, capacity) } as usize) as *mut gs_chan;
        Channel::of(chan, capacity, kind)
    }

    fn of(chan: *mut gs_chan, capacity: usize, kind: Kind) -> PyResult<Channel> {
        if chan.is_null() {
            return Err(errors::no_memory());
        }
        Ok(Channel { chan: AtomicPtr::new(chan), kind, capacity, is_closed: Shared::new(false) })
    }

    /// Makes a channel, of C values if there is a format, else of objects.
    pub fn with_format(
        py: Python<'_>,
        capacity: usize,
        format: Option<Format>,
    ) -> PyResult<Channel> {
        let kind = match format {
            None => Kind::Object,
            Some(format) => match format.text() {
                "q" => Kind::Int,
                "d" => Kind::Float,
                _ => Kind::Struct(Box::new(format)),
            },
        };
        Channel::make(py, capacity, kind)
    }

    /// The format of the elements in C; `None`: C can't use them.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Object | Kind::Time => None,
            Kind::Int => Some("q"),
            Kind::Float => Some("d"),
            Kind::Struct(format) => Some(format.text()),
        }
    }

    pub fn chan(&self) -> *mut gs_chan {
        self.chan.load(Ordering::Relaxed)
    }

    /// The word to send for a value. For an object the word is a reference of its own.
    fn word_of(&self, value: &Bound<'_, PyAny>) -> PyResult<u64> {
        match &self.kind {
            Kind::Object => Ok(give(value) as u64),
            Kind::Int => Ok(value.extract::<i64>()? as u64),
            Kind::Float => Ok(value.extract::<f64>()?.to_bits()),
            Kind::Time => Err(PyTypeError::new_err("a timer's channel is only received from")),
            Kind::Struct(_) => Ok(0),
        }
    }

    /// The value of a word that was received, or is given back unsent.
    fn value_of(&self, py: Python<'_>, word: u64) -> PyResult<Py<PyAny>> {
        Ok(match &self.kind {
            // SAFETY: the sender passed this reference on.
            Kind::Object => unsafe {
                Bound::from_owned_ptr(py, word as *mut py_ffi::PyObject).unbind()
            },
            Kind::Int => (word as i64).into_pyobject(py)?.into_any().unbind(),
            Kind::Float => f64::from_bits(word).into_pyobject(py)?.into_any().unbind(),
            Kind::Time => (word as i64 as f64 / 1e9).into_pyobject(py)?.into_any().unbind(),
            Kind::Struct(_) => py.None(),
        })
    }

    /// The value that `select` has received, as a word or an item.
    fn value_at(&self, py: Python<'_>, item: *const Item, word: u64) -> PyResult<Py<PyAny>> {
        match &self.kind {
            // SAFETY: `select` has pointed the case at an item, which still exists.
            Kind::Struct(format) => Ok(format.unpack(py, unsafe { &*item })?.unbind()),
            _ => self.value_of(py, word),
        }
    }

    /// Drops the reference of a word that was not sent.
    fn take_back(&self, py: Python<'_>, word: u64) {
        if matches!(self.kind, Kind::Object) {
            // SAFETY: the reference comes from `word_of`.
            drop(unsafe { Bound::from_owned_ptr(py, word as *mut py_ffi::PyObject).unbind() });
        }
    }

    fn send_within(&self, value: &Bound<'_, PyAny>, timeout: Timeout) -> PyResult<bool> {
        let py = value.py();
        if let Kind::Struct(format) = &self.kind {
            return self.send_item(py, &format.pack(value)?, timeout);
        }
        bubble::step(py);
        let word = self.word_of(value)?;
        // Called with the GIL: `gs_chan_put` never switches.
        // SAFETY: the object keeps the channel.
        if self.capacity > 0 && unsafe { gs_chan_put(self.chan(), (&raw const word).cast()) } == 0 {
            park::checkpoint(py);
            return Ok(true);
        }
        let chan = self.chan() as usize;
        // SAFETY: the object keeps the channel.
        let ended = park::wait(py, timeout, |d| unsafe {
            gs_chan_send(chan as *mut gs_chan, (&raw const word).cast(), d)
        });
        match ended {
            Ok(Ended::With(0)) => Ok(true),
            other => {
                self.take_back(py, word);
                match other? {
                    Ended::With(e) => Err(errors::of(e)),
                    _ => Ok(false),
                }
            }
        }
    }

    #[cold]
    fn send_item(&self, py: Python<'_>, item: &Item, timeout: Timeout) -> PyResult<bool> {
        let chan = self.chan() as usize;
        // SAFETY: the object keeps the channel; the item has the size of its elements.
        let send = |d| unsafe { gs_chan_send(chan as *mut gs_chan, item.as_ptr(), d) };
        match park::wait(py, timeout, send)? {
            Ended::With(0) => Ok(true),
            Ended::With(e) => Err(errors::of(e)),
            _ => Ok(false),
        }
    }

    #[cold]
    fn recv_item(
        &self,
        py: Python<'_>,
        format: &Format,
        timeout: Timeout,
    ) -> PyResult<Option<Py<PyAny>>> {
        let chan = self.chan() as usize;
        let mut item = Item::ZERO;
        let to = item.as_mut_ptr() as usize;
        // SAFETY: as in `send_item`.
        let recv = |d| unsafe { gs_chan_recv(chan as *mut gs_chan, to as *mut _, d) };
        match park::wait(py, timeout, recv)? {
            Ended::With(0) => Ok(Some(format.unpack(py, &item)?.unbind())),
            Ended::With(e) => Err(errors::of(e)),
            _ => Ok(None),
        }
    }

    /// Receives a value. `None`: the time is up.
    fn recv_within(&self, py: Python<'_>, timeout: Timeout) -> PyResult<Option<Py<PyAny>>> {
        if let Kind::Struct(format) = &self.kind {
            return self.recv_item(py, format, timeout);
        }
        bubble::step(py);
        let mut word = 0u64;
        // With the GIL, as in `send_within`.
        // SAFETY: the object keeps the channel; `word` is the frame's.
        if self.capacity > 0 && unsafe { gs_chan_take(self.chan(), (&raw mut word).cast()) } == 0 {
            park::checkpoint(py);
            return self.value_of(py, word).map(Some);
        }
        let chan = self.chan() as usize;
        let at = &raw mut word as usize;
        // SAFETY: the object keeps the channel; `word` is the frame's.
        let ended = park::wait(py, timeout, |d| unsafe {
            gs_chan_recv(chan as *mut gs_chan, at as *mut _, d)
        })?;
        match ended {
            Ended::With(0) => self.value_of(py, word).map(Some),
            Ended::With(e) => Err(errors::of(e)),
            _ => Ok(None),
        }
    }
}

/// Operations for `fast` that need no wait.
impl Channel {
    /// Sends an object, if this is a channel of objects and has room. Returns whether it did.
    #[inline(always)]
    pub fn send_now(&self, py: Python<'_>, object: *mut py_ffi::PyObject) -> bool {
        if self.capacity == 0 || !matches!(self.kind, Kind::Object) {
            return false;
        }
        // SAFETY: the caller keeps the object; a new reference goes with the word.
        unsafe {
            let word = give(Bound::ref_from_ptr(py, &object)) as u64;
            if gs_chan_put(self.chan(), (&raw const word).cast()) != 0 {
                py_ffi::Py_DECREF(object);
                return false;
            }
        }
        park::checkpoint(py);
        true
    }

    /// Receives an object as a new reference, if this is a channel of objects and has one.
    #[inline(always)]
    pub fn recv_now(&self, py: Python<'_>) -> Option<*mut py_ffi::PyObject> {
        if self.capacity == 0 || !matches!(self.kind, Kind::Object) {
            return None;
        }
        let mut word = 0u64;
        // SAFETY: the object keeps the channel; `word` is the frame's.
        if unsafe { gs_chan_take(self.chan(), (&raw mut word).cast()) } != 0 {
            return None;
        }
        park::checkpoint(py);
        Some(word as *mut py_ffi::PyObject)
    }
}

#[pymethods]
impl Channel {
    /// Makes a channel that holds `capacity` values; with 0 each send waits for its receiver.
    ///
    /// format: None for any objects; else the struct module's letters for C values. "q" is for
    /// integers of 64 bits, "qd" for tuples of such an integer and a float, a struct in C.
    /// Goroutines in C can then be at the other end, without the GIL (gosched_python.h).
    ///
    /// >>> channel = gosched.Channel(1, format="hd")
    /// >>> channel.send((7, 0.5))
    /// >>> channel.recv()
    /// (7, 0.5)
    #[new]
    #[pyo3(signature = (capacity=0, format=None))]
    fn new(py: Python<'_>, capacity: isize, format: Option<&str>) -> PyResult<Channel> {
        let capacity = usize::try_from(capacity)
            .map_err(|_| errors::value("capacity must not be negative"))?;
        Channel::with_format(py, capacity, format.map(Format::new).transpose()?)
    }

    /// Sends a value; waits for room or a receiver, at most timeout seconds. TimeoutError: the time
    /// is up. Closed: the channel is closed.
    #[pyo3(signature = (value, timeout=None))]
    fn send(&self, value: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<()> {
        if self.send_within(value, Timeout::after(timeout)?)? {
            Ok(())
        } else {
            Err(errors::timed_out())
        }
    }

    /// Receives a value; waits for one, at most timeout seconds. TimeoutError: the time is up.
    /// Closed: the channel is closed and empty.
    #[pyo3(signature = (timeout=None))]
    fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        self.recv_within(py, Timeout::after(timeout)?)?.ok_or_else(errors::timed_out)
    }

    /// Sends a value if that needs no wait. Returns whether it did. Closed: the channel is closed.
    fn try_send(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.send_within(value, Timeout::Never)
    }

    /// Receives a value if that needs no wait: returns (True, value), else (False, None). Closed:
    /// the channel is closed and empty.
    fn try_recv(&self, py: Python<'_>) -> PyResult<(bool, Py<PyAny>)> {
        Ok(match self.recv_within(py, Timeout::Never)? {
            Some(value) => (true, value),
            None => (false, py.None()),
        })
    }

    /// Closes the channel: no value can be sent any more; values in it can still be received.
    /// Closed: the channel was already closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let chan = self.chan() as usize;
        // SAFETY: the object keeps the channel.
        errors::check(current::call(py, || unsafe { gs_chan_close(chan as *mut gs_chan) }))?;
        self.is_closed.with(py, |c| *c = true);
        Ok(())
    }

    /// Whether close() was called.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.is_closed.with(py, |c| *c)
    }

    /// The letters of the channel's C values; None if it carries objects.
    #[getter]
    fn format(&self) -> Option<&str> {
        self.text()
    }

    /// The number of values that the channel can hold.
    #[getter]
    fn capacity(&self) -> usize {
        self.capacity
    }

    /// The number of values in the channel.
    fn __len__(&self) -> usize {
        // SAFETY: the call never switches.
        unsafe { gs_chan_len(self.chan()) }
    }

    /// A channel is true, whether empty or not.
    fn __bool__(&self) -> bool {
        true
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.recv_within(py, Timeout::Forever) {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(errors::timed_out()),
            Err(e) if e.is_instance_of::<Closed>(py) => Err(PyStopIteration::new_err(())),
            Err(e) => Err(e),
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        match self.close(py) {
            Err(e) if e.is_instance_of::<Closed>(py) => Ok(()),
            other => other,
        }
    }

    /// A case for select(): receive from this channel.
    fn recv_case<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        ("recv", slf).into_pyobject(slf.py())
    }

    /// A case for select(): send a value to this channel.
    fn send_case<'py>(
        slf: &Bound<'py, Self>,
        value: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        ("send", slf, value).into_pyobject(slf.py())
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        let c = slf.get();
        let state = if c.closed(slf.py()) { ", closed" } else { "" };
        format!("<gosched.Channel {} of {}{state}>", c.__len__(), c.capacity)
    }

    #[classmethod]
    fn __class_getitem__(
        cls: &Bound<'_, pyo3::types::PyType>,
        _item: &Bound<'_, PyAny>,
    ) -> Py<PyAny> {
        cls.clone().into_any().unbind()
    }
}

/// Does one of several operations. A case is ("recv", channel) or ("send", channel, value), as from
/// recv_case() and send_case(); None is never ready. Waits until a case can be done, at most
/// timeout seconds; of several, one is chosen at random. Returns (index, value, ok): the value
/// received, and whether there was one (False: the channel is closed and empty).
///
/// TimeoutError: the time is up, which for a timeout of 0 is at once. Closed: a channel to send to
/// is closed.
#[pyfunction]
#[pyo3(signature = (*cases, timeout=None))]
pub fn select(
    cases: &Bound<'_, PyTuple>,
    timeout: Option<f64>,
) -> PyResult<(usize, Py<PyAny>, bool)> {
    let py = cases.py();
    let timeout = Timeout::after(timeout)?;
    let n = cases.len();
    let mut channels: Vec<Option<Bound<'_, Channel>>> = Vec::with_capacity(n);
    let mut words = vec![0u64; n];
    let mut items: Vec<Item> = Vec::new();
    let mut list: Vec<gs_case> = Vec::with_capacity(n);
    let mut parsed = || -> PyResult<()> {
        for case in cases.iter() {
            if case.is_none() {
                channels.push(None);
                list.push(gs_case {
                    ch: ptr::null_mut(),
                    elem: ptr::null_mut(),
                    op: GS_RECV,
                    result: 0,
                });
                continue;
            }
            let (channel, value) = parse(&case)?;
            let c = channel.get();
            let at = list.len();
            let op = if value.is_some() { GS_SEND } else { GS_RECV };
            let elem = if let Kind::Struct(format) = &c.kind {
                let item = value.map_or(Ok(Item::ZERO), |value| format.pack(&value))?;
                items.reserve_exact(n - items.len());
                // Within the vector, which grows by no more than this.
                let at = items.len();
                items.push(item);
                items[at].as_mut_ptr()
            } else {
                if let Some(value) = value {
                    words[at] = c.word_of(&value)?;
                }
                // SAFETY: within the vector, which no longer grows.
                unsafe { words.as_mut_ptr().add(at) }.cast()
            };
            list.push(gs_case { ch: c.chan(), elem, op, result: 0 });
            channels.push(Some(channel));
        }
        Ok(())
    };
    let parsed = parsed();
    let at = list.as_mut_ptr() as usize;
    let ended = match parsed {
        // SAFETY: the objects keep the channels, and this frame the rest.
        Ok(()) => park::wait(py, timeout, |d| unsafe { gs_select(at as *mut gs_case, n, d) }),
        Err(e) => Err(e),
    };
    let chosen = match &ended {
        Ok(Ended::With(i)) if *i >= 0 => Some(*i as usize),
        _ => None,
    };
    // Drops the values that were not sent.
    for (i, case) in list.iter().enumerate() {
        if case.op == GS_SEND
            && !(chosen == Some(i) && case.result == 0)
            && let Some(channel) = &channels[i]
        {
            channel.get().take_back(py, words[i]);
        }
    }
    let Some(i) = chosen else {
        return match ended? {
            Ended::With(e) => Err(errors::of(e)),
            _ => Err(errors::timed_out()),
        };
    };
    let Some(channel) = &channels[i] else {
        return Err(errors::runtime("a case without a channel"));
    };
    match (list[i].op, list[i].result) {
        (GS_RECV, 0) => Ok((i, channel.get().value_at(py, list[i].elem.cast(), words[i])?, true)),
        (GS_RECV, _) => Ok((i, py.None(), false)),
        (_, 0) => Ok((i, py.None(), true)),
        (_, e) => Err(errors::of(e)),
    }
}

/// The channel of a case, and the value to send, if any.
fn parse<'py>(
    case: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, Channel>, Option<Bound<'py, PyAny>>)> {
    let wrong =
        || PyTypeError::new_err("a case is (\"recv\", channel) or (\"send\", channel, value)");
    if let Ok(channel) = case.cast::<Channel>() {
        return Ok((channel.clone(), None));
    }
    let case = case.cast::<PyTuple>().map_err(|_| wrong())?;
    if case.len() < 2 {
        return Err(wrong());
    }
    let op = case.get_item(0)?;
    let op = op.cast::<PyString>().map_err(|_| wrong())?.to_string_lossy().into_owned();
    let channel = case.get_item(1)?.cast_into::<Channel>().map_err(|_| wrong())?;
    match (op.as_str(), case.len()) {
        ("recv", 2) => Ok((channel, None)),
        ("send", 3) => Ok((channel, Some(case.get_item(2)?))),
        _ => Err(wrong()),
    }
}

fn nanoseconds(seconds: f64) -> PyResult<i64> {
    if seconds.is_nan() {
        return Err(errors::value("not a number"));
    }
    Ok((seconds * 1e9).clamp(0.0, i64::MAX as f64 / 2.0) as i64)
}

unsafe extern "C" {
    fn gs_after(ns: i64) -> *mut gs_chan;
    fn gs_ticker_start(ns: i64) -> *mut gs_chan;
    fn gs_ticker_stop(c: *mut gs_chan) -> i32;
}

/// Returns a channel to which the time (as time.monotonic()) is sent once, in `seconds`.
#[pyfunction]
pub fn after(py: Python<'_>, seconds: f64) -> PyResult<Channel> {
    let ns = nanoseconds(seconds)?;
    collect(py);
    // SAFETY: called without the GIL.
    let chan = current::call(py, || unsafe { gs_after(ns) } as usize);
    Channel::of(chan as *mut gs_chan, 1, Kind::Time)
}

/// Returns a channel to which the time is sent every `seconds`. For gosched.ticker.
#[pyfunction]
pub fn _ticker(py: Python<'_>, seconds: f64) -> PyResult<Channel> {
    let ns = nanoseconds(seconds)?;
    if ns == 0 {
        return Err(errors::value("the interval of a ticker must be positive"));
    }
    collect(py);
    // SAFETY: called without the GIL.
    let chan = current::call(py, || unsafe { gs_ticker_start(ns) } as usize);
    Channel::of(chan as *mut gs_chan, 1, Kind::Time)
}

/// Stops the ticks of a channel. For gosched.ticker.
#[pyfunction]
pub fn _ticker_stop(py: Python<'_>, channel: &Channel) -> PyResult<()> {
    let chan = channel.chan() as usize;
    // SAFETY: the object keeps the channel.
    errors::check(current::call(py, || unsafe { gs_ticker_stop(chan as *mut gs_chan) }))
}
