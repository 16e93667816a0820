//! Trying until it needs no more waiting: the loop of every function that waits
//! for a file.

use super::file::{File, Locked, PlainWaiter, SIDES, Side, tag_of};
use crate::os::{epoll, file, time};
use crate::sched::netpoll::{self, Class};
use crate::sched::park::{self, Block, Cause, FOREVER, NOWAIT, Parker, Why};
use crate::sched::runtime::rt;
use crate::sched::schedule;
use core::ptr;

/// Who has been woken in vain so often makes pauses, in ns: some files are said
/// to be ready when they aren't.
const IN_VAIN: u32 = 64;
const PAUSE: i64 = 1_000_000;
/// How long a plain thread that nobody can wake sleeps at a time, in ns.
const SLICE: i64 = 10_000_000;

/// What an operation waits for.
#[derive(Clone, Copy)]
pub struct Want {
    pub sides: &'static [Side],
    pub class: Class,
    /// The same in poll's words.
    pub events: i16,
    /// Of a read from a stream: how much there is room for. If it gives less, none
    /// may be left. 0: that says nothing.
    pub room: usize,
}

impl Want {
    pub const READ: Want = Want {
        sides: &[Side::Read],
        class: Class::Read,
        events: libc::POLLIN | libc::POLLRDHUP,
        room: 0,
    };
    pub const WRITE: Want =
        Want { sides: &[Side::Write], class: Class::Write, events: libc::POLLOUT, room: 0 };
    pub const ACCEPT: Want = Want { class: Class::Accept, ..Want::READ };

    /// For a read that takes what it gives.
    pub fn to_read(room: usize) -> Want {
        Want { room, ..Want::READ }
    }

    /// For events of poll's.
    pub fn events(events: i16) -> Want {
        let read = libc::POLLIN | libc::POLLPRI | libc::POLLRDHUP | libc::POLLRDNORM;
        let read = events & (read | libc::POLLRDBAND) != 0;
        let write = events & (libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND) != 0;
        let (sides, class): (&[Side], Class) = match (read, write) {
            (true, true) => (&SIDES, Class::Read),
            (false, true) => (&[Side::Write], Class::Write),
            // Errors come on both sides.
            _ => (&[Side::Read], Class::Read),
        };
        Want { sides, class, events, room: 0 }
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
    if is_past(deadline) {
        return -libc::ETIMEDOUT as isize;
    }
    let mut attempt = || loop {
        match once() {
            EINTR => {}
            result => break result,
        }
    };
    let mut used = file.enter();
    let generation = used.generation;
    let (mut woken, mut in_vain) = (None, 0);
    let mut may_be_done = false;
    let may_skip = want.room > 0 && deadline != NOWAIT && schedule::on_goroutine().is_some();
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
            if let Some(side) = woken {
                file.pass_on(side);
            }
            return result;
        }
        in_vain += u32::from(may_be_done);
        if in_vain > IN_VAIN {
            let until = time::now() + PAUSE;
            let until = if deadline == FOREVER { until } else { until.min(deadline) };
            let _ = park::sleep_until(until, Why::File);
        }
        let waited = match schedule::on_goroutine() {
            Some(_) => wait(fd, file, want, deadline, generation, seen, woken.is_some()),
            None => wait_as_thread(fd, file, want, deadline, generation),
        };
        match waited {
            Ok(side) => woken = side.or(woken),
            // What has come in time but was not told yet counts.
            Err(e) if skipped.is_some() && e == -libc::ETIMEDOUT => {
                let used = file.enter_again(generation);
                return match used.map(|_used| attempt()) {
                    None => -libc::ECANCELED as isize,
                    Some(EAGAIN) => e as isize,
                    Some(result) => result,
                };
            }
            Err(e) => return e as isize,
        }
        may_be_done = true;
        match file.enter_again(generation) {
            Some(again) => used = again,
            None => return -libc::ECANCELED as isize,
        }
    }
}

/// Parks the goroutine until something happens. Gives the side on which it was
/// woken; none: something has happened before it could wait. Whoever is woken
/// tries again, and if that is no reason to wait wakes the next.
fn wait(
    fd: i32,
    file: &File,
    want: Want,
    deadline: i64,
    generation: u32,
    seen: super::file::Seen,
    again: bool,
) -> Result<Option<Side>, i32> {
    let (rt, p) = (rt(), schedule::with_p().expect("a goroutine has a P").p());
    let waiting = match file.lock_to_wait(generation, want.sides, seen) {
        Locked::Yes(waiting) => waiting,
        Locked::Closed => return Err(-libc::ECANCELED),
        Locked::Happened => return Ok(None),
    };
    if let Some(lists) = waiting.leave_dead_home(fd, rt) {
        waiting.unlock();
        // SAFETY: the lists are ours.
        lists.into_iter().for_each(|list| unsafe { park::ready_all(list) });
        return Ok(None);
    }
    let unused = Parker::for_thread();
    let begun = waiting.register(fd, rt, p).and_then(|home| {
        let several = want.sides.len() > 1;
        Block::begin(&unused, deadline, several, Why::File).map(|block| (home, block))
    });
    let (home, block) = match begun {
        Ok(begun) => begun,
        Err(e) => {
            waiting.unlock();
            return Err(e);
        }
    };
    let waiters = [block.waiter(), block.waiter()];
    for (waiter, &side) in waiters.iter().zip(want.sides) {
        waiter.tag.set(tag_of(want.class));
        waiting.push(side, waiter, again);
    }
    netpoll::wait_begins(home);
    file.note_unverified();
    // SAFETY: the file's lock is held, and `unlock` releases it.
    let cause = unsafe { block.park_inline(File::unlock, ptr::from_ref(file) as usize) };
    netpoll::wait_ends(home);
    let mut woken = None;
    for (waiter, &side) in waiters.iter().zip(want.sides) {
        if waiter.won.get() {
            woken = Some((side, waiter.ok.get()));
        } else {
            file.leave(side, waiter);
        }
    }
    match (cause, woken) {
        (Cause::Woken, Some((side, false))) => Ok(Some(side)),
        (Cause::Woken, _) => Err(-libc::ECANCELED),
        (cause, _) => Err(cause.errno()),
    }
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
) -> Result<Option<Side>, i32> {
    let bell = epoll::create_eventfd().unwrap_or(-1);
    let waiter = PlainWaiter::new(bell);
    if !file.add_thread(generation, &waiter) {
        if bell >= 0 {
            epoll::close(bell);
        }
        return Err(-libc::ECANCELED);
    }
    let soon = time::now() + SLICE;
    let until = match deadline {
        _ if bell >= 0 => deadline,
        FOREVER => soon,
        _ => soon.min(deadline),
    };
    let in_time = file::poll_two(fd, want.events, bell, until);
    let closed = file.remove_thread(&waiter);
    if bell >= 0 {
        epoll::close(bell);
    }
    match () {
        _ if closed => Err(-libc::ECANCELED),
        _ if !in_time && is_past(deadline) => Err(-libc::ETIMEDOUT),
        _ => Ok(None),
    }
}
