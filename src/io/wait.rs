//! Trying until it needs no more waiting: the loop of every function that waits
//! for a file.

use super::bell::Borrowed;
use super::file::{File, Locked, PlainWaiter, Side, tag_of};
use crate::os::bell::Bell;
use crate::os::epoll::{ERR, HUP, IN, OUT, PRI, RDHUP};
use crate::os::file::{self, Kind};
use crate::os::time;
use crate::sched::core::netpoll::{self, Class};
use crate::sched::core::park::{self, Block, FOREVER, NOWAIT};
use crate::sched::who::m;
use crate::sched::who::runtime::rt;
use crate::sched::who::waiter::{Cause, Parker, Why};
use core::ptr;

/// Who has been woken in vain so often makes pauses, in ns: some files are said
/// to be ready when they aren't.
const IN_VAIN: u32 = 64;
const PAUSE: i64 = 1_000_000;
/// Epoll can't take the file for now, or there is no number for an instance.
const NO_ROOM: [i32; 4] = [-libc::EMFILE, -libc::ENFILE, -libc::ENOSPC, -libc::ENOMEM];
/// How long one that nobody can wake, for want of a number, sleeps at a time, in ns.
const SLICE: i64 = 10_000_000;

/// What an operation waits for.
#[derive(Clone, Copy)]
pub struct Want {
    pub side: Side,
    pub class: Class,
    /// The same in poll's words.
    pub events: i16,
    /// Of a read from a stream: how much there is room for. If it gives less, none
    /// may be left. 0: that says nothing.
    pub room: usize,
    /// 0: a taker. It wants what all takers of its side want, and one that is there goes
    /// to one of them: so if it finds nothing the others would not either. Else a watcher:
    /// it tries again after each of these events of epoll's, whatever the others do.
    pub watched: u32,
}

impl Want {
    pub const READ: Want = Want {
        side: Side::Read,
        class: Class::Read,
        events: libc::POLLIN | libc::POLLRDHUP,
        room: 0,
        watched: 0,
    };
    pub const WRITE: Want =
        Want { side: Side::Write, class: Class::Write, events: libc::POLLOUT, room: 0, watched: 0 };
    pub const ACCEPT: Want = Want { class: Class::Accept, ..Want::READ };
    /// For the end of an attempt to connect.
    pub const CONNECT: Want = Want { watched: OUT | ERR | HUP, ..Want::WRITE };
    /// For a message that not every writer could send now: to an address.
    pub const SEND_TO: Want = Want::CONNECT;

    /// For a read that takes what it gives.
    pub fn to_read(room: usize) -> Want {
        Want { room, ..Want::READ }
    }

    /// For recv(2) and its kin with these flags: what is no common read finds something
    /// where others find nothing, and the other way round (urgent data, errors).
    pub fn to_receive(flags: i32, room: usize) -> Want {
        const COMMON: i32 = libc::MSG_DONTWAIT
            | libc::MSG_CMSG_CLOEXEC
            | libc::MSG_NOSIGNAL
            | libc::MSG_TRUNC
            | libc::MSG_WAITALL;
        match flags {
            0 => Want::to_read(room),
            _ if flags & !COMMON == 0 => Want::READ,
            _ if flags & libc::MSG_ERRQUEUE != 0 => Want::events(0),
            _ if flags & libc::MSG_OOB != 0 => Want::events(libc::POLLPRI | libc::POLLRDHUP),
            _ => Want::events(libc::POLLIN | libc::POLLRDHUP),
        }
    }

    /// For events of poll's.
    pub fn events(events: i16) -> Want {
        let any = |wanted: i16, of_epoll: u32| if events & wanted != 0 { of_epoll } else { 0 };
        let readable = libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND;
        let read = any(readable, IN)
            | any(libc::POLLPRI | libc::POLLRDBAND, PRI)
            | any(libc::POLLRDHUP, RDHUP);
        let write = any(libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND, OUT);
        let (side, class) = match (read, write) {
            (0, OUT) => (Side::Write, Class::Write),
            _ => (Side::Read, Class::Read),
        };
        // Errors are told to all.
        Want { side, class, events, room: 0, watched: read | write | ERR | HUP }
    }
}

/// Whether the deadline has passed; for I/O that comes first.
pub fn is_past(deadline: i64) -> bool {
    deadline != FOREVER && deadline != NOWAIT && deadline <= time::now()
}

