//! Halting threads in a signal handler, so that their registers and all memory stay as they are.
//!
//! ```text
//!   halter:  HALT = n, signals          thread:  takes a slot: its number, its context
//!            waits until each thread             n into the slot; waits while HALT is n
//!            has a slot with n                   gives the slot back
//!            HALT = 0, wakes all
//! ```
//!
//! A thread that halts may be anywhere, and may hold any lock. So from the first signal until the
//! threads go on, the halter takes no lock and uses no heap. A look at a lock that is free is not
//! enough before taking the lock: a thread whose signal is on its way may take it in between, and
//! halt with it.
//!
//! # What could stand still for ever
//!
//! - *A thread that doesn't react.* It blocks the signal for long, or for a moment and waits for what
//!   a halted thread has: the C library blocks all signals while it starts or ends a thread, and the
//!   lock of its list of stacks may be a halted thread's. It may be the library's own thread, which
//!   counts as exempt only once it has noted its number. Such a thread reacts only after the others
//!   have gone on. So a halter gives up after a short time, and the caller halts again later, a
//!   little longer each time.
//! - *An exempt thread that waits for a halted one.* The halter waits for no exempt thread: it gives
//!   up where a lock is taken.
//! - *The halter itself.* A signal that was sent to it for another reason (it was a goroutine's
//!   thread a moment ago) may arrive while it halts others: the handler knows it by [`HALTER`] and
//!   returns.
//! - *Two halters.* The second fails.
//! - *A fork.* The child has no halt: see [`forked`].
//!
//! # What could be taken for halted
//!
//! A thread that wakes late from the last halt, or took its slot late, runs, whatever its slot says.
//! So a slot tells the halt in which its thread waits, and belongs to the thread until the thread
//! gives it back: a late thread shows an old number, and never writes to another's slot.

use super::{KeepErrno, PAGE, errno, futex, mem, thread, time};
use core::ffi::c_void;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};

/// A thread that has halted, or is about to.
struct Slot {
    /// The kernel's number of the thread whose slot it is; 0: it is free.
    thread: AtomicI32,
    /// The number of the halt in which the thread waits; 0: none yet.
    halt: AtomicU32,
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
/// Slots from this one on have never been used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// The kernel's number of the halter, through all attempts; 0: none.
static HALTER: AtomicI32 = AtomicI32::new(0);

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
    let mut halt = HALT.load(Ordering::Acquire);
    // Relaxed: only the calling thread can have stored its own number.
    if halt == 0 || HALTER.load(Ordering::Relaxed) == thread::id() {
        return;
    }
    // Without a slot the thread waits too, but the halter doesn't see it and gives up.
    let slot = take_slot();
    while halt != 0 {
        if let Some(slot) = slot {
            slot.context.store(context, Ordering::Relaxed);
            // Release: pairs with the Acquire in `waiting`.
            slot.halt.store(halt, Ordering::Release);
        }
        while HALT.load(Ordering::Acquire) == halt {
            futex::wait_in_handler(&HALT, halt);
        }
        // There may be another halt by now.
        halt = HALT.load(Ordering::Acquire);
    }
    if let Some(slot) = slot {
        slot.halt.store(0, Ordering::Relaxed);
        // Release: pairs with the Acquire in `take_slot`.
        slot.thread.store(0, Ordering::Release);
    }
}

/// Takes a slot for the calling thread. `None`: all are taken.
fn take_slot() -> Option<&'static Slot> {
    let slots = SLOTS.load(Ordering::Acquire);
    for n in 0..MOST {
        // SAFETY: there are `MOST` slots, which stay mapped.
        let slot = unsafe { &*slots.add(n) };
        // Acquire: pairs with the Release in `wait`, so that the next owner's stores come last.
        let take = |id| slot.thread.compare_exchange(0, id, Ordering::Acquire, Ordering::Relaxed);
        if slot.thread.load(Ordering::Relaxed) == 0 && take(thread::id()).is_ok() {
            // Relaxed: the Release of `Slot::halt`, by which the halter sees the slot's content,
            // comes after it. Until the halter sees this, the thread doesn't count.
            USED.fetch_max(n + 1, Ordering::Relaxed);
            return Some(slot);
        }
    }
    None
}

