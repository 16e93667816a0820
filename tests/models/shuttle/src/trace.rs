//! There is no trace on this machine: what the scheduler calls for one is never called.

pub const PROCS: usize = crate::sched::prim::limits::PROCS;

#[derive(Default)]
pub struct GoWord;

impl GoWord {
    pub fn reset(&self) {}
}

pub struct GoRef<'a> {
    pub id: u64,
    pub word: &'a GoWord,
    pub names: &'a dyn Names,
}

pub trait Names {
    fn function(&self) -> usize;
    fn name(&self) -> Option<&std::ffi::CStr>;
}

pub enum By {
    Own,
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum GoState {
    Runnable,
    Running,
    Syscall,
    Waiting,
}

pub enum Leaves {
    Blocks(u32),
    Stops(u32),
    Ends,
}

pub struct Shapes;

impl Shapes {
    /// # Safety
    /// None.
    pub unsafe fn id_of(
        &self,
        _from: crate::backtrace::unwind::Registers,
        _bounds: (usize, usize),
        _foreign: &[stacks::ForeignFrame],
    ) -> u32 {
        0
    }
}

pub struct Stream {
    pub shapes: Shapes,
}

impl Stream {
    pub fn runs(&self, _proc: u16, _go: GoRef) {}
    pub fn goes_on_with(&self, _proc: u16) {}
    pub fn leaves(&self, _: Option<u16>, _: GoRef, _: Leaves, _: u32, _: Option<GoRef>) -> bool {
        false
    }
    pub fn logs_next(&self, _key: u32, _value: u32) {}
    pub fn logs_queue(&self, _key: u32, _value: u32) {}
    pub fn readies(&self, _by: By, _go: GoRef) {}
    pub fn creates(&self, _go: GoRef, _start: u32, _stack: u32) {}
    pub fn begins_call(&self, _proc: u16, _go: GoRef, _stack: u32) {}
    pub fn gives_up_proc(&self) {}
    pub fn loses_go(&self, _go: GoRef) {}
    pub fn notes<const N: usize>(&self, _event: u8, _numbers: [u64; N]) -> bool {
        false
    }
}

static NONE: Stream = Stream { shapes: Shapes };

pub fn is_on() -> bool {
    false
}
pub fn records() -> bool {
    false
}
pub fn outside() -> &'static Stream {
    &NONE
}
pub fn stream_for(_thread: u64) -> Option<&'static Stream> {
    None
}
pub fn retire(_stream: &'static Stream) {}
pub fn proc_was_taken(_proc: u16) {}
pub fn procs_are(_procs: usize) {}
pub fn string_id(_text: &[u8]) -> u32 {
    0
}
pub fn threads() -> usize {
    0
}
pub fn flight_write_at_end() {}
pub fn flight_file(_path: std::ffi::CString) {}
pub fn flight_start(_ns: i64) -> i32 {
    0
}
pub fn trace_start(_fd: i32) -> i32 {
    0
}
pub fn trace_for(_fd: i32, _ns: i64) -> i32 {
    0
}
pub fn trace_stop() -> i32 {
    0
}
pub fn on_load(_points: &'static Points) {}

/// # Safety
/// None.
pub unsafe fn forked() {}

pub struct Listed<'a> {
    pub go: GoRef<'a>,
    pub state: GoState,
    pub stream: Option<&'a Stream>,
}

pub type List<'a> = &'a mut dyn FnMut(Listed);

pub struct Points {
    pub with_world_stopped: fn(&mut dyn FnMut()),
    pub list: fn(List),
    pub procs: fn() -> usize,
}

pub mod stacks {
    #[derive(Clone, Copy)]
    pub struct ForeignFrame {
        pub function: u32,
        pub file: u32,
        pub line: u32,
    }

    pub fn add(_foreign: &[ForeignFrame], _pcs: &[usize]) -> u32 {
        0
    }
}

pub mod format {
    pub mod event {
        pub const STW_BEGIN: u8 = 0;
        pub const STW_END: u8 = 0;
    }
}

pub mod probes {
    pub static ATTACHED: std::sync::atomic::AtomicU16 = std::sync::atomic::AtomicU16::new(0);

    pub fn look() {}
}

pub mod string {
    pub const CHAN_RECEIVE: u32 = 0;
    pub const CHAN_SEND: u32 = 0;
    pub const COND: u32 = 0;
    pub const FOREVER: u32 = 0;
    pub const GOSCHED: u32 = 0;
    pub const JOIN: u32 = 0;
    pub const NETWORK: u32 = 0;
    pub const PARK: u32 = 0;
    pub const PREEMPTED: u32 = 0;
    pub const SELECT: u32 = 0;
    pub const SLEEP: u32 = 0;
    pub const STOLEN_FAR: u32 = 0;
    pub const STOLEN_FROM_QUEUE: u32 = 0;
    pub const STOLEN_NEAR: u32 = 0;
    pub const STOP_THE_WORLD: u32 = 0;
    pub const SYNC: u32 = 0;
    pub const SYSTEM_WAIT: u32 = 0;
}
