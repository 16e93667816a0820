//! Structs that begin with their size and grow at their end. This file is not a section of the
//! header.
//!
//! The size tells which version of the struct a program was compiled with. Every size from the
//! first release's to [`MOST`] is valid:
//!
//! - Shorter than ours: fields that the program's struct doesn't have mean their defaults, and
//!   are not written.
//! - Longer than ours: what this library doesn't know must be 0 in a struct that it reads, and is
//!   set to 0 in a struct that it writes.
//!
//! No struct has padding: every byte is a field, so that a new field is never where an older
//! program has left whatever was there. Fields come in whole words of 8 bytes, and so the words
//! that a size has room for are the fields that are there.

use super::EINVAL;
use core::ffi::c_int;
use core::ptr;

/// The largest valid size, in bytes.
pub const MOST: usize = 4096;

/// Size of a word, in bytes.
const WORD: usize = size_of::<usize>();

/// A struct that begins with its size.
///
/// # Safety
/// It is `repr(C)`, its first field is a `usize`, and it has no padding.
pub unsafe trait Grows: Copy {
    /// The struct's size in the first release, in bytes.
    const FIRST: usize;

    /// Fails to compile unless the struct is at least that large, and a whole number of words.
    const FITS: () =
        assert!(Self::FIRST <= size_of::<Self>() && size_of::<Self>().is_multiple_of(WORD));
}

/// A struct that the caller fills in.
pub trait Given: Grows {
    /// Values of the fields that the caller's struct doesn't have.
    const DEFAULT: Self;

    /// How many of the first `size` bytes are fields. Fewer than all if a struct of
    /// just this size ended with padding.
    fn fields(size: usize) -> usize {
        size
    }
}

/// Copies a struct that the caller has filled in. `-EINVAL`: the struct is smaller than in the
/// first release, or has a field set that this version doesn't know.
///
/// # Safety
/// `p` is null or points to as many bytes as its first word says.
pub unsafe fn read<T: Given>(p: *const T) -> Result<Option<T>, c_int> {
    if p.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, so it has as many bytes as its first word says.
    let size = unsafe { size_of_struct(p)? };
    let known = size.min(size_of::<T>()) & !(WORD - 1);
    let mut all = T::DEFAULT;
    // SAFETY: `known` bytes are within both structs; the rest, up to `size`, is the caller's.
    unsafe {
        let bytes = p.cast::<u8>();
        if (known..size).any(|i| bytes.add(i).read() != 0) {
            return Err(EINVAL);
        }
        (&raw mut all).cast::<u8>().copy_from_nonoverlapping(bytes, T::fields(size).min(known));
    }
    Ok(Some(all))
}

/// Writes `value()` into the caller's struct, except for the size field. `-EINVAL`: null, smaller
/// than in the first release, or no value; nothing is written then.
///
/// # Safety
/// `out` is null, or writable for as many bytes as its first word says.
pub unsafe fn write<T: Grows>(out: *mut T, value: impl FnOnce() -> Option<T>) -> c_int {
    if out.is_null() {
        return EINVAL;
    }
    // SAFETY: not null, so it has as many bytes as its first word says.
    let Ok(size) = (unsafe { size_of_struct(out) }) else { return EINVAL };
    let Some(value) = value() else { return EINVAL };
    let known = size.min(size_of::<T>()) & !(WORD - 1);
    // SAFETY: `known` bytes are within both structs; the rest, up to `size`, is the caller's.
    unsafe {
        let bytes = out.cast::<u8>();
        let from = (&raw const value).cast::<u8>();
        bytes.add(WORD).copy_from_nonoverlapping(from.add(WORD), known - WORD);
        bytes.add(known).write_bytes(0, size - known);
    }
    0
}

/// Writes a struct that has no size field into `size` bytes of the caller's. `-EINVAL`: null, or
/// less than in the first release; nothing is written then.
///
/// # Safety
/// `T` has no padding; `out` is null, or writable for `size` bytes.
pub unsafe fn write_as<T: Copy, const FIRST: usize>(out: *mut T, size: usize, value: &T) -> c_int {
    if out.is_null() || !(FIRST..=MOST).contains(&size) {
        return EINVAL;
    }
    let known = size.min(size_of::<T>()) & !(WORD - 1);
    // SAFETY: `known` bytes are within both structs; the rest, up to `size`, is the caller's.
    unsafe {
        let bytes = out.cast::<u8>();
        bytes.copy_from_nonoverlapping(ptr::from_ref(value).cast(), known);
        bytes.add(known).write_bytes(0, size - known);
    }
    0
}

