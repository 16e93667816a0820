//! libgosched: Go's scheduler as a C library. Its interface is `include/gosched.h`, which is
//! generated from [`capi`]; `libgosched.so` exports nothing else.
//!
//! `lib/` links the library. A Rust program may depend on this crate instead and call [`capi`]. The
//! program keeps its own allocator; then no signal preempts goroutines, unless the program asks for
//! a signal, or makes the library's heap its allocator by the feature `allocator`.
//!
//! # The rooms
//!
//! A room calls only those below it.
//!
//! - [`capi`], the C ABI: a file for each section of the header. Each function checks its
//!   arguments, calls a room below and turns the answer into an errno value.
//! - `replay`, tests of concurrent code: many runs of a function in a bubble, and the shortest
//!   schedule that fails.
//! - `observe`, what shows a running program to people: the metrics, the schedtrace, and the socket
//!   of `gosched-top`.
//! - `chan`, `sync` and `time`, what goroutines block on: channels and select; mutex, rwmutex,
//!   cond, waitgroup, semaphore and once; sleeping, timers and tickers. They block by
//!   `sched::run::park`, so they work from plain threads too, with deadlines and with cancelling.
//! - `io`, files that goroutines wait for: sockets, pipes and their like, by the poller; files on
//!   disks and names of hosts, by threads. Its `README.md` says what happens when a file is closed
//!   and its number comes back.
//! - `sched`, the scheduler: goroutines (G), threads (M), the right to run
//!   goroutines (P) and what the P's of a NUMA node share (Node). It
//!   has ten rooms of its own; its
//!   `README.md` says where each protocol is written down.
//! - `backtrace`: what a stack's frames are, and the names of their functions. It knows nothing of
//!   goroutines.
//! - `stack`: stacks that take memory as they are touched, with a guard below
//!   each, and the report when one overflows.
//! - `numa`: which CPUs make a node and how far nodes are from each other, by
//!   hwloc, or made up for tests.
//! - `arch`: the switch between stacks, a file for each CPU, and the one
//!   thread-local word: this thread's M.
//! - `os`, the room that calls the C library: futex, mmap, threads, signals, files, sockets, epoll,
//!   affinity, cgroup.
//!
//! # The life of a goroutine
//!
//! 1. `gs_spawn` fills a record of five words (`sched::types::task::Newborn`) and pushes
//!    it to the private queue of the P that the caller runs on (`sched::lifecycle::spawn`).
//! 2. If a P is idle and no M looks for work, a thread is woken to do so
//!    (`sched::prim::idle`, `sched::run::start`).
//! 3. Some M takes the record out of a queue or steals it (`sched::run::order`,
//!    `sched::run::steal`), gives it a descriptor with a warm stack (`sched::run::stacks`), maybe
//!    those of a goroutine that has just ended, and switches to it (`arch`).
//! 4. To block, the goroutine puts a waiter, on its own stack, into the queue of a channel or
//!    mutex and parks (`sched::run::park`): its M switches to the next goroutine of
//!    the P, which releases the object's lock.
//! 5. The waker takes the waiter out, claims it and puts the goroutine
//!    where it runs next (`sched::run::ready`).
//! 6. During a blocking system call any M may take the goroutine's P (`sched::take::call`);
//!    sysmon, a thread without a P, gives the P to another M when the call lasts.
//! 7. At the goroutine's end the stack stays with the descriptor, for the next goroutine.

#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod arch;
mod atomic;
mod backtrace;
pub mod capi;
mod chan;
mod cxx;
mod io;
mod numa;
mod observe;
mod os;
mod replay;
mod sched;
mod stack;
mod sync;
mod time;
mod trace;

/// Called when the library is loaded, so that the child of a fork finds every lock free. The
/// program's first call would be too late: another thread may fork during that call.
extern "C" fn on_load() {
    sched::lifecycle::init::on_load();
    sched::inspect::on_load();
    io::on_load();
    observe::on_load();
    capi::layout::on_load();
}

/// The loader calls the functions in this section. `gs_init` refers to this static, so that a
/// program with the static library has it too. Its priority is the highest, because a constructor
/// of such a program may start the runtime, wait for a file, or fork.
#[used]
#[unsafe(link_section = ".init_array.00000")]
pub(crate) static ON_LOAD: extern "C" fn() = on_load;
