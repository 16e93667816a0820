//! Files and epoll of the modelled machine. A file has bytes to read and nothing
//! else; when some come that is an event, and is told once (edge-triggered).

use crate::machine;
use core::order;
use std::cell::RefCell;

enum File {
    /// How many bytes are there.
    Bytes(usize),
    /// Whether it has been rung since it was silenced.
    Bell(bool),
    Instance(Vec<Item>),
    Closed,
}

struct Item {
    fd: i32,
    data: u64,
    /// Told once: false until it is armed again.
    armed: bool,
    once: bool,
    /// Of a file: something has happened that was not told yet.
    changed: bool,
}

thread_local! {
    static FILES: RefCell<Vec<File>> = RefCell::default();
}

/// The first number: others would look like a mistake.
const FIRST: i32 = 10;
/// Where those sleep who wait in an instance, beside real addresses.
const SLEEP: usize = 0x1000;

pub fn reset() {
    FILES.with_borrow_mut(Vec::clear);
}

fn with<R>(f: impl FnOnce(&mut Vec<File>) -> R) -> R {
    order::point();
    order::finish_stores();
    FILES.with_borrow_mut(f)
}

fn make(file: File) -> i32 {
    with(|files| {
        files.push(file);
        files.len() as i32 - 1 + FIRST
    })
}

/// A file without bytes.
pub fn make_file() -> i32 {
    make(File::Bytes(0))
}

pub fn make_bell() -> i32 {
    make(File::Bell(false))
}

pub fn make_instance() -> i32 {
    make(File::Instance(Vec::new()))
}

pub fn close(fd: i32) {
    with(|files| {
        files[(fd - FIRST) as usize] = File::Closed;
        for file in files.iter_mut() {
            if let File::Instance(items) = file {
                items.retain(|i| i.fd != fd);
            }
        }
    });
}

/// close(2), and the number is a new file without bytes.
pub fn replace(fd: i32) {
    close(fd);
    with(|files| files[(fd - FIRST) as usize] = File::Bytes(0));
}

pub fn is_open(fd: i32) -> bool {
    with(|files| files.get((fd - FIRST) as usize).is_some_and(|f| !matches!(f, File::Closed)))
}

/// Takes a byte. 1, or -EAGAIN.
pub fn read(fd: i32) -> isize {
    read_up_to(fd, 1)
}

/// Takes what is there, up to `room` bytes. How many, or -EAGAIN.
pub fn read_up_to(fd: i32, room: usize) -> isize {
    with(|files| match &mut files[(fd - FIRST) as usize] {
        File::Bytes(0) => -libc::EAGAIN as isize,
        File::Bytes(n) => {
            let taken = room.min(*n);
            *n -= taken;
            taken as isize
        }
        _ => -libc::EBADF as isize,
    })
}

/// Puts `n` bytes in at once.
pub fn write(fd: i32, n: usize) {
    with(|files| {
        if let File::Bytes(bytes) = &mut files[(fd - FIRST) as usize] {
            *bytes += n;
        }
    });
    raise(fd);
}

/// An event of a bell that was silent.
pub fn ring(fd: i32) {
    let was_silent = with(|files| match &mut files[(fd - FIRST) as usize] {
        File::Bell(rung) => !std::mem::replace(rung, true),
        _ => false,
    });
    if was_silent {
        raise(fd);
    }
}

/// Nothing is to be told of it any more.
pub fn silence(fd: i32) {
    with(|files| {
        if let File::Bell(rung) = &mut files[(fd - FIRST) as usize] {
            *rung = false;
        }
        for file in files.iter_mut() {
            if let File::Instance(items) = file {
                items.iter_mut().filter(|i| i.fd == fd).for_each(|i| i.changed = false);
            }
        }
    });
}

