//! The operating system, by the modelled machine.

#[path = "../../../../src/os/biased.rs"]
pub mod biased;
#[path = "../../../../src/os/cgroup.rs"]
pub mod cgroup;
#[path = "../../../../src/os/mem.rs"]
#[allow(dead_code)]
mod real_mem;

#[path = "../../../../src/os/forking.rs"]
pub mod forking;
#[path = "../../../../src/os/locked.rs"]
pub mod locked;
#[path = "../../../../src/os/process.rs"]
#[allow(dead_code)]
pub mod process;
pub mod mem {
    use super::real_mem;
    pub use super::real_mem::{
        discard, discard_all, install_guards, max_map_count, move_to_node, place, prefer_node,
        protect_none, reserve,
    };

    /// Before the memory goes, what is stored there late.
    ///
    /// # Safety
    /// As the real one.
    pub unsafe fn release(at: usize, len: usize) {
        core::order::finish_stores();
        // SAFETY: as the caller says.
        unsafe { real_mem::release(at, len) };
    }

    /// The same.
    ///
    /// # Safety
    /// As the real one.
    pub unsafe fn drop_placed<T>(p: *mut T) {
        core::order::finish_stores();
        // SAFETY: as the caller says: the real one has placed it, and it is used no more.
        unsafe { real_mem::drop_placed(p) };
    }
}

use crate::machine;

pub const HAS_SIGNALS: bool = false;
pub const PAGE: usize = 4096;

pub fn page_size() -> usize {
    PAGE
}

pub fn is_refused(_errno: i32) -> bool {
    false
}

pub fn errno_location() -> *mut i32 {
    machine::with_thread(|t| &raw mut *t.errno)
}

pub fn errno() -> i32 {
    machine::with_thread(|t| *t.errno)
}

/// Puts the calling thread's errno back when dropped.
pub struct KeepErrno(i32);

impl KeepErrno {
    pub fn new() -> KeepErrno {
        KeepErrno(errno())
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        machine::with_thread(|t| *t.errno = self.0);
    }
}

pub fn write_all(_fd: i32, bytes: &[u8]) {
    eprint!("{}", String::from_utf8_lossy(bytes));
}

pub mod interpose {
    use core::ffi::CStr;
    use core::sync::atomic::AtomicUsize;

    pub struct Replacement {
        pub name: &'static CStr,
        pub by: *const (),
        pub real: &'static AtomicUsize,
    }
    // SAFETY: never used.
    unsafe impl Sync for Replacement {}

    pub fn replace(_all: &[Replacement]) {}
}
pub mod log {
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct HostArg(pub *mut core::ffi::c_void);

    // SAFETY: as the real one.
    unsafe impl Send for HostArg {}

    #[derive(Clone, Copy)]
    pub struct Callback<F>(pub F, pub HostArg);

    pub fn say(text: core::fmt::Arguments) {
        eprintln!("{text}");
    }

    pub fn lock() {}

    pub fn unlock() {}
}

pub fn abort() -> ! {
    panic!("the library ends the process");
}

pub fn place_of(pc: usize) -> String {
    format!("{pc:#x}")
}

pub fn symbol(_name: &core::ffi::CStr) -> *mut core::ffi::c_void {
    core::ptr::null_mut()
}

pub mod cpu {
    use shuttle::rand::Rng;

    pub fn affinity() -> Vec<usize> {
        vec![0, 1]
    }

    pub fn count() -> usize {
        2
    }

    /// The kernel moves threads as it likes.
    pub fn current() -> Option<usize> {
        Some(shuttle::rand::thread_rng().gen_range(0..2))
    }

    pub struct Affinity;

    impl Affinity {
        pub fn current() -> Option<Affinity> {
            None
        }

        pub fn apply(&self) {}

        pub fn words(&self) -> &[u64] {
            &[]
        }

        pub fn bind_within(&self, _cpus: &CpuSet) -> bool {
            true
        }
    }

    /// Threads are never bound here.
    pub struct CpuSet(Vec<usize>);

    impl CpuSet {
        pub fn new(cpus: &[usize]) -> CpuSet {
            CpuSet(cpus.to_vec())
        }

        pub fn has(&self, cpu: usize) -> bool {
            self.0.contains(&cpu)
        }

        pub fn len(&self) -> usize {
            self.0.len()
        }

