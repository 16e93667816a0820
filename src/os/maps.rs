//! The memory of this process: what is mapped, which pages have content, and reading it.
//!
//! Nothing here uses a heap, so a thread that has stopped all others may call it.

use super::mapped::Mapped;
use super::{KeepErrno, PAGE, errno, page_size};
use core::ops::Range;

/// What a mapping is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A file, or the pages without a file that follow the writable data of a loaded object.
    Object,
    /// The heap that brk(2) grows.
    Brk,
    /// The main thread's stack.
    MainStack,
    /// No file.
    Anonymous,
    /// A device, or memory of the kernel's.
    Device,
}

/// A mapping that can be read.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    pub start: usize,
    pub end: usize,
    pub is_writable: bool,
    /// Other processes may have the same memory.
    pub is_shared: bool,
    pub kind: Kind,
}

/// Lists all mappings that can be read, by address. Fails with a negative errno value.
pub fn list(to: &mut Mapped<Mapping>) -> Result<(), i32> {
    let _errno = KeepErrno::new();
    to.clear();
    let file = File::open(c"/proc/self/maps")?;
    // SAFETY: bytes may be zero.
    let mut text = unsafe { Mapped::<u8>::zeroed(16 * PAGE) }.ok_or(-libc::ENOMEM)?;
    let mut data_end = 0;
    let mut len = 0;
    loop {
        let n = file.read(&mut text[len..])?;
        len += n;
        let whole = text[..len].iter().rposition(|&c| c == b'\n').map_or(0, |at| at + 1);
        for line in text[..whole].split(|&c| c == b'\n').filter(|line| !line.is_empty()) {
            if let Some(mapping) = parse(line, &mut data_end)
                && !to.push(mapping)
            {
                return Err(-libc::ENOMEM);
            }
        }
        text.copy_within(whole..len, 0);
        len -= whole;
        if n == 0 {
            return Ok(());
        }
    }
}

/// A line such as `7f00a000-7f00b000 rw-p 00000000 00:00 0    [heap]`. `None`: the mapping can't be
/// read. `data_end`: where the writable data of the last object ends.
fn parse(line: &[u8], data_end: &mut usize) -> Option<Mapping> {
    let mut words = line.split(|&c| c == b' ').filter(|word| !word.is_empty());
    let mut range = words.next()?.split(|&c| c == b'-');
    let mut number = || number(range.next()?, 16);
    let (start, end) = (number()?, number()?);
    let access = words.next()?;
    let (is_readable, is_writable) = (access.first() == Some(&b'r'), access.get(1) == Some(&b'w'));
    let is_shared = access.get(3) == Some(&b's');
    let name = words.nth(3).unwrap_or_default();
    let kind = match name {
        b"" if start == *data_end => Kind::Object,
        b"" => Kind::Anonymous,
        b"[heap]" => Kind::Brk,
        b"[stack]" => Kind::MainStack,
        _ if name.starts_with(b"[anon") => Kind::Anonymous,
        _ if name.starts_with(b"/dev/zero") || name.starts_with(b"/dev/shm/") => Kind::Object,
        _ if name.starts_with(b"[") || name.starts_with(b"/dev/") => Kind::Device,
        _ => Kind::Object,
    };
    if kind == Kind::Object && is_writable {
        *data_end = end;
    }
    is_readable.then_some(Mapping { start, end, is_writable, is_shared, kind })
}

fn number(text: &[u8], base: u32) -> Option<usize> {
    text.iter()
        .try_fold(0usize, |n, &c| Some(n * base as usize + char::from(c).to_digit(base)? as usize))
}

/// A file of `/proc` that is open.
struct File(i32);

impl File {
    fn open(path: &core::ffi::CStr) -> Result<File, i32> {
        match super::file::open(path, libc::O_RDONLY | libc::O_CLOEXEC, 0) {
            fd if fd >= 0 => Ok(File(fd)),
            e => Err(e),
        }
    }

