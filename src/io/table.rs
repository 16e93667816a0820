//! The table of file descriptors: what the library knows of each number. The table belongs to the
//! process, as the numbers do, and not to a runtime.
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

/// The entry of this number, if there is one already.
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

/// The pointer's target, or else a new `T`, which is stored. `None`: no memory.
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

/// The existing entries, from this number on.
pub fn entries_from(fd: i32) -> impl Iterator<Item = (i32, &'static File)> {
    let first = fd.max(0) as usize;
    let (group, chunk, file) = (first / FILES / CHUNKS, first / FILES % CHUNKS, first % FILES);
    let groups = (group..GROUPS).filter_map(move |g| {
        // SAFETY: as in `known`.
        let entries = unsafe { TABLE[g].load(Ordering::Acquire).as_ref() }?;
        Some((g, entries, if g == group { chunk } else { 0 }))
    });
    let chunks = groups.flat_map(|(g, entries, from)| {
        (from..CHUNKS).filter_map(move |c| {
            // SAFETY: as in `known`.
            let chunk = unsafe { entries.0[c].load(Ordering::Acquire).as_ref() }?;
            Some((g * CHUNKS + c, chunk))
        })
    });
    chunks.flat_map(move |(n, chunk)| {
        let from = if n * FILES < first { file } else { 0 };
        (from..FILES).map(move |i| ((n * FILES + i) as i32, &chunk.0[i]))
    })
}

/// In the child of a fork: there are no waiters, and threads that are gone may hold locks, so all
/// entries begin anew. The memory stays, because a function that is under way may still use it.
pub fn forget_all() {
    for group in &TABLE {
        group.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_from_any_number_on() {
        // Numbers that no test opens: `made` asks for no open file.
        let fds = [FILES * CHUNKS - 1, FILES * CHUNKS, FILES * (CHUNKS + 3) + 5];
        fds.iter().for_each(|&fd| assert!(make(fd).is_some()));
        let next = |from: usize| entries_from(from as i32).next().map(|(fd, _)| fd as usize);
        assert_eq!(next(fds[0]), Some(fds[0]));
        assert_eq!(next(fds[0] + 1), Some(fds[1]));
        assert_eq!(next(fds[1] + FILES), Some(FILES * (CHUNKS + 3)));
        assert_eq!(next(fds[2]), Some(fds[2]));
        assert_eq!(next(FILES * (CHUNKS + 4)), None);
        for (fd, file) in entries_from((fds[2] - 2) as i32) {
            assert!(known(fd).is_some_and(|known| ptr::eq(known, file)));
        }
    }
}
