//! Goroutine-local values.

use super::boundary;
use super::g::GRef;
use super::schedule;
use crate::os::{heap, spin::SpinLock};
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr;

/// Frees a value at the end of the goroutine that set it.
pub type Destructor = unsafe extern "C" fn(*mut c_void);

/// Keys at most.
const MAX_KEYS: usize = 1 << 16;
/// How often destructors run when they set values again; POSIX's number.
const ROUNDS: usize = 4;

/// The values of one goroutine, by the number of the key.
#[derive(Default)]
pub struct Values(Vec<(u32, *mut c_void)>);

#[derive(Clone, Copy, Default)]
struct Key {
    /// Odd while the key exists; a value of another generation is none.
    generation: u32,
    destructor: Option<Destructor>,
}

/// All keys of the process. A place is used again, in its next generation.
struct Table {
    keys: Vec<Key>,
    /// The generation that a new place begins with; even.
    first: u32,
}

struct Keys {
    lock: SpinLock,
    table: UnsafeCell<Table>,
}

// SAFETY: `table` is only used with `lock` held.
unsafe impl Sync for Keys {}

static KEYS: Keys =
    Keys { lock: SpinLock::new(), table: UnsafeCell::new(Table { keys: Vec::new(), first: 0 }) };

fn with_table<R>(f: impl FnOnce(&mut Table) -> R) -> R {
    // SAFETY: the lock is held.
    KEYS.lock.with(|| f(unsafe { &mut *KEYS.table.get() }))
}

/// Around a fork: the child must not find it locked by a thread that it hasn't.
pub fn lock_table() {
    KEYS.lock.lock();
}

/// See [`lock_table`].
pub fn unlock_table() {
    KEYS.lock.unlock();
}

thread_local! {
    /// The values of a plain thread; destructors run when it ends.
    static OF_THREAD: UnsafeCell<OfThread> =
        const { UnsafeCell::new(OfThread(Values(Vec::new()))) };
}

struct OfThread(Values);

impl Drop for OfThread {
    fn drop(&mut self) {
        destroy(|index| take_with_destructor(&mut self.0, index));
    }
}

/// A key is its index and generation in one number; 0 is none.
fn pack(index: usize, generation: u32) -> u32 {
    (generation & 0xffff) << 16 | index as u32
}

/// The index of a key that exists.
fn index_of(key: u32) -> Option<usize> {
    let index = key as usize & 0xffff;
    with_table(|table| {
        let k = table.keys.get(index)?;
        (k.generation & 1 == 1 && pack(index, k.generation) == key).then_some(index)
    })
}

/// Makes a key. `-EAGAIN`: there are too many; `-ENOMEM`.
pub fn create(destructor: Option<Destructor>) -> Result<u32, i32> {
    with_table(|Table { keys, first }| {
        let free = keys.iter().position(|k| k.generation & 1 == 0);
        let index = free.unwrap_or(keys.len());
        if index == MAX_KEYS {
            return Err(-libc::EAGAIN);
        }
        if !heap::reserve(keys, 1) {
            return Err(-libc::ENOMEM);
        }
        if index == keys.len() {
            keys.push(Key { generation: *first, destructor: None });
        }
        let k = &mut keys[index];
        *k = Key { generation: k.generation.wrapping_add(1), destructor };
        Ok(pack(index, k.generation))
    })
}

/// Deletes a key; its values are forgotten. `-EINVAL`: there is no such key.
pub fn delete(key: u32) -> i32 {
    let Some(index) = index_of(key) else { return -libc::EINVAL };
    with_table(|Table { keys, first }| {
        let k = &mut keys[index];
        *k = Key { generation: k.generation.wrapping_add(1), destructor: None };
        // With the last key the table goes, but no generation comes twice.
        if keys.iter().all(|k| k.generation & 1 == 0) {
            *first = keys.iter().map(|k| k.generation).max().unwrap_or(*first);
            *keys = Vec::new();
        }
    });
    0
}

/// Runs `f` with the values of the running goroutine or thread; `create`: make
/// room for them if there is none.
fn with_values<R>(create: bool, f: impl FnOnce(Option<&mut Values>) -> R) -> R {
    let Some(g) = schedule::current_g() else {
        return match OF_THREAD.try_with(UnsafeCell::get) {
            // SAFETY: the thread's own, and `f` calls nothing that comes here.
            Ok(v) => f(Some(unsafe { &mut (*v).0 })),
            // The thread ends, and its values are gone.
            Err(_) => f(None),
        };
    };
    if g.values.get().is_null() && create {
        g.values.set(heap::boxed(Values::default()).map_or(ptr::null_mut(), Box::into_raw));
    }
    // SAFETY: the running goroutine's own, used by nobody else.
    f(unsafe { g.values.get().as_mut() })
}

/// Sets the value of a key. `-EINVAL`: there is no such key; `-EAGAIN`: a plain
/// thread that is ending; `-ENOMEM`.
pub fn set(key: u32, value: *mut c_void) -> i32 {
    let Some(index) = index_of(key) else { return -libc::EINVAL };
    with_values(true, |values| {
        let Some(Values(values)) = values else {
            return if schedule::current_g().is_some() { -libc::ENOMEM } else { -libc::EAGAIN };
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

/// The value of a key; null if there is none, or no such key.
pub fn get(key: u32) -> *mut c_void {
    if index_of(key).is_none() {
        return ptr::null_mut();
    }
    let index = key as usize & 0xffff;
    with_values(false, |values| match values.and_then(|v| v.0.get(index)) {
        Some(&(of, value)) if of == key => value,
        _ => ptr::null_mut(),
    })
}

/// Takes the value at this index, if it has a destructor.
fn take_with_destructor(values: &mut Values, index: usize) -> Option<(Destructor, *mut c_void)> {
    let (of, value) = values.0.get_mut(index)?;
    if value.is_null() {
        return None;
    }
    // One without a destructor stays: destructors of other keys may ask for it.
    let destructor = with_table(|table| {
        let k = table.keys.get(index)?;
        (k.generation & 1 == 1 && pack(index, k.generation) == *of).then_some(k.destructor)?
    })?;
    Some((destructor, core::mem::replace(value, ptr::null_mut())))
}

/// Calls the destructors of all values, again if they set new ones, for at most
/// [`ROUNDS`] rounds.
fn destroy(mut take: impl FnMut(usize) -> Option<(Destructor, *mut c_void)>) {
    for _ in 0..ROUNDS {
        let mut any = false;
        for index in 0..with_table(|table| table.keys.len()) {
            if let Some((destructor, value)) = take(index) {
                any = true;
                // SAFETY: the user gave this function for this key's values.
                boundary::outside(|| unsafe { destructor(value) });
            }
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
    // The values may grow while a destructor runs: borrowed anew each time.
    destroy(|index| {
        // SAFETY: the running goroutine's own.
        let values = unsafe { g.values.get().as_mut() };
        values.and_then(|v| take_with_destructor(v, index))
    });
    let values = g.values.replace(ptr::null_mut());
    // SAFETY: made by `with_values`; not used any more.
    drop(unsafe { Box::from_raw(values) });
}
