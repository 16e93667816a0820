//! Starting and ending traces, and what the tracer asks of the scheduler.

use super::stopping;
use crate::os::{file, log, process};
use crate::sched::prim::limits;
use crate::sched::run::traced;
use crate::sched::take::call;
use crate::sched::types::g::{GRef, Status};
use crate::sched::types::runtime::{Guest, Visit, rt};
use crate::trace::{self, GoState, List, Listed, Points};
use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;

const _: () = assert!(trace::PROCS == limits::PROCS);

static POINTS: Points = Points { with_world_stopped, list, procs };

/// Once, when the library is loaded.
pub fn on_load() {
    trace::on_load(&POINTS);
}

/// Runs a request to the tracer, which may take long, as an announced call. `-EDEADLK`: the caller
/// has stopped the world, and the tracer stops it too.
pub fn ask(request: impl FnOnce() -> i32) -> i32 {
    if stopping::has_stopped() {
        return -libc::EDEADLK;
    }
    call::enter();
    let answer = request();
    call::exit();
    answer
}

/// Whether this process, or a parent before a fork, has looked at the environment.
static LOOKED: AtomicBool = AtomicBool::new(false);
/// Whether this process is the child of a process that had the library.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// In the child of a fork.
///
/// # Safety
/// The caller is the child's only thread.
pub unsafe fn forked() {
    LOOKED.store(false, Ordering::Relaxed);
    IS_CHILD.store(true, Ordering::Relaxed);
    // SAFETY: as the caller says.
    unsafe { trace::forked() };
}

/// The flight recorder of `GOSCHED_FLIGHT` keeps the events of this time, in ns.
const KEPT: i64 = 10_000_000_000;

/// For a thread that has made a runtime: starts the trace that `GOSCHED_TRACE` asks for, which ends
/// with the process or after `GOSCHED_TRACE_SECONDS`, and the flight recorder of `GOSCHED_FLIGHT`,
/// which a failure writes out.
pub fn start_by_environment() {
    if LOOKED.swap(true, Ordering::AcqRel) {
        return;
    }
    if let Some(path) = path_of("GOSCHED_FLIGHT") {
        let e = ask(|| trace::flight_start(KEPT));
        if e == 0 {
            trace::flight_file(path);
        } else {
            log::say(format_args!("gosched: no flight recorder: {}", text_of(e)));
        }
    }
    let Some(path) = path_of("GOSCHED_TRACE") else { return };
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
    let fd = file::keep_for_library(file::open(&path, flags, 0o666));
    let seconds = std::env::var("GOSCHED_TRACE_SECONDS").ok().and_then(|s| s.parse::<f64>().ok());
    let e = match seconds {
        _ if fd < 0 => fd,
        Some(s) if s > 0.0 => ask(|| trace::trace_for(fd, (s * 1e9) as i64)),
        _ => ask(|| trace::trace_start(fd)),
    };
    if e != 0 {
        log::say(format_args!("gosched: no trace in {}: {}", path.to_string_lossy(), text_of(e)));
        return;
    }
    extern "C" fn stop() {
        match ask(trace::trace_stop) {
            // The trace has ended before, by `GOSCHED_TRACE_SECONDS` or by a call.
            0 => {}
            e if e == -libc::EINVAL => {}
            e => log::say(format_args!("gosched: the trace is not whole: {}", text_of(e))),
        }
    }
    process::at_exit(stop);
}

/// The system's text for a negative errno value.
fn text_of(e: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(-e)
}

/// The path in a variable of the environment. `None`: there is none; or it has no `%p`, and the
/// process is a fork's child, whose parent has that file; or the program is privileged, and whoever
/// has started it must not choose which file it overwrites.
fn path_of(variable: &str) -> Option<CString> {
    let path = std::env::var_os(variable).filter(|path| !path.is_empty())?.into_vec();
    if process::is_privileged() {
        log::say(format_args!("gosched: {variable} is ignored in a privileged program"));
        return None;
    }
    let path_of_process = process::expand_name(&path)?;
    let has_number = path_of_process.as_bytes() != path;
    (has_number || !IS_CHILD.load(Ordering::Relaxed)).then_some(path_of_process)
}

fn with_world_stopped(f: &mut dyn FnMut()) {
    // While this exists no thread ends the runtime, or makes one.
    let inside = Guest::enter_if_there();
    let stops = inside.is_some() && stopping::stop() == 0;
    f();
    if stops {
        stopping::start();
    }
}

fn procs() -> usize {
    Visit::begin().map_or(0, |rt| rt.procs())
}

fn list(f: List) {
    let Some(_runtime) = Visit::begin() else { return };
    let mut in_call = Vec::new();
    rt().for_each_m(|m| {
        // SAFETY: null or a descriptor, which stays mapped.
        if let Some(g) = unsafe { GRef::from_nullable(m.curg.seen()) } {
            in_call.push((g, m));
        }
    });
    rt().for_each_g(|g| {
        // SAFETY: `g` is a descriptor.
        let g = unsafe { GRef::from_ptr(g) };
        if g.is_in_bubble() {
            return;
        }
        let on = in_call.iter().find(|(h, _)| *h == g).map(|(_, m)| *m);
        let state = match g.status() {
            // With the world stopped a goroutine that has an M is in a call or has lost its P.
            _ if on.is_some() => GoState::Syscall,
            Status::Waiting => GoState::Waiting,
            Status::Runnable => GoState::Runnable,
            _ => return,
        };
        if g.id.load(Ordering::Relaxed) != 0 {
            let stream = on.and_then(|m| m.stream());
            f(Listed { go: traced::go(&g), state, stream });
        }
    });
}
