//! `GOSCHED_TOP`: a thread that answers viewers such as `gosched-top` on a Unix socket. Each line
//! that a viewer sends is answered by a line of JSON ([`snapshot`]).
//!
//! The thread's files are in a table of its own, like the inspector's: they take no number of the
//! process, and no child of a fork has them. It never waits for a viewer.

use super::observer::Observer;
use super::snapshot;
use crate::os::file::{self, Buffer, Polled};
use crate::os::socket::{self, SocketAddress};
use crate::os::{futex, heap, log, process, thread, time};
use crate::sched::types::runtime::{Runtime, rt};
use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;

/// The variable that switches the socket on.
const VARIABLE: &str = "GOSCHED_TOP";
/// The most viewers at a time. A further viewer takes the place of the viewer that has been silent
/// for longest.
const VIEWERS: usize = 16;

static SERVER: Observer = Observer::new();
/// The name of the socket: a C string that is never freed, or null.
static NAME: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());
/// A futex word: whether the thread has tried to listen.
static HAS_TRIED: AtomicU32 = AtomicU32::new(0);
/// The process that has made a file for the socket; 0: none has.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// The socket's name: `1` stands for the abstract name `@gosched-PID`, and `%p` for the process's
/// number. `None`: switched off.
fn name_of(setting: Vec<u8>) -> Option<CString> {
    match &setting[..] {
        b"" | b"0" => None,
        b"1" => process::expand_name(b"@gosched-%p"),
        name => process::expand_name(name),
    }
}

/// Starts the thread, if the environment asks for it. It listens when this returns, so that a viewer
/// which knows that the program has begun finds the socket.
pub fn start(_: &Runtime) {
    let setting = std::env::var_os(VARIABLE).map(OsString::into_vec);
    let Some(name) = setting.and_then(name_of) else { return };
    if process::is_privileged() {
        return log::say(format_args!("gosched: {VARIABLE} is ignored in a privileged program"));
    }
    // A name that a thread may read at exit is never freed.
    let before = NAME.load(Ordering::Relaxed);
    // SAFETY: null, or a C string of an earlier runtime.
    if before.is_null() || unsafe { CStr::from_ptr(before) } != &*name {
        NAME.store(name.into_raw(), Ordering::Relaxed);
    }
    HAS_TRIED.store(0, Ordering::Relaxed);
    if let Err(e) = SERVER.start(main) {
        return log::say(format_args!("gosched: no thread for {VARIABLE} (errno {})", -e));
    }
    while HAS_TRIED.load(Ordering::Relaxed) == 0 {
        futex::wait(&HAS_TRIED, 0, -1);
    }
}

/// Lets [`start`] return. Before the thread says anything: the host's function for messages may wait
/// for the runtime, whose start waits for this.
fn has_tried() {
    HAS_TRIED.store(1, Ordering::Relaxed);
    futex::wake(&HAS_TRIED, i32::MAX);
}

/// Ends the thread: see [`Observer::end`].
pub fn end() -> Option<thread::Thread> {
    SERVER.end()
}

/// In the child of a fork, whose parent goes on using the socket.
pub fn forked() {
    OWNER.store(0, Ordering::Relaxed);
    SERVER.forked();
}

fn name() -> &'static CStr {
    // SAFETY: `start` has put a C string there, which is never freed.
    unsafe { CStr::from_ptr(NAME.load(Ordering::Relaxed)) }
}

/// Removes the socket's file, if this process has made it.
extern "C" fn remove_file() {
    if OWNER.swap(0, Ordering::Relaxed) == process::id() {
        file::unlink(name());
    }
}

extern "C" fn main(_: *mut c_void) -> *mut c_void {
    thread::set_up_current(c"gosched-top");
    // Standard error is for messages below.
    let listener = file::use_own_table_with([2, SERVER.to_poll()]).then(listen);
    has_tried();
    match listener {
        None => log::say(format_args!("gosched: {VARIABLE}: the system gives no table of files")),
        Some(Ok(listener)) => {
            file::close(2);
            serve(rt(), listener);
        }
        Some(Err(e)) if e == -libc::EADDRINUSE => log::say(format_args!(
            "gosched: {VARIABLE}: {} is in use; %p in the name stands for the process's number",
            name().to_string_lossy()
        )),
        Some(Err(e)) => log::say(format_args!(
            "gosched: {VARIABLE}: can't listen on {} (errno {})",
            name().to_string_lossy(),
            -e
        )),
    }
    remove_file();
    SERVER.leave();
    ptr::null_mut()
}

/// Makes the socket; replaces a file that a process has left behind. Fails with a negative errno
/// value.
fn listen() -> Result<i32, i32> {
    static AT_EXIT: std::sync::Once = std::sync::Once::new();
    let address = SocketAddress::unix(name())?;
    let is_file = name().to_bytes().first() != Some(&b'@');
    let listen = || {
        let fd = socket::new(libc::AF_UNIX, libc::SOCK_STREAM, 0)?;
        socket::keep_to_owner(fd);
        match socket::listen_on(fd, &address, VIEWERS as i32) {
            0 => Ok(fd),
            e => {
                file::close(fd);
                Err(e)
            }
        }
    };
    let mut made = listen();
    if made == Err(-libc::EADDRINUSE) && is_file && is_left_behind(&address) {
        file::unlink(name());
        made = listen();
    }
    if made.is_ok() && is_file {
        OWNER.store(process::id(), Ordering::Relaxed);
        AT_EXIT.call_once(|| process::at_exit(remove_file));
    }
    made
}