/// In the child of a fork: there is no halt, and the parent's threads have no slots.
pub fn forked() {
    let used = USED.load(Ordering::Relaxed);
    slots(used).for_each(|slot| slot.thread.store(0, Ordering::Relaxed));
    HALT.store(0, Ordering::Relaxed);
    HALTER.store(0, Ordering::Relaxed);
}

/// The first `n` slots.
fn slots(n: usize) -> impl Iterator<Item = &'static Slot> {
    let slots = SLOTS.load(Ordering::Relaxed);
    // SAFETY: `n` is 0, or there are `MOST` slots, which stay mapped; `n` is not larger.
    (0..n).map(move |i| unsafe { &*slots.add(i) })
}

/// Proof that threads are halted. They go on when it is dropped.
#[must_use]
pub struct Halted(());

/// The pause between two looks at the threads, in ns.
const PAUSE: i64 = 50_000;
/// After this number of looks the signal is sent again: its handler may have been in the wrong
/// place.
const LOOKS: u32 = 20;

impl Halted {
    /// Halts each thread of the process but the caller and those that `is_exempt` names, by a
    /// signal (0: there is none) whose handler calls [`in_handler`]. Fails with a negative errno
    /// value. `-EBUSY`: another thread halts, or there is no signal; `-EAGAIN`: a thread has not
    /// reacted for `patience` ns, but may once the others have gone on.
    pub fn begin(
        signal: i32,
        patience: i64,
        is_exempt: &mut dyn FnMut(i32) -> bool,
    ) -> Result<Halted, i32> {
        let me = thread::id();
        // Acquire: pairs with the Release in `drop`.
        if HALTER.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Err(-libc::EBUSY);
        }
        let halted = Halted(());
        if SLOTS.load(Ordering::Relaxed).is_null() {
            let slots = mem::reserve(MOST * size_of::<Slot>(), PAGE).ok_or(-libc::ENOMEM)?;
            // Release: pairs with the Acquire in `take_slot`.
            SLOTS.store(slots as *mut Slot, Ordering::Release);
        }
        let next = LAST.load(Ordering::Relaxed).wrapping_add(1).max(1);
        LAST.store(next, Ordering::Relaxed);
        // Release: pairs with the Acquire in `wait`.
        HALT.store(next, Ordering::Release);
        // Pairs with the fence in `wait_in_call`.
        fence(Ordering::SeqCst);
        let deadline = time::now() + patience;
        for look in 0u32.. {
            let mut missing = false;
            each_thread(&mut |id| {
                if id == me || is_exempt(id) || halted.has(id) || thread::is_zombie(id) {
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
            if signal == 0 {
                return Err(-libc::EBUSY);
            }
            if time::now() > deadline {
                return Err(-libc::EAGAIN);
            }
            time::sleep(PAUSE);
        }
        Ok(halted)
    }

    /// The slots of the threads that have halted.
    fn waiting(&self) -> impl Iterator<Item = &'static Slot> {
        let halt = HALT.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `wait`.
        let waits = move |slot: &&Slot| slot.halt.load(Ordering::Acquire) == halt;
        slots(USED.load(Ordering::Relaxed)).filter(waits)
    }

    /// Whether the thread with this number has halted.
    fn has(&self, id: i32) -> bool {
        self.waiting().any(|slot| slot.thread.load(Ordering::Relaxed) == id)
    }

    /// The interrupted contexts (`ucontext_t`) of the threads.
    pub fn contexts(&self) -> impl Iterator<Item = *const c_void> {
        let context = |slot: &Slot| slot.context.load(Ordering::Relaxed) as *const c_void;
        self.waiting().map(context).filter(|c| !c.is_null())
    }
}

impl Drop for Halted {
    fn drop(&mut self) {
        HALT.store(0, Ordering::Release);
        futex::wake(&HALT, i32::MAX);
        // Release: pairs with the Acquire in `begin`.
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

    /// Runs `f` in a child process, because a halt concerns all threads. A hang ends by SIGALRM.
    fn check_in_child(f: impl FnOnce() + std::panic::UnwindSafe) {
        // SAFETY: the C library's heap and streams may be used after a fork. The child ends here.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: no preconditions.
            unsafe { libc::alarm(60) };
            let done = std::panic::catch_unwind(f);
            // SAFETY: ends the child without the test runner's handlers.
            unsafe { libc::_exit(done.is_err().into()) };
        }
        let mut status = -1;
        // SAFETY: `child` is a child of this process, and nothing else waits for it.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    /// The signal was sent to the thread for another reason, and arrives late.
    #[test]
    fn a_signal_does_not_halt_the_halter() {
        check_in_child(|| {
            let halted = Halted::begin(0, 0, &mut |_| true).unwrap();
            in_handler(core::ptr::null_mut());
            drop(halted);
        });
    }

    extern "C" fn on_signal(_: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
        in_handler(context);
    }

    fn handle(signal: i32) {
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) = on_signal;
        // SAFETY: all bytes zero are a valid action; the handler is async-signal-safe.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            assert_eq!(libc::sigaction(signal, &action, core::ptr::null_mut()), 0);
        }
    }