        pub fn words(&self) -> &[u64] {
            &[]
        }

        pub fn bind(&self) -> bool {
            true
        }
    }
}

pub mod futex {
    use crate::machine;
    use core::sync::atomic::AtomicU32;

    pub fn wait(word: &AtomicU32, expected: u32, deadline: i64) -> bool {
        let address = core::ptr::from_ref(word) as usize;
        machine::futex_wait(
            address,
            || word.peek() == expected,
            (deadline >= 0).then_some(deadline),
        )
    }

    pub fn wake(word: *const AtomicU32, n: i32) {
        machine::futex_wake(word as usize, n as usize);
    }

    pub fn wake_in_handler(word: *const AtomicU32, n: i32) {
        wake(word, n);
    }

    /// The real memory: as in `src/os/futex.rs`.
    pub fn can_read(at: usize) -> bool {
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel checks the address, and the wait is over at once.
        let r = unsafe { libc::syscall(libc::SYS_futex, at, libc::FUTEX_WAIT, 1, &raw const none) };
        !(r < 0 && super::errno() == libc::EFAULT)
    }
}

pub mod epoll {
    use crate::poll;

    pub const IN: u32 = libc::EPOLLIN as u32;
    pub const PRI: u32 = libc::EPOLLPRI as u32;
    pub const OUT: u32 = libc::EPOLLOUT as u32;
    pub const ERR: u32 = libc::EPOLLERR as u32;
    pub const HUP: u32 = libc::EPOLLHUP as u32;
    pub const RDHUP: u32 = libc::EPOLLRDHUP as u32;
    pub const EDGE: u32 = libc::EPOLLET as u32;
    pub const ONCE: u32 = libc::EPOLLONESHOT as u32;

    #[derive(Clone, Copy)]
    pub struct Event {
        pub events: u32,
        pub u64: u64,
    }

    pub const NONE: Event = Event { events: 0, u64: 0 };

    pub fn create() -> Result<i32, i32> {
        Ok(poll::make_instance())
    }

    pub fn add(epoll: i32, fd: i32, events: u32, data: u64) -> Result<(), i32> {
        poll::add(epoll, fd, events & ONCE != 0, data)
    }

    pub fn change(epoll: i32, fd: i32, _events: u32, data: u64) -> Result<(), i32> {
        poll::change(epoll, fd, data)
    }

    pub fn remove(epoll: i32, fd: i32) {
        poll::remove(epoll, fd);
    }

    /// All events are of bytes.
    pub fn wait(epoll: i32, events: &mut [Event], deadline: i64) -> usize {
        let told = poll::wait(epoll, events.len(), deadline);
        for (event, data) in events.iter_mut().zip(&told) {
            *event = Event { events: IN, u64: *data };
        }
        told.len()
    }

    pub fn close(fd: i32) {
        poll::close(fd);
    }
}

/// As a pipe is one where it tells only the first ring after it was empty: an eventfd tells
/// these too, and more.
pub mod bell {
    use crate::poll;
    use core::sync::atomic::{AtomicU64, Ordering};

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Bell(i32);

    impl Bell {
        pub fn new() -> Result<Bell, i32> {
            Ok(Bell(poll::make_bell()))
        }

        pub fn to_poll(self) -> i32 {
            self.0
        }

        pub fn ring(self) {
            poll::ring(self.0);
        }

        pub fn silence(self) {
            poll::silence(self.0);
        }

        pub fn heard(self) {
            self.silence();
        }

        pub fn close(self) {
            poll::close(self.0);
        }

        pub fn to_bits(self) -> u64 {
            self.0 as u64 + 1
        }

        pub fn from_bits(bits: u64) -> Option<Bell> {
            (bits != 0).then(|| Bell(bits as i32 - 1))
        }
    }

    pub struct AtomicBell(AtomicU64);

    impl AtomicBell {
        pub const fn none() -> AtomicBell {
            AtomicBell(AtomicU64::new(0))
        }

        pub fn load(&self) -> Option<Bell> {
            Bell::from_bits(self.0.load(Ordering::Relaxed))
        }

        pub fn store(&self, bell: Option<Bell>) {
            self.0.store(bell.map_or(0, Bell::to_bits), Ordering::Relaxed);
        }
    }
}

