//! Goroutine-local values.

use crate::os::heap;
use crate::os::spin::SpinLock;
use crate::sched::take::boundary;
use crate::sched::types::g::GRef;
use crate::sched::types::m;
use crate::sched::types::values::Values;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

/// Frees a value at the end of the goroutine that set it.
pub type Destructor = unsafe extern "C" fn(*mut c_void);

/// The largest number of keys that exist at the same time.
const MAX_KEYS: usize = 1 << 16;
/// The most rounds of destructors, when destructors set values again; POSIX's number.
const ROUNDS: usize = 4;
/// The last generation of a slot: after it, a key would get the number of an earlier key.
const LAST: u32 = 0xffff;

/// A slot, which holds one key at a time, each of a new generation, until the generations are used
/// up.
///
/// Any thread reads it without a lock: first `generation`, then `destructor`, then `generation`
/// again.
struct KeySlot {
    /// Odd while the key exists. Values of another generation don't count.
    generation: AtomicU32,
    /// A [`Destructor`], or 0.
    destructor: AtomicUsize,
}

/// All keys of the process. Pages that hold no key are never touched.
static PLACES: [KeySlot; MAX_KEYS] =
    [const { KeySlot { generation: AtomicU32::new(0), destructor: AtomicUsize::new(0) } };
        MAX_KEYS];

/// Held while a key is created or deleted.
static LOCK: SpinLock = SpinLock::new();
/// No slot below this index is free. Changed with the lock held.
static FREE_FROM: AtomicUsize = AtomicUsize::new(0);

/// Locks the table around a fork: the child must not find it locked by a thread that the child
/// lacks.
pub fn lock_table() {
    LOCK.lock();
}

/// Unlocks the table after [`lock_table`].
///
/// # Safety
/// The calling thread holds the lock.
pub unsafe fn unlock_table() {
    // SAFETY: as the caller says.
    unsafe { LOCK.unlock() };
}

thread_local! {
    /// The values of a plain thread; their destructors run when it ends.
    static OF_THREAD: UnsafeCell<OfThread> =
        const { UnsafeCell::new(OfThread(Values(Vec::new()))) };
}

struct OfThread(Values);

impl Drop for OfThread {
    fn drop(&mut self) {
        let values = &raw mut self.0;
        // SAFETY: the values are this thread's own; a destructor that sets a value gets `-EAGAIN`.
        unsafe { destroy(|| Some(values)) };
    }
}

/// Packs a key's index and generation into one number; 0: no key.
fn pack(index: usize, generation: u32) -> u32 {
    generation << 16 | index as u32
}

fn index_of(key: u32) -> usize {
    key as usize & (MAX_KEYS - 1)
}

/// Whether the key exists. Keys of generation 0, or of any even generation, never do.
#[inline]
fn exists(key: u32) -> bool {
    let generation = key >> 16;
    // Acquire: pairs with the Release in `create`.
    generation & 1 == 1 && PLACES[index_of(key)].generation.load(Ordering::Acquire) == generation
}

/// The key's destructor, if the key exists and has one.
fn destructor_of(key: u32) -> Option<Destructor> {
    let place = &PLACES[index_of(key)];
    if !exists(key) {
        return None;
    }
    let destructor = place.destructor.load(Ordering::Relaxed);
    // Pairs with the fence in `create`: whoever reads a later key's destructor also reads its
    // generation.
    fence(Ordering::Acquire);
    if place.generation.load(Ordering::Relaxed) != key >> 16 || destructor == 0 {
        return None;
    }
    // SAFETY: `create` has put a `Destructor` there.
    Some(unsafe { core::mem::transmute::<usize, Destructor>(destructor) })
}

/// Makes a key. `-EAGAIN`: there are too many keys.
pub fn create(destructor: Option<Destructor>) -> Result<u32, i32> {
    LOCK.with(|| {
        let generation = |i: usize| PLACES[i].generation.load(Ordering::Relaxed);
        let is_free = |&i: &usize| generation(i) & 1 == 0 && generation(i) < LAST;
        let free = (FREE_FROM.load(Ordering::Relaxed)..MAX_KEYS).find(is_free);
        FREE_FROM.store(free.map_or(MAX_KEYS, |i| i + 1), Ordering::Relaxed);
        let index = free.ok_or(-libc::EAGAIN)?;
        let next = generation(index) + 1;
        // Pairs with the fence in `destructor_of`. The generation has been even, for no key, since
        // the former key was deleted.
        fence(Ordering::Release);
        PLACES[index].destructor.store(destructor.map_or(0, |f| f as usize), Ordering::Relaxed);
        // Release: pairs with the Acquire in `exists`: a thread that sees the key sees its
        // destructor.
        PLACES[index].generation.store(next, Ordering::Release);
        Ok(pack(index, next))
    })
}

