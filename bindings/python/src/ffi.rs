//! What the module uses of `gosched.h`.

use std::ffi::{c_char, c_int, c_void};

/// Waits without a deadline.
pub const GS_FOREVER: i64 = -1;
/// Doesn't wait.
pub const GS_NOWAIT: i64 = 0;
pub const GS_SPAWN_PINNED: u32 = 1;
pub const GS_SPAWN_NOSIGNAL: u32 = 4;
pub const GS_WORKERS_RUNNER: u32 = 1;
pub const GS_SEND: c_int = 1;
pub const GS_RECV: c_int = 2;

pub const GS_TEST_CRASH: u32 = 2;
pub const GS_TEST_STRICT: u32 = 4;

macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[repr(C)]
        #[allow(non_camel_case_types)]
        pub struct $name {
            _private: [u8; 0],
        }
    )*};
}

opaque! { gs_g gs_chan gs_workers }

/// A semaphore. All bytes zero: no units.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct gs_sem {
    opaque: [u64; 6],
}

impl gs_sem {
    pub const fn new() -> gs_sem {
        gs_sem { opaque: [0; 6] }
    }
}

#[repr(C)]
#[allow(non_camel_case_types)]
pub struct gs_case {
    pub ch: *mut gs_chan,
    pub elem: *mut c_void,
    pub op: c_int,
    pub result: c_int,
}

#[repr(C)]
#[allow(non_camel_case_types)]
pub struct gs_spawn_opts {
    pub size: usize,
    pub name: *const c_char,
    pub stack_size: usize,
    pub priority: c_int,
    pub node: c_int,
    pub flags: u32,
    pub reserved: u32,
    pub data: *mut c_void,
    pub workers: *mut gs_workers,
}

#[repr(C)]
#[derive(Default)]
#[allow(non_camel_case_types)]
pub struct gs_stats {
    pub size: usize,
    pub goroutines: u64,
    pub created: u64,
    pub ended: u64,
    pub procs: u64,
    pub idle_procs: u64,
    pub threads: u64,
    pub switches: u64,
    pub handoffs: u64,
    pub steals_near: u64,
    pub steals_remote_queue: u64,
    pub steals_remote_p: u64,
    pub stacks_sent_home: u64,
    pub migrations: u64,
    pub pages_moved: u64,
}

#[repr(C)]
#[allow(non_camel_case_types)]
pub struct gs_frame {
    pub function: *const c_char,
    pub file: *const c_char,
    pub line: c_int,
}

#[repr(C)]
#[allow(non_camel_case_types)]
pub struct gs_test_net {
    pub delay: i64,
    pub jitter: i64,
    pub loss: u32,
    pub duplicate: u32,
    pub cut: u32,
    pub reset: u32,
    pub refuse: u32,
    pub short_io: u32,
}

#[repr(C)]
#[allow(non_camel_case_types)]
pub struct gs_test_opts {
    pub size: usize,
    pub seed: u64,
    pub schedule: u32,
    pub depth: u32,
    pub max_steps: u64,
    pub check: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    pub check_arg: *mut c_void,
    pub replay: *const c_char,
    pub flags: u32,
    pub log: c_int,
    pub net: gs_test_net,
    pub report: c_int,
    pub reserved: u32,
}

#[allow(non_camel_case_types)]
pub type gs_frames_hook =
    unsafe extern "C" fn(*mut c_void, *mut gs_g, *mut gs_frame, usize) -> usize;

#[allow(non_camel_case_types)]
pub type gs_fn = unsafe extern "C" fn(*mut c_void);

