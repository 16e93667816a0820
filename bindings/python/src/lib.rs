//! `gosched._gosched`: libgosched's goroutines for Python.
//!
//! - `worker`: the threads that run goroutines of Python, and the end of it all.
//! - `goroutine`: what runs there.
//! - `state`: thread states, and leaving and entering Python around waits.
//! - `park`: waiting. Every call that may wait goes through it.
//! - `capi`: what C extensions get, with `format` for the items of channels that they share.
//! - `fast`: in front of the methods that are called the most.
//! - `builtin`: functions of Python that look like built-in ones.
//! - `signals`: notices signals while a goroutine computes, or none runs.
//! - `own`: which threads of the process are the package's own.
//! - `watch`: looks for goroutines that hold a thread up.
//! - `shared`: what guards the data of all these.
//! - `channel`, `sync`, `queue`, `io`, `blocking`: what goroutines wait for.

mod blocking;
mod builtin;
mod capi;
mod channel;
mod errors;
mod fast;
mod ffi;
mod format;
mod goroutine;
mod info;
mod io;
mod own;
mod park;
mod queue;
mod shared;
mod signals;
mod state;
mod sync;
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
    state::init(py)?;
    park::init();
    goroutine::init();
    worker::init()?;
    fast::init(py)?;
    m.add("Closed", py.get_type::<errors::Closed>())?;
    m.add("Cancelled", py.get_type::<errors::Cancelled>())?;
    m.add_class::<goroutine::Goroutine>()?;
    m.add_class::<channel::Channel>()?;
    m.add_class::<sync::Lock>()?;
    m.add_class::<sync::RLock>()?;
    m.add_class::<sync::Semaphore>()?;
    m.add_class::<sync::Event>()?;
    m.add_class::<sync::WaitGroup>()?;
    m.add_class::<sync::RWMutex>()?;
    m.add_class::<watch::Watch>()?;
    m.add("_SimpleQueue", py.get_type::<queue::SimpleQueue>())?;
    m.add("_C_API", capi::capsule(py)?)?;
    macro_rules! add {
        ($($f:path)*) => { $(m.add_function(wrap_pyfunction!($f, m)?)?;)* };
    }
    add! {
        goroutine::go goroutine::spawn goroutine::_spawn_first goroutine::current goroutine::main goroutine::get_ident
        goroutine::yield_ goroutine::_give_way goroutine::sleep goroutine::_push_timeout goroutine::_pop_timeout
        goroutine::goroutines goroutine::num_goroutines goroutine::_are_threads sync::_waiter_lock
        sync::_inner_lock sync::_inner_rlock
        channel::select channel::after channel::_ticker channel::_ticker_stop
        builtin::_built_in
        blocking::blocking blocking::_wait_for_semaphore park::checkpoint_py park::_through watch::_busy watch::_ticks
        own::_own_thread own::_warns_of_own_threads
        io::wait_read io::wait_write io::wait_fds io::cancel_fd io::adopt io::close io::recv io::recv_into io::send io::sendall
        io::read io::write io::accept
        info::version info::gomaxprocs info::nodes info::stats info::_dump
        signals::_listen signals::_wait_for_signal signals::_is_raising signals::_interrupt_main signals::_restarts
        worker::_check_signals worker::_finalize worker::_is_ending worker::_forked state::_before_fork state::_after_fork
    }
    #[cfg(Py_GIL_DISABLED)]
    m.add_function(wrap_pyfunction!(worker::_settle, m)?)?;
    Ok(())
}