/// Calls `once`, a system call that doesn't wait, until it gives something else
/// than `-EAGAIN` or `-EINTR`, and waits for the file in between.
pub fn until_done(
    fd: i32,
    file: &File,
    want: Want,
    deadline: i64,
    mut once: impl FnMut() -> isize,
) -> isize {
    const EAGAIN: isize = -libc::EAGAIN as isize;
    const EINTR: isize = -libc::EINTR as isize;
    const CANCELED: isize = -libc::ECANCELED as isize;
    if is_past(deadline) {
        return -libc::ETIMEDOUT as isize;
    }
    let mut attempt = || loop {
        match once() {
            EINTR => {}
            result => break result,
        }
    };
    let Some(mut used) = file.enter() else { return CANCELED };
    let generation = used.generation;
    // Woken by an event, as a taker: then the next one is woken if there may be more.
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
            if woken {
                file.pass_on(want.side);
            }
            return result;
        }
        in_vain += u32::from(may_be_done);
        if in_vain > IN_VAIN {
            let until = time::now() + PAUSE;
            let until = if deadline == FOREVER { until } else { until.min(deadline) };
            let _ = park::sleep_until(until, Why::File);
        }
        let waited = match m::on_goroutine() {
            Some(_) => wait(fd, file, want, deadline, generation, seen, woken),
            None => wait_as_thread(fd, file, want, deadline, generation),
        };
        match waited {
            Ok(by_event) => woken |= by_event,
            Err(e) if e == -libc::ECANCELED => return CANCELED,
            // The wait has relied on what was known of the number, and that may be wrong:
            // what has come in time counts even if it was not told, and what epoll
            // doesn't take may be a file that need not be waited for.
            Err(e) if (skipped.is_some() || file.is_ours()) && !NO_ROOM.contains(&e) => {
                let Some(_used) = file.enter_again(generation) else { return CANCELED };
                return match attempt() {
                    EAGAIN => e as isize,
                    result => result,
                };
            }
            Err(e) if NO_ROOM.contains(&e) => {
                if is_past(deadline) {
                    return -libc::ETIMEDOUT as isize;
                }
                let soon = time::now() + SLICE;
                let until = if deadline == FOREVER { soon } else { soon.min(deadline) };
                if park::sleep_until(until, Why::File) == Cause::Cancelled {
                    return CANCELED;
                }
            }
            Err(e) => return e as isize,
        }
        may_be_done = true;
        match file.enter_again(generation) {
            Some(again) => used = again,
            None => return CANCELED,
        }
    }
}

/// Parks the goroutine until something happens. True: an event has woken it, as a
/// taker; false also if something has happened before it could wait. Whoever is woken
/// tries again.
fn wait(
    fd: i32,
    file: &File,
    want: Want,
    deadline: i64,
    generation: u32,
    seen: super::file::Seen,
    again: bool,
) -> Result<bool, i32> {
    let (rt, p) = (rt(), m::with_p().expect("a goroutine has a P").p());
    let waiting = match file.lock_to_wait(generation, &want, seen) {
        Locked::Yes(waiting) => waiting,
        Locked::Closed => return Err(-libc::ECANCELED),
        Locked::Happened => return Ok(false),
    };
    if let Some(lists) = waiting.leave_dead_home(fd, rt) {
        waiting.unlock();
        lists.wake_to_try_again();
        return Ok(false);
    }
    let unused = Parker::for_thread();
    let begun = waiting.register(fd, rt, p).and_then(|home| {
        Block::begin(&unused, deadline, false, Why::File).map(|block| (home, block))
    });
    let (home, block) = match begun {
        Ok(begun) => begun,
        Err(e) => {
            waiting.unlock();
            return Err(e);
        }
    };
    let waiter = block.waiter();
    waiter.tag.set(tag_of(&want));
    waiting.push(&want, &waiter, again);
    netpoll::wait_begins(home);
    file.note_unverified();
    // SAFETY: the file's lock is held, and `unlock` releases it.
    let cause = unsafe { block.park_inline(File::unlock, ptr::from_ref(file) as usize) };
    netpoll::wait_ends(home);
    if !waiter.won.get() {
        file.leave(&want, &waiter);
        return Err(if cause == Cause::Woken { -libc::ECANCELED } else { cause.errno() });
    }
    // Set by who closes the file.
    if waiter.ok.get() { Err(-libc::ECANCELED) } else { Ok(want.watched == 0) }
}

/// A plain thread waits by itself, whether there is a runtime or not; only
/// `gs_close` has to wake it.
#[cold]
fn wait_as_thread(
    fd: i32,
    file: &File,
    want: Want,
    deadline: i64,
    generation: u32,
) -> Result<bool, i32> {
    // poll(2) takes such a file and never tells anything of it.
    if file::kind(fd)? == Kind::Disk {
        return Err(-libc::EPERM);
    }
    let borrowed = Borrowed::take();
    let bell = borrowed.as_ref().map(Borrowed::bell);
    let waiter = PlainWaiter::new(bell);
    if !file.add_thread(generation, &waiter) {
        return Err(-libc::ECANCELED);
    }
    let soon = time::now() + SLICE;
    let until = match deadline {
        _ if bell.is_some() => deadline,
        FOREVER => soon,
        _ => soon.min(deadline),
    };
    let in_time = file::poll_two(fd, want.events, bell.map_or(-1, Bell::to_poll), until);
    let closed = file.remove_thread(&waiter);
    match () {
        _ if closed => Err(-libc::ECANCELED),
        _ if !in_time && is_past(deadline) => Err(-libc::ETIMEDOUT),
        _ => Ok(false),
    }
}