unsafe extern "C" {
    pub fn gs_version() -> *const c_char;
    pub fn gs_strerror(err: c_int) -> *const c_char;
    pub fn gs_now() -> i64;
    pub fn gs_attach(flags: u32) -> c_int;
    pub fn gs_hold() -> c_int;
    pub fn gs_workers_create(n: c_int, flags: u32) -> *mut gs_workers;
    pub fn gs_spawn_with(
        f: gs_fn,
        arg: *mut c_void,
        opts: *const gs_spawn_opts,
        out: *mut *mut gs_g,
    ) -> c_int;
    pub fn gs_self() -> *mut gs_g;
    pub fn gs_data(g: *const gs_g) -> *mut c_void;
    pub fn gs_set_data(g: *mut gs_g, data: *mut c_void) -> c_int;
    pub fn gs_retain(g: *mut gs_g) -> *mut gs_g;
    pub fn gs_join(g: *mut gs_g, deadline: i64) -> c_int;
    pub fn gs_release(g: *mut gs_g);
    pub fn gs_cancel(g: *mut gs_g) -> c_int;
    pub fn gs_uncancel() -> c_int;
    pub fn gs_cancel_disable() -> c_int;
    pub fn gs_cancel_enable() -> c_int;
    pub fn gs_yield();
    pub fn gs_sleep_until(deadline: i64) -> c_int;
    pub fn gs_chan_make(size: usize, capacity: usize) -> *mut gs_chan;
    pub fn gs_chan_free(c: *mut gs_chan) -> c_int;
    pub fn gs_chan_send(c: *mut gs_chan, elem: *const c_void, deadline: i64) -> c_int;
    pub fn gs_chan_recv(c: *mut gs_chan, elem: *mut c_void, deadline: i64) -> c_int;
    pub fn gs_chan_put(c: *mut gs_chan, elem: *const c_void) -> c_int;
    pub fn gs_chan_take(c: *mut gs_chan, elem: *mut c_void) -> c_int;
    pub fn gs_chan_close(c: *mut gs_chan) -> c_int;
    pub fn gs_chan_len(c: *const gs_chan) -> usize;
    pub fn gs_select(cases: *mut gs_case, n: usize, deadline: i64) -> c_int;
    pub fn gs_sem_acquire(s: *mut gs_sem, n: i64, deadline: i64) -> c_int;
    pub fn gs_sem_release(s: *mut gs_sem, n: i64) -> c_int;
    pub fn gs_adopt(fd: c_int) -> c_int;
    pub fn gs_close(fd: c_int) -> c_int;
    pub fn gs_poll_fd(fd: c_int, events: c_int, deadline: i64) -> c_int;
    pub fn gs_socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    pub fn gs_unix_pair(fds: *mut c_int) -> c_int;
    pub fn gs_bind(fd: c_int, addr: *const c_void, len: u32) -> c_int;
    pub fn gs_listen(fd: c_int, backlog: c_int) -> c_int;
    pub fn gs_connect(fd: c_int, addr: *const c_void, len: u32, deadline: i64) -> c_int;
    pub fn gs_accept(fd: c_int, addr: *mut c_void, len: *mut u32, deadline: i64) -> c_int;
    pub fn gs_getsockname(fd: c_int, addr: *mut c_void, len: *mut u32) -> c_int;
    pub fn gs_getpeername(fd: c_int, addr: *mut c_void, len: *mut u32) -> c_int;
    pub fn gs_shutdown_fd(fd: c_int, how: c_int) -> c_int;
    pub fn gs_getsockopt(
        fd: c_int,
        level: c_int,
        name: c_int,
        value: *mut c_void,
        len: *mut u32,
    ) -> c_int;
    pub fn gs_setsockopt(
        fd: c_int,
        level: c_int,
        name: c_int,
        value: *const c_void,
        len: u32,
    ) -> c_int;
    pub fn gs_recvfrom(
        fd: c_int,
        buf: *mut c_void,
        n: usize,
        flags: c_int,
        addr: *mut c_void,
        len: *mut u32,
        deadline: i64,
    ) -> isize;
    pub fn gs_sendto(
        fd: c_int,
        buf: *const c_void,
        n: usize,
        flags: c_int,
        addr: *const c_void,
        len: u32,
        deadline: i64,
    ) -> isize;
    pub fn gs_recv(fd: c_int, buf: *mut c_void, n: usize, flags: c_int, deadline: i64) -> isize;
    pub fn gs_blocking(
        f: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
        arg: *mut c_void,
    ) -> *mut c_void;
    pub fn gs_lock_os_thread() -> c_int;
    pub fn gs_unlock_os_thread() -> c_int;
    pub fn gs_gomaxprocs(n: c_int) -> c_int;
    pub fn gs_own_threads(ids: *mut i32, n: usize) -> c_int;
    pub fn gs_numa_nodes() -> c_int;
    pub fn gs_stats_read(out: *mut gs_stats) -> c_int;
    pub fn gs_dump(fd: c_int) -> c_int;
    pub fn gs_add_frames(entry: Option<gs_fn>, f: gs_frames_hook, ctx: *mut c_void) -> c_int;
    pub fn gs_dump_json(fd: c_int) -> c_int;
    pub fn gs_leaks(fd: c_int) -> c_int;
    pub fn gs_stats_write(fd: c_int) -> c_int;
    pub fn gs_trace_start(fd: c_int) -> c_int;
    pub fn gs_trace_stop() -> c_int;
    pub fn gs_flight_start(ns: i64) -> c_int;
    pub fn gs_flight_stop() -> c_int;
    pub fn gs_flight_write(fd: c_int) -> c_int;
    pub fn gs_preempt_check();
    pub fn gs_preempt_now();
    pub fn gs_test_run(f: gs_fn, arg: *mut c_void, opts: *const gs_test_opts) -> c_int;
    pub fn gs_test_explore(f: gs_fn, arg: *mut c_void, opts: *const gs_test_opts, runs: u64)
    -> i64;
    pub fn gs_test_fail(why: *const c_char);
    pub fn gs_test_seed() -> u64;
    pub fn gs_preempt_flag() -> *const u32;
}