    /// Threads that are late for one halt don't count as halted in the next.
    #[test]
    fn what_has_halted_stands_still() {
        static STEPS: [AtomicU32; 4] = [const { AtomicU32::new(0) }; 4];
        static ENDS: AtomicU32 = AtomicU32::new(0);
        check_in_child(|| {
            handle(libc::SIGUSR1);
            let threads: Vec<_> = STEPS
                .iter()
                .map(|steps| {
                    std::thread::spawn(|| {
                        while ENDS.load(Ordering::Relaxed) == 0 {
                            steps.fetch_add(1, Ordering::Relaxed);
                            wait_in_call();
                        }
                    })
                })
                .collect();
            let now = || STEPS.each_ref().map(|steps| steps.load(Ordering::Relaxed));
            for _ in 0..2000 {
                let halted = Halted::begin(libc::SIGUSR1, 20_000_000_000, &mut |_| false).unwrap();
                let before = now();
                thread::yield_now();
                assert_eq!(now(), before);
                assert!(halted.waiting().count() >= STEPS.len());
                drop(halted);
            }
            ENDS.store(1, Ordering::Relaxed);
            threads.into_iter().for_each(|t| t.join().unwrap());
        });
    }

    /// A thread blocks the signal and waits for a lock that a halted thread has.
    #[test]
    fn a_halter_gives_up_so_that_threads_can_go_on() {
        check_in_child(|| {
            handle(libc::SIGUSR1);
            let (go, come) = std::sync::mpsc::channel::<()>();
            let (tell, told) = std::sync::mpsc::channel();
            let blocks = std::thread::spawn(move || {
                // SAFETY: concerns this thread only.
                unsafe {
                    let mut all = core::mem::zeroed();
                    libc::sigfillset(&mut all);
                    libc::pthread_sigmask(libc::SIG_SETMASK, &all, core::ptr::null_mut());
                }
                tell.send(()).unwrap();
                come.recv().unwrap_err();
            });
            told.recv().unwrap();
            let begin = || Halted::begin(libc::SIGUSR1, 1_000_000, &mut |_| false);
            assert_eq!(begin().err(), Some(-libc::EAGAIN));
            drop(go);
            blocks.join().unwrap();
            drop(begin().unwrap());
        });
    }

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