/// Whether the file is a socket on which no process listens any more.
fn is_left_behind(address: &SocketAddress) -> bool {
    let Ok(fd) = socket::new(libc::AF_UNIX, libc::SOCK_STREAM, 0) else { return false };
    let (at, len) = address.as_raw();
    // SAFETY: the address is readable for its length.
    let answer = unsafe { socket::connect(fd, at, len) };
    file::close(fd);
    answer == -libc::ECONNREFUSED as isize && file::is_socket(name())
}

/// A viewer's connection.
struct Viewer {
    fd: i32,
    /// The answer under way, and how much of it has been sent.
    answer: Vec<u8>,
    sent: usize,
    /// When the viewer last sent or took something, in ns.
    last: i64,
}

impl Viewer {
    fn is_answered(&self) -> bool {
        self.sent == self.answer.len()
    }

    /// Reads what has come, and answers it if it is a line. False: the viewer has left.
    fn hear(&mut self, rt: &Runtime, begun: i64) -> bool {
        let mut bytes = [0u8; 512];
        let buffer = Buffer { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: the buffer is writable.
        let n = match unsafe { socket::recv(self.fd, &[buffer], 0) } {
            n @ 1.. => n as usize,
            e => return e == -libc::EAGAIN as isize || e == -libc::EINTR as isize,
        };
        if !bytes[..n].contains(&b'\n') {
            return true;
        }
        let Some(answer) = snapshot::take(rt, begun) else { return false };
        (self.answer, self.sent) = (answer, 0);
        self.send()
    }

    /// Sends more of the answer. False: the viewer has left.
    fn send(&mut self) -> bool {
        while !self.is_answered() {
            let rest = &self.answer[self.sent..];
            let buffer = Buffer { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() };
            // SAFETY: the buffer is readable.
            match unsafe { socket::send(self.fd, &[buffer], 0) } {
                n @ 1.. => self.sent += n as usize,
                e => return e == -libc::EAGAIN as isize || e == -libc::EINTR as isize,
            }
        }
        true
    }
}

/// Answers viewers until the thread must end.
fn serve(rt: &Runtime, listener: i32) {
    let begun = time::now();
    let mut viewers: Vec<Viewer> = Vec::new();
    if !heap::reserve(&mut viewers, VIEWERS) {
        return log::say(format_args!("gosched: {VARIABLE}: no memory"));
    }
    while !SERVER.must_end() {
        let polled = |fd, events| Polled { fd, events, revents: 0 };
        let mut files = [polled(-1, 0); VIEWERS + 2];
        files[0] = polled(SERVER.to_poll(), libc::POLLIN);
        files[1] = polled(listener, libc::POLLIN);
        for (file, viewer) in files[2..].iter_mut().zip(&viewers) {
            // A viewer that has not taken its answer is not heard.
            let events = if viewer.is_answered() { libc::POLLIN } else { libc::POLLOUT };
            *file = polled(viewer.fd, events);
        }
        file::poll_all(&mut files);
        let now = time::now();
        let mut seen = files[2..].iter().map(|file| file.revents);
        viewers.retain_mut(|viewer| {
            if seen.next().unwrap_or(0) == 0 {
                return true;
            }
            viewer.last = now;
            let stays = if viewer.is_answered() { viewer.hear(rt, begun) } else { viewer.send() };
            if !stays {
                file::close(viewer.fd);
            }
            stays
        });
        if files[1].revents != 0 {
            accept(listener, &mut viewers, now);
        }
    }
    // The table of files ends with the thread, and closes them.
}

/// Lets a viewer in: of this user, or root.
fn accept(listener: i32, viewers: &mut Vec<Viewer>, now: i64) {
    // SAFETY: the address is not asked for.
    let fd = unsafe { socket::accept(listener, ptr::null_mut(), ptr::null_mut()) } as i32;
    if fd < 0 {
        return;
    }
    if !socket::peer_user(fd).is_some_and(process::may_look) {
        file::close(fd);
        return;
    }
    if viewers.len() == VIEWERS
        && let Some(oldest) = (0..VIEWERS).min_by_key(|&i| viewers[i].last)
    {
        file::close(viewers.swap_remove(oldest).fd);
    }
    viewers.push(Viewer { fd, answer: Vec::new(), sent: 0, last: now });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stands_for_an_abstract_name_and_p_for_the_process() {
        let name = |setting: &str| name_of(setting.into()).map(|n| n.into_string().unwrap());
        let id = process::id();
        assert_eq!(name(""), None);
        assert_eq!(name("0"), None);
        assert_eq!(name("1"), Some(format!("@gosched-{id}")));
        assert_eq!(name("/run/%p/%p.top%"), Some(format!("/run/{id}/{id}.top%")));
    }
}