pub mod file {
    pub fn write_whole(_: i32, _: &[u8]) -> i32 {
        0
    }

    use crate::poll;

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum FileKind {
        Socket,
        Disk,
        Other,
    }

    pub fn open(_path: &std::ffi::CStr, _flags: i32, _mode: u32) -> i32 {
        -libc::ENOENT
    }

    pub fn keep_for_library(fd: i32) -> i32 {
        fd
    }

    pub fn use_own_table() -> bool {
        true
    }

    pub fn kind(_fd: i32) -> Result<FileKind, i32> {
        Ok(FileKind::Other)
    }

    pub fn is_open(fd: i32) -> bool {
        poll::is_open(fd)
    }

    pub fn make_nonblocking(_fd: i32) -> i32 {
        0
    }

    /// No file is on a disk.
    pub fn waits_for_disk(_fd: i32) -> (bool, bool) {
        (false, false)
    }

    pub fn make_room_for_library() {}

    /// No file of the modelled machine is shut down.
    pub fn poll_now(_fd: i32, _events: i16) -> isize {
        0
    }

    pub fn poll_two(_fd: i32, _events: i16, _other: i32, _deadline: i64) -> bool {
        unreachable!("no plain thread waits for a file")
    }
}

pub mod socket {
    pub fn is_tcp(_fd: i32) -> bool {
        true
    }
}

/// In every second sleep the thread asks to be woken a little early, and spins for the rest.
pub mod oversleep {
    use crate::machine;

    pub const MOST: i64 = 300;

    pub struct Oversleep;

    pub struct Sleep {
        pub until: i64,
    }

    impl Oversleep {
        pub const fn new() -> Oversleep {
            Oversleep
        }

        pub fn plan(&self, _now: i64, deadline: i64) -> Sleep {
            let early = deadline > MOST && machine::chance(2);
            Sleep { until: if early { deadline - MOST } else { deadline } }
        }

        pub fn learn(&self, _sleep: Sleep, _now: i64) {}
    }
}

pub mod time {
    use crate::sched::types::m;
    use std::sync::atomic::{AtomicBool, Ordering};

    pub use crate::machine::{now as real, sleep};

    pub type Clock = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;

    /// Whether there is another clock than the machine's. It is asked in bubbles only.
    static IS_SET: AtomicBool = AtomicBool::new(false);

    pub fn set_clock(clock: Option<Clock>) {
        IS_SET.store(clock.is_some(), Ordering::Relaxed);
    }

    pub fn now() -> i64 {
        let mut bubble = None;
        if IS_SET.load(Ordering::Relaxed) {
            bubble = m::current().and_then(|m| m.bubble().map(|b| b.clock.get()));
        }
        bubble.unwrap_or_else(real)
    }

    pub fn timespec(ns: i64) -> libc::timespec {
        libc::timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 }
    }
}

pub mod spin {
    use crate::atomic::{AtomicU32, Ordering};

    pub(super) mod held {
        pub fn change(_: i32) {}
    }

    /// The library's lock; a waiter lets others run.
    #[repr(transparent)]
    pub struct SpinLock(AtomicU32);

    impl SpinLock {
        pub const fn new() -> SpinLock {
            SpinLock(AtomicU32::new(0))
        }

        pub fn try_lock(&self) -> bool {
            self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
        }

        pub fn is_free(&self) -> bool {
            self.0.load(Ordering::Acquire) == 0
        }

        pub fn lock(&self) {
            while !self.try_lock() {
                backoff(0);
            }
        }

        /// # Safety
        /// As the real one.
        pub unsafe fn unlock(&self) {
            self.0.store(0, Ordering::Release);
        }

        /// # Safety
        /// As the real one.
        pub unsafe fn reset(&self) {
            // SAFETY: as the caller says.
            unsafe { self.unlock() };
        }

        pub fn with<R>(&self, f: impl FnOnce() -> R) -> R {
            self.lock();
            let r = f();
            // SAFETY: locked above.
            unsafe { self.unlock() };
            r
        }
    }

    pub type LongLock = SpinLock;

    pub fn backoff(_round: u32) {
        shuttle::thread::yield_now();
    }
}

/// There is always memory.
pub mod heap {
    pub const IS_OURS: bool = true;

    use core::alloc::Layout;
    use core::ffi::CStr;
    use core::ptr::NonNull;
    use std::ffi::CString;

