//! The loop of every function that waits for a file: try, and wait while the system call would have
//! to.

use super::bell::Borrowed;
use super::error::{EAGAIN, ECANCELED, EINTR, ENOMEM, ETIMEDOUT};
use super::file::{File, PlainWaiter, Use, WaitLock};
use super::want::{EventCounts, Want, tag_of};
use crate::os::bell::Bell;
use crate::os::file::{self, FileKind};
use crate::os::time;
use crate::sched::run::park::{self, Block, FOREVER, NOWAIT};
use crate::sched::types::m;
use crate::sched::types::runtime::rt;
use crate::sched::types::waiter::{Cause, Parker, Why};
use crate::sched::wait::netpoll;
use core::ptr;

/// Number of wake-ups in vain after which a waiter pauses for `PAUSE` ns between its attempts: the
/// kernel reports some files as ready that aren't.
const IN_VAIN: u32 = 64;
const PAUSE: i64 = 1_000_000;
/// Errors that mean that epoll can't take the file for now, or that no descriptor is free for an
/// instance.
const NO_ROOM: [i32; 4] = [-libc::EMFILE, -libc::ENFILE, -libc::ENOSPC, -libc::ENOMEM];
/// Length of one sleep, in ns, of a waiter that can't be woken because no descriptor is free.
const SLICE: i64 = 10_000_000;

/// Whether the deadline has passed. Every I/O call checks this first.
pub fn is_past(deadline: i64) -> bool {
    deadline != FOREVER && deadline != NOWAIT && deadline <= time::now()
}

/// Repeats the system call until no signal has interrupted it.
#[inline(always)]
pub(super) fn until_uninterrupted(mut call: impl FnMut() -> isize) -> isize {
    loop {
        let result = call();
        if result != EINTR {
            return result;
        }
    }
}

/// Calls `once`, a system call that doesn't wait, until it returns something other than `-EAGAIN`
/// or `-EINTR`, and waits for the file in between.
pub fn until_done(
    fd: i32,
    file: &File,
    want: Want,
    deadline: i64,
    once: impl FnMut() -> isize,
) -> isize {
    if is_past(deadline) {
        return ETIMEDOUT;
    }
    until_done_in(fd, file, file.enter(), want, deadline, once)
}

/// `until_done` for a caller that has entered the file; `None`: the file has been closed.
#[inline(always)]
pub fn until_done_in(
    fd: i32,
    file: &File,
    entered: Option<Use<'_>>,
    want: Want,
    deadline: i64,
    mut once: impl FnMut() -> isize,
) -> isize {
    let mut attempt = || until_uninterrupted(&mut once);
    let Some(mut used) = entered else { return ECANCELED };
    let call = WaitingCall { fd, file, want, deadline, generation: used.generation };
    // Whether an event has woken the caller, as a taker.
    let mut woken = false;
    let (mut may_be_done, mut in_vain) = (false, 0);
    let may_skip = want.room > 0 && deadline != NOWAIT && m::on_goroutine().is_some();
    let mut drained = if may_skip { file.drained() } else { None };
    loop {
        let skipped = drained.take();
        let seen = skipped.unwrap_or_else(|| file.seen());
        let result = match skipped {
            Some(_) => EAGAIN,
            None => attempt(),
        };
        if result > 0 && (result as usize) < want.room {
            file.was_short(fd, seen);
        }
        drop(used);
        if result != EAGAIN || deadline == NOWAIT {
            return call.end(result, woken);
        }
        if let Some(at_end) = want.when_shut
            && (may_be_done || file.may_be_shut())
            && is_shut(fd)
        {
            // Data that came between the attempt and the shutdown is still there.
            let last = call.last_attempt(&mut attempt, at_end);
            return last.map_or(ECANCELED, |result| call.end(result, woken));
        }
        in_vain += u32::from(may_be_done);
        if in_vain > IN_VAIN {
            // A cancel ends the wait that follows.
            let _ = park::sleep_until(soon(PAUSE, deadline), Why::File);
        }
        let waited = match m::on_goroutine() {
            Some(_) => call.wait(seen, woken),
            None => call.wait_as_thread(),
        };
        match waited {
            Ok(by_event) => woken |= by_event,
            Err(e) => {
                let was_assumed = skipped.is_some() || file.is_ours();
                if let Some(result) = call.after_failed_wait(e, was_assumed, &mut attempt) {
                    return result;
                }
            }
        }
        may_be_done = true;
        match file.enter_again(call.generation) {
            Some(again) => used = again,
            None => return ECANCELED,
        }
    }
}

/// The end of a sleep of `ns` that the deadline may cut short.
fn soon(ns: i64, deadline: i64) -> i64 {
    let until = time::now() + ns;
    if deadline == FOREVER { until } else { until.min(deadline) }
}

/// Whether the file is shut down for reading.
#[cold]
fn is_shut(fd: i32) -> bool {
    let r = until_uninterrupted(|| file::poll_now(fd, libc::POLLRDHUP));
    r > 0 && r as i16 & libc::POLLRDHUP != 0
}

/// A call that may have to wait for its file.
#[derive(Clone, Copy)]
struct WaitingCall<'a> {
    fd: i32,
    file: &'a File,
    want: Want,
    /// In ns, or [`FOREVER`] or [`NOWAIT`].
    deadline: i64,
    /// The file's generation when the call began.
    generation: u32,
}

