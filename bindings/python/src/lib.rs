//! `gosched._gosched`: libgosched's goroutines for Python.
//!
//! From the top down. A file uses only files further down: `tests/rooms.rs` of the repository
//! checks that, and `cargo test --test rooms python_module -- --nocapture` prints which file uses
//! which.
//!
//! - `lib`: the module's functions and classes.
//! - `worker::finish`: the end of Python, and forks.
//! - `channel`, `queue`, the classes of `sync`, `network`, `io`, `blocking`, `sleep`: what goroutines wait
//!   for; `signals`: notices signals while a goroutine computes, or none runs; `watch`: looks for
//!   goroutines that hold a thread up; `own`: which threads of the process are the package's own;
//!   `info`: what the runtime is and does; `capi`: what C extensions get, with `handle` and
//!   `format`; `fast`: in front of the methods that are called the most; `goroutine::go`,
//!   `goroutine::methods`: Python's side of goroutines.
//! - `lookers`: waiting for several files in a bubble.
//! - `park`: waiting. Every call that may wait goes through it.
//! - `worker::start`: makes sure that there is a thread for goroutines.
//! - `goroutine::spawn`: makes goroutines; `goroutine::body`: what runs there.
//! - `worker::current`: the running goroutine, and calls that leave Python and are no wait.
//! - `outside`: leaving and entering Python around waits.
//! - `goroutine::object`: the object of a goroutine.
//! - `frames`: what the library's dumps and traces show of a goroutine.
//! - `shared`: what guards the data of all these; `interpreter`, `errors`, `ffi`, `sem`, `forks`,
//!   `builtin`: the rest.
//!
//! `sys` has what differs between a Python with a GIL and a free-threaded one.

mod blocking;
mod bubble;
mod builtin;
mod capi;
mod channel;
mod errors;
mod fast;
mod ffi;
mod forks;
mod format;
mod frames;
mod goroutine;
mod handle;
mod info;
mod interpreter;
mod io;
mod lookers;
mod network;
mod outside;
mod own;
mod park;
mod queue;
mod sem;
mod shared;
mod signals;
mod sleep;
mod sync;
mod sys;
mod testing;
mod watch;
mod worker;

use pyo3::prelude::*;

/// What of gosched is written in Rust. Use it by way of the package.
#[pymodule(gil_used = false)]
fn _gosched(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    // SAFETY: the GIL is held.
    if unsafe { pyo3::ffi::PyInterpreterState_Get() != pyo3::ffi::PyInterpreterState_Main() } {
        return Err(pyo3::exceptions::PyImportError::new_err(
            "gosched works in the main interpreter only, not in sub-interpreters",
        ));
    }
    interpreter::init(py)?;
    goroutine::body::init()?;
    park::init();
    worker::finish::init()?;
    fast::init(py)?;
    m.add("Closed", py.get_type::<errors::Closed>())?;
    m.add("Cancelled", py.get_type::<errors::Cancelled>())?;
    m.add_class::<goroutine::object::Goroutine>()?;
    m.add_class::<channel::Channel>()?;
    m.add_class::<sync::lock::Lock>()?;
    m.add_class::<sync::rlock::RLock>()?;
    m.add_class::<sync::semaphore::Semaphore>()?;
    m.add_class::<sync::event::Event>()?;
    m.add_class::<sync::wait_group::WaitGroup>()?;
    m.add_class::<sync::rw_mutex::RWMutex>()?;
    m.add_class::<watch::Watch>()?;
    m.add_class::<bubble::Stop>()?;
    m.add("_SimpleQueue", py.get_type::<queue::SimpleQueue>())?;
    m.add("_C_API", capi::capsule(py)?)?;
    macro_rules! add {
        ($($f:path)*) => { $(m.add_function(wrap_pyfunction!($f, m)?)?;)* };
    }
    add! {
        goroutine::go::go goroutine::go::spawn goroutine::go::_spawn_first goroutine::go::current goroutine::go::main
        goroutine::go::_are_threads goroutine::go::_as_threads goroutine::object::_want_stack goroutine::list::goroutines goroutine::list::num_goroutines
        goroutine::thrown::_is_raising worker::current::get_ident
        sleep::yield_ sleep::_give_way sleep::sleep sleep::monotonic sleep::monotonic_ns sleep::time sleep::time_ns
        sleep::_push_timeout sleep::_pop_timeout
        sync::lock::_waiter_lock sync::lock::_inner_lock sync::rlock::_inner_rlock
        channel::select channel::after channel::_ticker channel::_ticker_stop
        builtin::_built_in
        blocking::blocking blocking::_wait_for_semaphore park::checkpoint_py park::_through watch::_busy watch::_ticks
        own::_own_thread own::_warns_of_own_threads
        io::wait_read io::wait_write io::wait_fds io::cancel_fd io::adopt io::close io::recv io::recv_into io::send io::sendall
        io::read io::write io::accept
        info::version info::gomaxprocs info::nodes info::stats info::_dump info::_dump_json info::_leaks info::_metrics
        info::_trace_start info::_trace_stop info::_flight_start info::_flight_stop info::_flight_write
        signals::_listen signals::_wait_for_signal signals::_interrupt_main signals::_restarts signals::_check_signals
        worker::finish::_finalize worker::finish::_forked worker::ending::_is_ending
        testing::_test_run testing::_test_fail testing::_test_seed testing::_test_now frames::_hide_frames
        network::_net_run network::_net_socket network::_net_pair network::_net_knows network::_net_bind network::_net_listen
        network::_net_connect network::_net_accept network::_net_name network::_net_shutdown network::_net_getsockopt
        network::_net_setsockopt network::_net_recv network::_net_recv_into network::_net_send
        interpreter::_before_fork interpreter::_after_fork
    }
    sys::add_functions(m)
}