/// # Safety
/// `p` points to a struct that begins with its size.
unsafe fn size_of_struct<T: Grows>(p: *const T) -> Result<usize, c_int> {
    const { T::FITS };
    // SAFETY: it begins with its size.
    let size = unsafe { p.cast::<usize>().read_unaligned() };
    if (T::FIRST..=MOST).contains(&size) { Ok(size) } else { Err(EINVAL) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Grew by `late`, whose default isn't 0, after the first release, and by `last` since. In
    /// the first release `reserved` was padding.
    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(C)]
    struct Grown {
        size: usize,
        early: u32,
        reserved: u32,
        late: u64,
        last: u64,
    }

    // SAFETY: `repr(C)`, begins with a size and has no padding.
    unsafe impl Grows for Grown {
        const FIRST: usize = 16;
    }

    impl Given for Grown {
        const DEFAULT: Grown = Grown { size: 0, early: 0, reserved: 0, late: 7, last: 0 };

        fn fields(size: usize) -> usize {
            if size == 16 { 12 } else { size }
        }
    }

    /// As the caller has it: longer than ours.
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Memory(Grown, [u8; 12]);

    fn memory(size: usize) -> Memory {
        Memory(Grown { size, early: 1, reserved: 0, late: 2, last: 3 }, [0; 12])
    }

    fn read_back(m: &Memory) -> Result<Grown, c_int> {
        // SAFETY: the tests give no size above that of `Memory`.
        unsafe { read((&raw const *m).cast::<Grown>()) }.map(|g| g.expect("not null"))
    }

    #[test]
    fn missing_fields_have_their_defaults() {
        for (size, late, last) in [(16, 7, 0), (24, 2, 0), (32, 2, 3), (40, 2, 3)] {
            let want = Grown { size, early: 1, reserved: 0, late, last };
            assert_eq!(read_back(&memory(size)), Ok(want));
        }
    }

    #[test]
    fn a_size_below_the_first_or_beyond_reason_is_an_error() {
        for size in [0, 1, 8, 15, MOST + 1, usize::MAX] {
            assert_eq!(read_back(&memory(size)), Err(EINVAL));
        }
    }

    #[test]
    fn what_is_set_beyond_the_known_fields_is_an_error() {
        for i in 0..12 {
            let mut m = memory(44);
            m.1[i] = 1;
            assert_eq!(read_back(&m), Err(EINVAL), "byte {i}");
        }
        assert!(read_back(&memory(44)).is_ok());
    }

    #[test]
    fn a_field_that_the_size_cuts_is_not_there() {
        let mut m = memory(20);
        assert_eq!(read_back(&m), Err(EINVAL));
        m.0.late = 0;
        assert_eq!(read_back(&m).unwrap().late, 7);
    }

    #[test]
    fn padding_of_the_first_release_is_not_looked_at() {
        let mut m = memory(16);
        m.0.reserved = 9;
        assert_eq!(read_back(&m).unwrap().reserved, 0);
        m.0.size = 24;
        assert_eq!(read_back(&m).unwrap().reserved, 9);
    }

    #[test]
    fn writing_fills_in_what_the_caller_has_room_for() {
        let value = Grown { size: 32, early: 11, reserved: 12, late: 13, last: 14 };
        for size in 16..=44 {
            let mut m =
                Memory(Grown { size, early: 99, reserved: 99, late: 99, last: 99 }, [9; 12]);
            // SAFETY: no size is above that of `Memory`.
            assert_eq!(unsafe { write((&raw mut m).cast::<Grown>(), || Some(value)) }, 0);
            assert_eq!((m.0.size, m.0.early, m.0.reserved), (size, 11, 12));
            // A word that the size cuts is 0 as far as it goes.
            let cut = (99_u64 >> (8 * (size % 8))) << (8 * (size % 8));
            let late = if size < 24 { cut } else { 13 };
            let last = if size < 24 {
                99
            } else if size < 32 {
                cut
            } else {
                14
            };
            assert_eq!((m.0.late, m.0.last), (late, last), "size {size}");
            for (i, byte) in m.1.into_iter().enumerate() {
                assert_eq!(byte, if 32 + i < size { 0 } else { 9 }, "byte {i} with size {size}");
            }
        }
    }

    #[test]
    fn writing_without_room_or_value_changes_nothing() {
        let mut m = memory(8);
        let p = (&raw mut m).cast::<Grown>();
        // SAFETY: null, or no size above that of `Memory`.
        unsafe {
            assert_eq!(write(core::ptr::null_mut::<Grown>(), || Some(Grown::DEFAULT)), EINVAL);
            assert_eq!(write(p, || Some(Grown::DEFAULT)), EINVAL);
            (*p).size = 32;
            assert_eq!(write(p, || None), EINVAL);
        }
        assert_eq!((m.0.early, m.0.late, m.0.last), (1, 2, 3));
    }
}