/// Deletes a key and forgets its values. `-EINVAL`: there is no such key.
pub fn delete(key: u32) -> i32 {
    LOCK.with(|| {
        if !exists(key) {
            return -libc::EINVAL;
        }
        let index = index_of(key);
        PLACES[index].generation.store((key >> 16) + 1, Ordering::Relaxed);
        FREE_FROM.fetch_min(index, Ordering::Relaxed);
        0
    })
}

/// Runs `f` with the values of the running goroutine or thread; `create`: makes room for them if
/// there are none.
fn with_values<R>(create: bool, f: impl FnOnce(Option<&mut Values>) -> R) -> R {
    let Some(g) = m::current_g() else {
        return match OF_THREAD.try_with(UnsafeCell::get) {
            // SAFETY: the thread's own values, and `f` calls nothing that reaches them.
            Ok(v) => f(Some(unsafe { &mut (*v).0 })),
            // The thread is ending, and its values are gone.
            Err(_) => f(None),
        };
    };
    if g.values.get().is_null() && create {
        g.values.set(heap::boxed(Values::default()).map_or(ptr::null_mut(), Box::into_raw));
    }
    // SAFETY: the running goroutine's own values, which no other goroutine uses.
    f(unsafe { g.values.get().as_mut() })
}

/// Sets the value of a key. `-EINVAL`: there is no such key; `-EAGAIN`: a plain
/// thread that is ending; `-ENOMEM`.
pub fn set(key: u32, value: *mut c_void) -> i32 {
    if !exists(key) {
        return -libc::EINVAL;
    }
    let index = index_of(key);
    with_values(true, |values| {
        let Some(Values(values)) = values else {
            return if m::current_g().is_some() { -libc::ENOMEM } else { -libc::EAGAIN };
        };
        if !heap::reserve(values, (index + 1).saturating_sub(values.len())) {
            return -libc::ENOMEM;
        }
        if values.len() <= index {
            values.resize(index + 1, (0, ptr::null_mut()));
        }
        values[index] = (key, value);
        0
    })
}

/// The value of a key; null: no value, or no such key. Takes no lock.
pub fn get(key: u32) -> *mut c_void {
    with_values(false, |values| match values.and_then(|v| v.0.get(index_of(key))) {
        Some(&(of, value)) if of == key && exists(key) => value,
        _ => ptr::null_mut(),
    })
}

/// Takes the value at this index, if it has a destructor. Other values stay: destructors may ask
/// for them.
fn take_with_destructor(values: &mut Values, index: usize) -> Option<(Destructor, *mut c_void)> {
    let (key, value) = values.0.get_mut(index)?;
    if value.is_null() {
        return None;
    }
    let destructor = destructor_of(*key)?;
    Some((destructor, core::mem::replace(value, ptr::null_mut())))
}

/// Calls the destructors of all values, and again if they set values, for at most [`ROUNDS`]
/// rounds.
///
/// # Safety
/// `values` gives the caller's own values, to which there is no other reference.
unsafe fn destroy(values: impl Fn() -> Option<*mut Values>) {
    for _ in 0..ROUNDS {
        let (mut any, mut index) = (false, 0);
        // Asked for each time, because the values may move while a destructor runs.
        while let Some(values) = values() {
            // SAFETY: there is no other reference to them, and no destructor runs now.
            let values = unsafe { &mut *values };
            if index >= values.0.len() {
                break;
            }
            if let Some((destructor, value)) = take_with_destructor(values, index) {
                any = true;
                // SAFETY: the user gave this function for this key's values.
                boundary::outside(|| unsafe { destructor(value) });
            }
            index += 1;
        }
        if !any {
            break;
        }
    }
}

/// Runs the goroutine's destructors at its end, on its stack: they may block.
#[cold]
#[inline(never)]
pub fn run_destructors(g: GRef) {
    let values = || Some(g.values.get()).filter(|v| !v.is_null());
    // SAFETY: the values are the running goroutine's own.
    unsafe { destroy(values) };
    let values = g.values.replace(ptr::null_mut());
    // SAFETY: `with_values` has made the box, which is not used any more.
    drop(unsafe { Box::from_raw(values) });
}