    /// # Safety
    /// The size is not 0.
    pub unsafe fn alloc(layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the caller says that the size is not 0.
        NonNull::new(unsafe { std::alloc::alloc(layout) })
    }

    pub fn boxed<T>(value: T) -> Option<Box<T>> {
        Some(Box::new(value))
    }

    pub fn boxed_to_keep<T>(value: T) -> Option<Box<T>> {
        boxed(value)
    }

    pub fn reserve<T>(list: &mut Vec<T>, more: usize) -> bool {
        list.reserve(more);
        true
    }

    pub fn c_string(s: &CStr) -> Option<CString> {
        Some(s.to_owned())
    }

    pub fn has_room(_bytes: usize) -> bool {
        true
    }

    pub fn refuse(_lacks: Option<fn() -> bool>) {}

    pub fn is_refused() -> bool {
        false
    }

    pub fn lock() {}
    pub fn unlock() {}
}

/// The lock of the C library's heap: malloc(3) takes it, pthread_create(3) and fork(2). Only what the
/// models' own goroutines allocate is part of a model.
pub mod c_heap {
    use super::futex;
    use core::sync::atomic::{AtomicU32, Ordering};

    static LOCKED: AtomicU32 = AtomicU32::new(0);

    pub fn try_lock() -> bool {
        LOCKED.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    pub fn lock() {
        while !try_lock() {
            futex::wait(&LOCKED, 1, -1);
        }
    }

    pub fn unlock() {
        LOCKED.store(0, Ordering::Release);
        futex::wake(&LOCKED, i32::MAX);
    }
}

pub mod membarrier {
    pub fn set_up() {}

    /// Without it no P is taken from a goroutine in the user's code. Most models call the library as the library does.
    pub fn is_there() -> bool {
        crate::machine::keeps_boundary()
    }

    #[must_use]
    pub fn all_threads() -> bool {
        core::order::finish_all_stores();
        true
    }
}

pub mod signal {

    /// # Safety
    /// There is nothing to be careful about.
    pub unsafe fn let_others_through<R>(
        _context: *const core::ffi::c_void,
        _signal: i32,
        f: impl FnOnce() -> R,
    ) -> R {
        f()
    }

    pub fn on_preempt(_signal: i32, hook: crate::machine::Handler) {
        crate::machine::handle_signals(hook);
    }

    pub struct AltStack;

    impl AltStack {
        pub fn set_up() -> Option<AltStack> {
            None
        }

        pub fn start(&self) -> usize {
            0
        }
    }

    pub fn on_fault(_hook: fn(usize, *const core::ffi::c_void)) {}

    pub fn on_quit(_hook: fn()) {}

    pub fn end_quit() {}

    pub fn on_crash(_hook: fn(i32, *const core::ffi::c_void)) {}

    pub fn end_crash() {}

    /// # Safety
    /// None: no handler runs.
    pub unsafe fn leave_handler(_context: *const core::ffi::c_void) {}
}

/// No search for leaks halts the threads of this machine.
pub mod halt {
    pub fn in_handler(_context: *mut core::ffi::c_void) {}

    pub fn wait_in_call() {}

    pub fn forked() {}
}

pub mod thread {
    use crate::machine;
    use core::cell::RefCell;
    use core::ffi::c_void;
    use core::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, OnceLock};
    pub const FAULTS: [i32; 0] = [];

    /// Nothing: no model watches a bubble.
    #[derive(Clone, Copy, Default)]
    pub struct Usage;

    impl Usage {
        pub fn waited_since(&self, _before: Usage) -> i64 {
            0
        }
    }

    pub fn usage() -> Usage {
        Usage
    }

    pub struct Thread(Arc<AtomicU32>);

    struct Argument(*mut c_void);
    // SAFETY: the thread's main function knows what it gets.
    unsafe impl Send for Argument {}

    shuttle::thread_local! {
        static CURRENT: RefCell<Option<Arc<AtomicU32>>> = const { RefCell::new(None) };
    }

    impl Thread {
        pub fn current() -> Thread {
            Thread(CURRENT.with(|ended| ended.borrow().clone()).expect("started by us"))
        }