/// Something has happened with a file.
fn raise(fd: i32) {
    let woken = with(|files| {
        let mut woken = Vec::new();
        for (n, file) in files.iter_mut().enumerate() {
            if let File::Instance(items) = file {
                for item in items.iter_mut().filter(|i| i.fd == fd) {
                    item.changed = true;
                    woken.push(n as i32 + FIRST);
                }
            }
        }
        woken
    });
    woken.into_iter().for_each(wake);
}

/// Sleepers in the instance, or in an instance that contains it, look again.
fn wake(instance: i32) {
    let outer = with(|files| {
        let contains =
            |f: &File| matches!(f, File::Instance(items) if items.iter().any(|i| i.fd == instance));
        let outer = files.iter().enumerate().filter(|(_, f)| contains(f));
        outer.map(|(n, _)| n as i32 + FIRST).collect::<Vec<_>>()
    });
    for instance in outer.into_iter().chain([instance]) {
        machine::futex_wake(SLEEP + instance as usize, usize::MAX);
    }
}

pub fn add(instance: i32, fd: i32, once: bool, data: u64) -> Result<(), i32> {
    with(|files| {
        let changed = matches!(files[(fd - FIRST) as usize], File::Bytes(n) if n > 0);
        if let File::Instance(items) = &mut files[(instance - FIRST) as usize] {
            items.push(Item { fd, data, armed: !once, once, changed });
        }
    });
    wake(instance);
    Ok(())
}

pub fn change(instance: i32, fd: i32, data: u64) -> Result<(), i32> {
    with(|files| {
        let now = matches!(files[(fd - FIRST) as usize], File::Bytes(n) if n > 0);
        let File::Instance(items) = &mut files[(instance - FIRST) as usize] else {
            return Err(-libc::EBADF);
        };
        let item = items.iter_mut().find(|i| i.fd == fd).ok_or(-libc::ENOENT)?;
        item.armed = true;
        item.data = data;
        item.changed |= now;
        Ok(())
    })?;
    wake(instance);
    Ok(())
}

pub fn remove(instance: i32, fd: i32) {
    with(|files| {
        if let File::Instance(items) = &mut files[(instance - FIRST) as usize] {
            items.retain(|i| i.fd != fd);
        }
    });
}

/// Takes up to `room` events of an instance.
fn take(files: &mut [File], instance: i32, room: usize) -> Vec<u64> {
    let has_events = |files: &[File], fd: i32| match &files[(fd - FIRST) as usize] {
        File::Instance(items) => items.iter().any(|i| i.changed),
        _ => false,
    };
    let inner: Vec<bool> = match &files[(instance - FIRST) as usize] {
        File::Instance(items) => items.iter().map(|i| has_events(files, i.fd)).collect(),
        _ => Vec::new(),
    };
    let mut out = Vec::new();
    if let File::Instance(items) = &mut files[(instance - FIRST) as usize] {
        for (item, inner) in items.iter_mut().zip(inner) {
            if out.len() < room && item.armed && (item.changed || inner) {
                item.changed = false;
                item.armed = !item.once;
                out.push(item.data);
            }
        }
    }
    out
}

/// Waits until there are events, or until the deadline (0: only looks; negative:
/// none).
pub fn wait(instance: i32, room: usize, deadline: i64) -> Vec<u64> {
    loop {
        let events = with(|files| take(files, instance, room));
        if !events.is_empty() || deadline == 0 {
            return events;
        }
        // A look and going to sleep are one in the kernel.
        let quiet = || FILES.with_borrow(|files| !would_take(files, instance));
        let deadline = (deadline > 0).then_some(deadline);
        if !machine::futex_wait(SLEEP + instance as usize, quiet, deadline) {
            return Vec::new();
        }
    }
}

fn would_take(files: &[File], instance: i32) -> bool {
    let items = |fd: i32| match &files[(fd - FIRST) as usize] {
        File::Instance(items) => items.as_slice(),
        _ => &[],
    };
    items(instance).iter().any(|i| i.armed && (i.changed || items(i.fd).iter().any(|i| i.changed)))
}
