//! The table of file descriptors: what the library knows of each number. It belongs to the process, as the numbers do,
//! and not to a runtime.
//!
//! A chunk's memory is taken when a number in it is first used, and is never given back.

use super::file::File;
use crate::os::{file, mem};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Files in a chunk, chunks in a group, groups: every number that an int can have.
const FILES: usize = 1 << 9;
const CHUNKS: usize = 1 << 11;
const GROUPS: usize = 1 << 11;

const _: () = assert!(FILES * CHUNKS * GROUPS == 1 << 31);

/// All bytes zero: nothing is known of the chunk's files.
pub struct Chunk([File; FILES]);

struct ChunkGroup([AtomicPtr<Chunk>; CHUNKS]);

static TABLE: [AtomicPtr<ChunkGroup>; GROUPS] = [const { AtomicPtr::new(ptr::null_mut()) }; GROUPS];

/// The entry of this number. `-EBADF`: the number is not open; `-ENOMEM`.
pub fn get(fd: i32) -> Result<&'static File, i32> {
    if let Some(file) = known(fd) {
        return Ok(file);
    }
    if fd < 0 || !file::is_open(fd) {
        return Err(-libc::EBADF);
    }
    make(fd as usize).ok_or(-libc::ENOMEM)
}

/// The entry of this number, if it has one. Does not make it.
pub fn known(fd: i32) -> Option<&'static File> {
    let fd = usize::try_from(fd).ok()?;
    // SAFETY: null, or `made` has mapped it for good. Acquire: pairs with the Release in `made`.
    unsafe {
        let group = TABLE[fd / FILES / CHUNKS].load(Ordering::Acquire).as_ref()?;
        let chunk = group.0[fd / FILES % CHUNKS].load(Ordering::Acquire).as_ref()?;
        Some(&chunk.0[fd % FILES])
    }
}

#[cold]
fn make(fd: usize) -> Option<&'static File> {
    // SAFETY: both are valid when all bytes are zero.
    unsafe {
        let group = made(&TABLE[fd / FILES / CHUNKS])?;
        let chunk = made(&group.0[fd / FILES % CHUNKS])?;
        Some(&chunk.0[fd % FILES])
    }
}

/// What the pointer points to, or a new `T`.
///
/// # Safety
/// A `T` is valid when all bytes are zero.
unsafe fn made<T>(at: &AtomicPtr<T>) -> Option<&'static T> {
    let there = at.load(Ordering::Acquire);
    if there.is_null() {
        let new = mem::reserve(size_of::<T>(), crate::os::PAGE)? as *mut T;
        // Release: pairs with the Acquire in `known`.
        if at.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // SAFETY: just reserved; no other thread has seen it.
            unsafe { mem::release(new as usize, size_of::<T>()) };
        }
    }
    // SAFETY: mapped for good, and zeroed, which the caller says is a valid `T`.
    unsafe { at.load(Ordering::Acquire).as_ref() }
}

/// Every chunk there is, with the number of its first file.
pub fn each_chunk(mut f: impl FnMut(i32, &'static [File])) {
    for (g, group) in TABLE.iter().enumerate() {
        // SAFETY: as in `known`.
        let Some(group) = (unsafe { group.load(Ordering::Acquire).as_ref() }) else { continue };
        for (c, chunk) in group.0.iter().enumerate() {
            // SAFETY: as in `known`.
            if let Some(chunk) = unsafe { chunk.load(Ordering::Acquire).as_ref() } {
                f(((g * CHUNKS + c) * FILES) as i32, &chunk.0);
            }
        }
    }
}

/// In the child of a fork: there are no waiters, and threads that are gone may hold locks, so all entries begin anew.
/// The memory stays, because a function that is under way may still use it.
pub fn forget_all() {
    for group in &TABLE {
        group.store(ptr::null_mut(), Ordering::Relaxed);
    }
}