        pub fn start(
            f: extern "C" fn(*mut c_void) -> *mut c_void,
            arg: *mut c_void,
        ) -> Result<Thread, i32> {
            let ended = Arc::new(AtomicU32::new(0));
            let (note, own, arg) = (ended.clone(), ended.clone(), Argument(arg));
            let main = move || {
                CURRENT.with(|ended| ended.replace(Some(own)));
                let Argument(arg) = { arg };
                f(arg);
            };
            super::c_heap::lock();
            super::c_heap::unlock();
            machine::start(main, move || {
                note.store(1, Ordering::Release);
                super::futex::wake(&*note, 1);
            });
            Ok(Thread(ended))
        }

        pub fn join(self) {
            while self.0.load(Ordering::Acquire) == 0 {
                super::futex::wait(&self.0, 0, -1);
            }
        }

        pub fn try_join(self) -> Result<(), Thread> {
            match self.0.load(Ordering::Acquire) {
                0 => Err(self),
                _ => Ok(()),
            }
        }
    }

    #[derive(Clone, Copy)]
    pub struct SignalMask;

    impl SignalMask {
        pub fn current() -> SignalMask {
            SignalMask
        }

        pub fn restore(&self) {}
    }

    pub fn set_up_current(_name: &core::ffi::CStr) {}

    pub struct NoCancel;

    impl NoCancel {
        pub fn new() -> NoCancel {
            NoCancel
        }
    }

    pub struct ExactTimeouts;

    impl ExactTimeouts {
        pub fn ask_for() -> ExactTimeouts {
            ExactTimeouts
        }
    }
    #[derive(Clone, Copy)]
    pub enum Turns {
        Short,
        Usual,
    }

    pub fn ask_for_turns(_: i32, _: Turns) {}

    pub fn id() -> i32 {
        // The kernel numbers threads from 1.
        usize::from(shuttle::thread::current().id()) as i32 + 1
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    pub enum State {
        Runs,
        InCall,
        InFault,
    }

    pub fn state(id: i32) -> State {
        match machine::sleeps(id - 1) {
            true if machine::is_in_fault(id - 1) => State::InFault,
            true => State::InCall,
            false => State::Runs,
        }
    }

    pub fn cpu_time(id: i32) -> Option<i64> {
        // Another for each sleep. A thread that doesn't sleep has run since it was last seen.
        let asleep = machine::sleep_of(id - 1).map(|number| -(number as i64));
        Some(asleep.unwrap_or_else(|| super::time::now() + 1))
    }

    pub fn own_cpu_time() -> i64 {
        super::time::now()
    }

    pub fn is_on_cpu(id: i32) -> bool {
        !machine::sleeps(id - 1)
    }

    pub fn send_signal(id: i32, _signal: i32) {
        machine::send_signal(id - 1);
    }

    pub fn unblock(_signal: i32) -> SignalMask {
        SignalMask
    }

    pub fn stack_bounds() -> (usize, usize) {
        (0, 0)
    }

    /// No model asks for the numbers of the library's threads.
    pub fn lock_own() {}

    pub fn unlock_own() {}

    pub fn forget_own() {}

    /// No model asks for the stack of a forked child's thread.
    pub fn forked_on(_stack: (usize, usize)) {}

    pub fn count() -> usize {
        machine::threads()
    }

    pub fn yield_now() {
        shuttle::thread::yield_now();
    }

    /// What is called before a fork, and afterwards in the parent.
    static AT_FORK: OnceLock<(extern "C" fn(), extern "C" fn())> = OnceLock::new();

    pub fn at_fork(before: extern "C" fn(), parent: extern "C" fn(), _child: extern "C" fn()) {
        // Each run of a model loads the library.
        AT_FORK.get_or_init(|| (before, parent));
    }

    /// fork(2) as the parent sees it: the C library's heap is locked meanwhile. `look` is called when the child would
    /// be made.
    pub fn fork(look: impl FnOnce()) {
        let &(before, parent) = AT_FORK.get().expect("the library is loaded");
        before();
        super::c_heap::lock();
        look();
        super::c_heap::unlock();
        parent();
    }

    pub fn exit_process() -> ! {
        unreachable!("nothing forks here")
    }
}

/// No model has bubbles.
pub mod stand_in {
    pub fn knows(_: i32) -> bool {
        false
    }
}

/// No model fails by a seed.
pub mod failing {
    pub fn say(_: String) {}
    pub fn write_line() {}
}
