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

/// The largest number of keys that exist at a time.
const MAX_KEYS: usize = 1 << 16;
/// How often destructors run when they set values again; POSIX's number.
const ROUNDS: usize = 4;
/// The generation of the last key of a slot: the next key would get a number that an earlier key had.
const LAST: u32 = 0xffff;

/// The slot of a key. It is used again, in its next generation, until the generations are used up.
///
/// Any thread reads it without a lock: first `generation`, then what belongs to it, then `generation` again.
struct KeySlot {
    /// Odd while the key exists. A value of another generation doesn't count.
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

/// Around a fork: the child must not find the lock held by a thread that it doesn't have.
pub fn lock_table() {
    LOCK.lock();
}

/// See [`lock_table`].
///
/// # Safety
/// The calling thread holds the lock.
pub unsafe fn unlock_table() {
    // SAFETY: as the caller says.
    unsafe { LOCK.unlock() };
}

thread_local! {
    /// The values of a plain thread; destructors run when it ends.
    static OF_THREAD: UnsafeCell<OfThread> =
        const { UnsafeCell::new(OfThread(Values(Vec::new()))) };
}

struct OfThread(Values);

impl Drop for OfThread {
    fn drop(&mut self) {
        let values = &raw mut self.0;
        // SAFETY: the thread's own; a destructor that sets a value is told that it is too late.
        unsafe { destroy(|| Some(values)) };
    }
}

/// A key is its index and generation in one number; 0 is none.
fn pack(index: usize, generation: u32) -> u32 {
    generation << 16 | index as u32
}

fn index_of(key: u32) -> usize {
    key as usize & (MAX_KEYS - 1)
}

/// Whether the key exists: a key of generation 0, or of any even generation, never does.
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
    // Pairs with the fence in `create`: if the destructor belongs to a later key, so does the generation.
    fence(Ordering::Acquire);
    if place.generation.load(Ordering::Relaxed) != key >> 16 || destructor == 0 {
        return None;
    }
    // SAFETY: `create` has put a `Destructor` there.
    Some(unsafe { core::mem::transmute::<usize, Destructor>(destructor) })
}

/// Makes a key. `-EAGAIN`: there are too many.
pub fn create(destructor: Option<Destructor>) -> Result<u32, i32> {
    LOCK.with(|| {
        let generation = |i: usize| PLACES[i].generation.load(Ordering::Relaxed);
        let is_free = |&i: &usize| generation(i) & 1 == 0 && generation(i) < LAST;
        let free = (FREE_FROM.load(Ordering::Relaxed)..MAX_KEYS).find(is_free);
        FREE_FROM.store(free.map_or(MAX_KEYS, |i| i + 1), Ordering::Relaxed);
        let index = free.ok_or(-libc::EAGAIN)?;
        let next = generation(index) + 1;
        // Pairs with the fence in `destructor_of`. Since the former key was deleted the generation has been even, which
        // means that the slot has no key.
        fence(Ordering::Release);
        PLACES[index].destructor.store(destructor.map_or(0, |f| f as usize), Ordering::Relaxed);
        // Release: pairs with the Acquire in `exists`: a thread that sees the key sees its destructor.
        PLACES[index].generation.store(next, Ordering::Release);
        Ok(pack(index, next))
    })
}

/// Deletes a key; its values are forgotten. `-EINVAL`: there is no such key.
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

/// Runs `f` with the values of the running goroutine or thread; `create`: make
/// room for them if there is none.
fn with_values<R>(create: bool, f: impl FnOnce(Option<&mut Values>) -> R) -> R {
    let Some(g) = m::current_g() else {
        return match OF_THREAD.try_with(UnsafeCell::get) {
            // SAFETY: the thread's own values, and `f` calls nothing that reaches them.
            Ok(v) => f(Some(unsafe { &mut (*v).0 })),
            // The thread ends, and its values are gone.
            Err(_) => f(None),
        };
    };
    if g.values.get().is_null() && create {
        g.values.set(heap::boxed(Values::default()).map_or(ptr::null_mut(), Box::into_raw));
    }
    // SAFETY: the running goroutine's own values, which no other uses.
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

/// The value of a key; null if there is none, or no such key. No lock is taken.
pub fn get(key: u32) -> *mut c_void {
    with_values(false, |values| match values.and_then(|v| v.0.get(index_of(key))) {
        Some(&(of, value)) if of == key && exists(key) => value,
        _ => ptr::null_mut(),
    })
}

/// Takes the value at this index, if it has a destructor. A value without a destructor stays: destructors of other
/// values may ask for it.
fn take_with_destructor(values: &mut Values, index: usize) -> Option<(Destructor, *mut c_void)> {
    let (key, value) = values.0.get_mut(index)?;
    if value.is_null() {
        return None;
    }
    let destructor = destructor_of(*key)?;
    Some((destructor, core::mem::replace(value, ptr::null_mut())))
}

/// Calls the destructors of all values, again if they set new ones, for at most
/// [`ROUNDS`] rounds.
///
/// # Safety
/// `values` gives the caller's own values, without another reference to them.
unsafe fn destroy(values: impl Fn() -> Option<*mut Values>) {
    for _ in 0..ROUNDS {
        let (mut any, mut index) = (false, 0);
        // The values may move while a destructor runs, so they are asked for each time.
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

/// At the end of a goroutine, on its stack: destructors may block.
#[cold]
#[inline(never)]
pub fn run_destructors(g: GRef) {
    let values = || Some(g.values.get()).filter(|v| !v.is_null());
    // SAFETY: the running goroutine's own.
    unsafe { destroy(values) };
    let values = g.values.replace(ptr::null_mut());
    // SAFETY: made by `with_values`; not used any more.
    drop(unsafe { Box::from_raw(values) });
}