    fn read(&self, to: &mut [u8]) -> Result<usize, i32> {
        // SAFETY: `to` is writable.
        match unsafe { libc::read(self.0, to.as_mut_ptr().cast(), to.len()) } {
            n if n >= 0 => Ok(n as usize),
            _ => Err(-errno()),
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        super::file::close(self.0);
    }
}

/// Tells which pages have content.
pub struct Pages {
    pagemap: File,
    /// Whether the kernel has `PAGEMAP_SCAN`.
    scans: bool,
}

/// `struct pm_scan_arg`.
#[repr(C)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// `PAGEMAP_SCAN` (Linux 6.7), which libc doesn't have.
const PAGEMAP_SCAN: libc::Ioctl = 0xc060_6610_u32 as libc::Ioctl;
const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
const IS_ZERO: u64 = 1 << 5;

impl Pages {
    pub fn new() -> Result<Pages, i32> {
        Ok(Pages { pagemap: File::open(c"/proc/self/pagemap")?, scans: true })
    }

    /// Calls `f` with each run of pages in `range` that have content: of a private mapping, pages
    /// that the process has written; of a shared one, pages that it uses. Pages that were written
    /// and are swapped out count. Fails with a negative errno value.
    pub fn each(
        &mut self,
        range: Range<usize>,
        is_shared: bool,
        f: &mut dyn FnMut(Range<usize>),
    ) -> Result<(), i32> {
        let _errno = KeepErrno::new();
        if self.scans {
            match self.scan(range.clone(), is_shared, f) {
                Err(e) if e == -libc::ENOTTY || e == -libc::EINVAL => self.scans = false,
                done => return done,
            }
        }
        /// The most bytes of a mapping that is looked at page by page: only the shadow memory of a
        /// sanitizer, which has no pointers, is larger.
        const MOST: usize = 1 << 40;
        if range.len() > MOST { Ok(()) } else { self.look(range, is_shared, f) }
    }

    /// By `PAGEMAP_SCAN`, which takes no time for page tables that don't exist.
    fn scan(
        &self,
        range: Range<usize>,
        is_shared: bool,
        f: &mut dyn FnMut(Range<usize>),
    ) -> Result<(), i32> {
        let mut regions = [Region { start: 0, end: 0, categories: 0 }; 64];
        let not = if is_shared { 0 } else { IS_FILE | IS_ZERO };
        let mut start = range.start;
        while start < range.end {
            let mut arg = ScanArg {
                size: size_of::<ScanArg>() as u64,
                flags: 0,
                start: start as u64,
                end: range.end as u64,
                walk_end: 0,
                vec: regions.as_mut_ptr() as u64,
                vec_len: regions.len() as u64,
                max_pages: 0,
                category_inverted: not,
                category_mask: not,
                category_anyof_mask: IS_PRESENT | IS_SWAPPED,
                return_mask: IS_PRESENT | IS_SWAPPED,
            };
            // SAFETY: the kernel fills in `arg` and the regions.
            let n = unsafe { libc::ioctl(self.pagemap.0, PAGEMAP_SCAN, &raw mut arg) };
            if n < 0 {
                return Err(-errno());
            }
            regions[..n as usize].iter().for_each(|r| f(r.start as usize..r.end as usize));
            if arg.walk_end as usize <= start {
                return Err(-libc::EIO);
            }
            start = arg.walk_end as usize;
        }
        Ok(())
    }

