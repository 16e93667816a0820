//! Halting threads in a signal handler, so that their registers and all memory stay as they are.
//!
//! ```text
//!   halter:  HALT = n, signals          thread:  takes a slot: its number, its context
//!            waits until each thread             waits until HALT isn't n
//!            has a slot
//!            HALT = 0, wakes all
//! ```
//!
//! A thread that halts may be anywhere, and may hold any lock. So the halter takes no lock, and
//! uses no heap, until the threads go on.

use super::{KeepErrno, PAGE, errno, futex, mem, thread, time};
use core::ffi::c_void;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};

/// A thread that has halted.
struct Slot {
    /// The kernel's number; 0: the slot is not filled yet.
    thread: AtomicI32,
    /// The `ucontext_t`; 0: the thread waits in a call of the library.
    context: AtomicUsize,
}

/// The most threads that can be halted. The slots take memory as they are used.
const MOST: usize = 64 << 10;

/// The number of the halt under way; 0: none. A futex word.
static HALT: AtomicU32 = AtomicU32::new(0);
/// The number of the last halt.
static LAST: AtomicU32 = AtomicU32::new(0);
/// The slots, which are never unmapped, because a thread may come late. Null: none yet.
static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(core::ptr::null_mut());
/// How many slots have been taken in this halt.
static TAKEN: AtomicUsize = AtomicUsize::new(0);
/// Held by the halter, through all attempts.
static HALTER: AtomicU32 = AtomicU32::new(0);

/// In the handler of a signal, on a thread that is to be halted: waits while there is a halt.
pub fn in_handler(context: *mut c_void) {
    let _errno = KeepErrno::new();
    wait(context as usize);
}

/// For a thread that was exempt from halts until now, and is about to run the user's code: waits
/// while there is a halt. The thread has stored what exempted it, by which halters know it.
pub fn wait_in_call() {
    // Pairs with the fence in `Halted::begin`: either the halter sees that the thread is exempt no
    // longer, or this thread sees the halt.
    fence(Ordering::SeqCst);
    wait(0);
}

fn wait(context: usize) {
    // Acquire: pairs with the Release in `begin`, by which there are slots.
    let halt = HALT.load(Ordering::Acquire);
    if halt == 0 {
        return;
    }
    let slots = SLOTS.load(Ordering::Acquire);
    let n = TAKEN.fetch_add(1, Ordering::Relaxed);
    if n < MOST {
        // SAFETY: there are `MOST` slots, which stay mapped; this one is the thread's own.
        let slot = unsafe { &*slots.add(n) };
        slot.context.store(context, Ordering::Relaxed);
        // Release: pairs with the Acquire in `has`.
        slot.thread.store(thread::id(), Ordering::Release);
    }
    while HALT.load(Ordering::Acquire) == halt {
        futex::wait(&HALT, halt, -1);
    }
}

/// In the child of a fork: there is no halt.
pub fn forked() {
    HALT.store(0, Ordering::Relaxed);
    HALTER.store(0, Ordering::Relaxed);
}

/// Proof that threads are halted. They go on when it is dropped.
#[must_use]
pub struct Halted(());

/// For how long a thread may not react to the signal, in ns.
const PATIENCE: i64 = 2_000_000_000;
/// The pause between two looks at the threads, in ns.
const PAUSE: i64 = 50_000;
/// After this number of looks the signal is sent again: its handler may have been in the wrong
/// place.
const LOOKS: u32 = 20;