impl WaitingCall<'_> {
    /// The call ends with this result. A taker that an event has woken wakes the next taker,
    /// because there may be more.
    fn end(self, result: isize, woken: bool) -> isize {
        if woken {
            self.file.pass_on(self.want.side);
        }
        result
    }

    /// Makes the system call once more, for a call that ends in any case. Returns `otherwise` if
    /// the system call would have to wait. `None`: the file has been closed.
    fn last_attempt(self, attempt: impl FnOnce() -> isize, otherwise: isize) -> Option<isize> {
        let _used = self.file.enter_again(self.generation)?;
        match attempt() {
            EAGAIN => Some(otherwise),
            result => Some(result),
        }
    }

    /// The call's result after a wait that has failed with `e`; `None`: the caller tries again.
    /// `was_assumed`: the wait has relied on what was known of the number, which may be wrong.
    fn after_failed_wait(
        self,
        e: i32,
        was_assumed: bool,
        attempt: impl FnOnce() -> isize,
    ) -> Option<isize> {
        let result = e as isize;
        if result == ECANCELED {
            return Some(ECANCELED);
        }
        if !NO_ROOM.contains(&e) {
            if !was_assumed {
                return Some(result);
            }
            // Data that came in time counts even if no event reported it, and a file that epoll
            // refuses may need no wait.
            return self.last_attempt(attempt, result).or(Some(ECANCELED));
        }
        if is_past(self.deadline) {
            return Some(ETIMEDOUT);
        }
        match park::sleep_until(soon(SLICE, self.deadline), Why::File) {
            Cause::Woken | Cause::TimedOut => None,
            Cause::Cancelled => Some(ECANCELED),
            // There is no memory for the deadline of the wait either.
            Cause::NoMemory => Some(ENOMEM),
        }
    }

    /// Parks the goroutine until an event comes. `seen`: the counts before the system call.
    /// `again`: an event woke the caller before, as a taker, so it goes to the front of its queue.
    /// True: an event has woken the caller as a taker. False: otherwise, also if an event came
    /// before the caller could wait. In both cases the caller tries again.
    fn wait(self, seen: EventCounts, again: bool) -> Result<bool, i32> {
        let WaitingCall { fd, file, want, deadline, generation } = self;
        let (rt, p) = (rt(), m::with_p().expect("a goroutine has a P").p());
        let waiting = match file.lock_to_wait(generation, &want, seen) {
            WaitLock::Yes(waiting) => waiting,
            WaitLock::Closed => return Err(-libc::ECANCELED),
            WaitLock::Happened => return Ok(false),
        };
        if let Some(lists) = waiting.leave_dead_home(fd, rt) {
            waiting.unlock();
            lists.wake_to_try_again();
            return Ok(false);
        }
        let unused = Parker::for_thread();
        let begun = waiting.register(fd, &want, rt, p).and_then(|home| match home {
            Some(home) => {
                Block::begin(&unused, deadline, false, Why::File).map(|b| Some((home, b)))
            }
            None => Ok(None),
        });
        let (home, block) = match begun {
            Ok(Some(begun)) => begun,
            Ok(None) => {
                waiting.unlock();
                return Ok(false);
            }
            Err(e) => {
                waiting.unlock();
                return Err(e);
            }
        };
        let waiter = block.waiter(ptr::null::<()>());
        waiter.tag.set(tag_of(&want));
        // SAFETY: the waiter stays until this returns: an event or `leave` has taken it out then.
        unsafe { waiting.push(&want, &waiter, again) };
        netpoll::wait_begins(home);
        file.note_unverified();
        // SAFETY: the file's lock is held, and `unlock` releases it.
        let cause = unsafe { block.park_inline(File::unlock, ptr::from_ref(file) as usize) };
        netpoll::wait_ends(home);
        if !waiter.won.get() {
            file.leave(&want, &waiter);
            return Err(if cause == Cause::Woken { -libc::ECANCELED } else { cause.errno() });
        }
        // The thread that closes the file sets `ok`.
        if waiter.ok.get() { Err(-libc::ECANCELED) } else { Ok(want.is_taker()) }
    }

    /// Waits on a plain thread, with or without a runtime. The thread itself polls the file and its
    /// bell, which `gs_close` rings.
    #[cold]
    fn wait_as_thread(self) -> Result<bool, i32> {
        let WaitingCall { fd, file, want, deadline, generation } = self;
        // poll(2) takes such a file and never reports an event of it.
        if file::kind(fd)? == FileKind::Disk {
            return Err(-libc::EPERM);
        }
        let borrowed = Borrowed::take();
        let bell = borrowed.as_ref().map(Borrowed::bell);
        let waiter = PlainWaiter::new(bell);
        if !file.add_thread(generation, &waiter) {
            return Err(-libc::ECANCELED);
        }
        let until = if bell.is_some() { deadline } else { soon(SLICE, deadline) };
        let in_time = file::poll_two(fd, want.events, bell.map_or(-1, Bell::to_poll), until);
        let closed = file.remove_thread(&waiter);
        if closed {
            Err(-libc::ECANCELED)
        } else if !in_time && is_past(deadline) {
            Err(-libc::ETIMEDOUT)
        } else {
            Ok(false)
        }
    }
}