    /// By a word for each page.
    fn look(
        &self,
        range: Range<usize>,
        is_shared: bool,
        f: &mut dyn FnMut(Range<usize>),
    ) -> Result<(), i32> {
        const PAGES: usize = 512;
        const FILE: u64 = 1 << 61;
        let mut words = [0u64; PAGES];
        let page = page_size();
        for first in range.clone().step_by(PAGES * page) {
            let n = (range.end - first).div_ceil(page).min(PAGES);
            let (to, at) = (words.as_mut_ptr().cast(), first / page * size_of::<u64>());
            // SAFETY: the words are writable.
            let got = unsafe { libc::pread(self.pagemap.0, to, n * 8, at as libc::off_t) };
            if got != n as isize * 8 {
                return Err(if got < 0 { -errno() } else { -libc::EIO });
            }
            for (i, word) in words[..n].iter().enumerate() {
                if word >> 62 != 0 && (is_shared || word & FILE == 0) {
                    f(first + i * page..first + (i + 1) * page);
                }
            }
        }
        Ok(())
    }
}

/// Copies memory of this process, and calls `f` with the address and the words of each piece, in
/// order. Pages that can't be read are left out. `room` must be as large as a page at least. Fails
/// with a negative errno value if the system refuses process_vm_readv(2).
pub fn read(
    range: Range<usize>,
    room: &mut [u64],
    f: &mut dyn FnMut(usize, &[u64]),
) -> Result<(), i32> {
    let _errno = KeepErrno::new();
    let mut at = range.start.next_multiple_of(size_of::<u64>());
    while at < range.end {
        let want = (range.end - at).min(size_of_val(room)) & !7;
        if want == 0 {
            return Ok(());
        }
        let local = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: want };
        let remote = libc::iovec { iov_base: at as *mut _, iov_len: want };
        // SAFETY: the kernel checks `remote`; `local` is the caller's slice.
        let n = unsafe {
            let (local, remote) = (&raw const local, &raw const remote);
            libc::process_vm_readv(libc::getpid(), local, 1, remote, 1, 0)
        };
        match n {
            n if n > 0 => {
                let n = n as usize & !7;
                f(at, &room[..n / 8]);
                at += n;
                if n < want {
                    at = (at + 1).next_multiple_of(page_size());
                }
            }
            _ if errno() == libc::EFAULT => at = (at + 1).next_multiple_of(page_size()),
            _ => return Err(-errno()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::mem;

    #[test]
    fn lines_of_maps_are_understood() {
        let mut data_end = 0;
        let mut kind = |line: &[u8]| parse(line, &mut data_end).map(|m| (m.kind, m.is_writable));
        assert_eq!(kind(b"1000-2000 r--p 0 08:01 7    /bin/a b"), Some((Kind::Object, false)));
        assert_eq!(kind(b"2000-3000 rw-p 0 08:01 7    /bin/a b"), Some((Kind::Object, true)));
        assert_eq!(kind(b"3000-4000 rw-p 0 00:00 0 "), Some((Kind::Object, true)));
        assert_eq!(kind(b"5000-6000 rw-p 0 00:00 0 "), Some((Kind::Anonymous, true)));
        assert_eq!(kind(b"6000-7000 rw-p 0 00:00 0    [heap]"), Some((Kind::Brk, true)));
        assert_eq!(kind(b"7000-8000 ---p 0 00:00 0 "), None);
        assert_eq!(kind(b"8000-9000 rw-s 0 00:00 0    /dev/kfd"), Some((Kind::Device, true)));
    }

    #[test]
    fn only_pages_that_were_written_have_content() {
        const N: usize = 40;
        let at = mem::reserve(N * PAGE, PAGE).unwrap();
        let written = [3, 4, 17, N - 1];
        for i in written {
            // SAFETY: a page of the range that this test has reserved.
            unsafe { ((at + i * PAGE) as *mut usize).write(i) };
        }
        let mut all = Mapped::new();
        list(&mut all).unwrap();
        assert!(all.iter().any(|m| m.start <= at && m.end >= at + N * PAGE && m.is_writable));
        for scans in [true, false] {
            let mut pages = Pages::new().unwrap();
            pages.scans &= scans;
            let mut found = Vec::new();
            pages.each(at..at + N * PAGE, false, &mut |r| found.extend(r.step_by(PAGE))).unwrap();
            assert!(found.iter().eq(written.map(|i| at + i * PAGE).iter()), "{found:x?}");
        }
        // SAFETY: this test has reserved the range. A page in the middle is unmapped.
        unsafe { mem::release(at + 4 * PAGE, PAGE) };
        let (mut room, mut words) = ([0; 1024], Vec::new());
        read(at..at + N * PAGE, &mut room, &mut |_, w| words.extend_from_slice(w)).unwrap();
        assert_eq!(words.len(), (N - 1) * PAGE / 8);
        assert!(words.iter().filter(|&&w| w != 0).eq([3, 17, N as u64 - 1].iter()));
        // SAFETY: as above.
        unsafe {
            mem::release(at, 4 * PAGE);
            mem::release(at + 5 * PAGE, (N - 5) * PAGE);
        }
    }
}