impl Halted {
    /// Halts each thread of the process but the caller and those that `is_exempt` names, by a
    /// signal (0: there is none) whose handler calls [`in_handler`]. Fails with a negative errno
    /// value. `-EBUSY`: a thread doesn't react, or another thread halts.
    pub fn begin(signal: i32, is_exempt: &mut dyn FnMut(i32) -> bool) -> Result<Halted, i32> {
        if HALTER.swap(1, Ordering::Acquire) != 0 {
            return Err(-libc::EBUSY);
        }
        let halted = Halted(());
        if SLOTS.load(Ordering::Relaxed).is_null() {
            let slots = mem::reserve(MOST * size_of::<Slot>(), PAGE).ok_or(-libc::ENOMEM)?;
            // Release: pairs with the Acquire in `wait`.
            SLOTS.store(slots as *mut Slot, Ordering::Release);
        }
        let used = TAKEN.swap(0, Ordering::Relaxed).min(MOST);
        halted.slots(used).for_each(|slot| slot.thread.store(0, Ordering::Relaxed));
        let next = LAST.load(Ordering::Relaxed).wrapping_add(1).max(1);
        LAST.store(next, Ordering::Relaxed);
        // Release: pairs with the Acquire in `wait`.
        HALT.store(next, Ordering::Release);
        // Pairs with the fence in `wait_in_call`.
        fence(Ordering::SeqCst);
        let deadline = time::now() + PATIENCE;
        for look in 0u32.. {
            let mut missing = false;
            each_thread(&mut |id| {
                if id == thread::id() || is_exempt(id) || halted.has(id) || thread::is_zombie(id) {
                    return;
                }
                missing = true;
                if signal != 0 && look % LOOKS == 0 {
                    thread::send_signal(id, signal);
                }
            })?;
            if !missing {
                break;
            }
            if signal == 0 || time::now() > deadline {
                return Err(-libc::EBUSY);
            }
            time::sleep(PAUSE);
        }
        Ok(halted)
    }

    fn slots(&self, n: usize) -> impl Iterator<Item = &Slot> {
        let slots = SLOTS.load(Ordering::Relaxed);
        // SAFETY: there are `MOST` slots, which stay mapped.
        (0..n.min(MOST)).map(move |i| unsafe { &*slots.add(i) })
    }

    /// Whether the thread with this number has halted.
    fn has(&self, id: i32) -> bool {
        // Acquire: pairs with the Release in `wait`.
        self.slots(TAKEN.load(Ordering::Relaxed)).any(|s| s.thread.load(Ordering::Acquire) == id)
    }

    /// The interrupted contexts (`ucontext_t`) of the threads.
    pub fn contexts(&self) -> impl Iterator<Item = *const c_void> {
        let context = |slot: &Slot| slot.context.load(Ordering::Relaxed) as *const c_void;
        self.slots(TAKEN.load(Ordering::Relaxed)).map(context).filter(|c| !c.is_null())
    }
}

impl Drop for Halted {
    fn drop(&mut self) {
        HALT.store(0, Ordering::Release);
        futex::wake(&HALT, i32::MAX);
        HALTER.store(0, Ordering::Release);
    }
}

/// Calls `f` with the kernel's number of each thread of the process.
fn each_thread(f: &mut dyn FnMut(i32)) -> Result<(), i32> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let fd = super::file::open(c"/proc/self/task", flags, 0);
    if fd < 0 {
        return Err(fd);
    }
    let result = each_entry(fd, f);
    super::file::close(fd);
    result
}

fn each_entry(fd: i32, f: &mut dyn FnMut(i32)) -> Result<(), i32> {
    /// Where a `struct linux_dirent64` has its length and its name.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let mut words = [0u64; 256];
    loop {
        let (to, size) = (words.as_mut_ptr(), size_of_val(&words));
        // SAFETY: the buffer is writable.
        let n = unsafe { libc::syscall(libc::SYS_getdents64, fd, to, size) };
        if n <= 0 {
            return if n == 0 { Ok(()) } else { Err(-errno()) };
        }
        // SAFETY: the words' bytes, which the kernel has written.
        let mut rest = unsafe { core::slice::from_raw_parts(to.cast::<u8>(), n as usize) };
        while rest.len() > NAME {
            let length = usize::from(u16::from_ne_bytes([rest[LENGTH], rest[LENGTH + 1]]));
            let name = rest[NAME..].split(|&c| c == 0).next().unwrap_or_default();
            let id = name.iter().try_fold(0i32, |n, &c| {
                Some(n.checked_mul(10)? + char::from(c).to_digit(10)? as i32)
            });
            if let (Some(id), false) = (id, name.is_empty()) {
                f(id);
            }
            rest = rest.get(length.max(1)..).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_is_listed_once() {
        let (go, come) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            tell.send(thread::id()).unwrap();
            come.recv()
        });
        let id = told.recv().unwrap();
        let mut found = Vec::new();
        each_thread(&mut |id| found.push(id)).unwrap();
        assert_eq!(found.iter().filter(|&&i| i == id || i == thread::id()).count(), 2);
        drop(go);
        let _ = other.join();
    }
}
