//! Looking up names of hosts. getaddrinfo(3) blocks, and needs much stack. So a helper goroutine
//! calls getaddrinfo on a thread's own stack, and the asking goroutine can stop waiting. Then the
//! helper frees the answer, or, if its turn has not come yet, ends without asking a server.

use super::wait::is_past;
use crate::os::heap;
use crate::os::socket::{self, Info};
use crate::sched::lifecycle::spawn::{self, Options};
use crate::sched::lifecycle::{cancel, goroutine};
use crate::sched::run::park::{FOREVER, NOWAIT};
use crate::sched::take::blocking;
use crate::sched::take::boundary::Entered;
use crate::sched::types::g::{GRef, flags};
use crate::sched::types::m;
use crate::sync::Sem;
use core::cell::Cell;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicU32, Ordering};
use core::{mem, ptr};
use std::ffi::CString;

/// Helpers that keep a thread at one time, at most.
const HELPERS: i64 = 64;

static HELPING: Sem = Sem::with(HELPERS);

/// In the child of a fork the helpers are gone.
pub fn forget_helpers() {
    // SAFETY: the child has none of the threads and goroutines that used it.
    unsafe { HELPING.reset(HELPERS) };
}

/// getaddrinfo's code, with a negative errno value for `EAI_SYSTEM`, and its list, which is freed with
/// the answer.
pub struct Answer {
    code: i32,
    error: i32,
    pub list: *mut Info,
}

/// Added to getaddrinfo's codes, which are small negative numbers, so that they are no errno
/// values.
const CODES: i32 = -10_000;
/// Codes are within this distance below [`CODES`].
const MOST: i32 = 1000;

/// The code in a result of [`Answer::result`]; 0: there is none.
pub fn eai(result: i32) -> i32 {
    let code = result.wrapping_sub(CODES);
    if (1..MOST).contains(&code.wrapping_neg()) { code } else { 0 }
}

impl Answer {
    /// 0, a negative errno value, or a code that [`eai`] finds.
    pub fn result(&self) -> i32 {
        match self.code {
            0 => 0,
            libc::EAI_SYSTEM if self.error < 0 => self.error,
            libc::EAI_MEMORY => -libc::ENOMEM,
            code => CODES - code.saturating_abs().min(MOST - 1),
        }
    }

    fn system(error: i32) -> Answer {
        Answer { code: libc::EAI_SYSTEM, error, list: ptr::null_mut() }
    }

    /// Takes the list, which the caller frees, or null.
    pub fn take_list(&mut self) -> *mut Info {
        mem::replace(&mut self.list, ptr::null_mut())
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        unsafe extern "C" fn free(list: *mut c_void) -> *mut c_void {
            // SAFETY: getaddrinfo's list, which only its answer has had.
            unsafe { socket::free_list(list.cast()) };
            ptr::null_mut()
        }
        let list = self.take_list();
        if !list.is_null() {
            // Without the P: a goroutine that waits for a P may hold the lock of the C library's heap.
            // SAFETY: `free` may be called with getaddrinfo's list.
            unsafe { blocking::call(free, list.cast()) };
        }
    }
}

/// A question; the asker and the helper have a reference each.
struct Question {
    refs: AtomicU32,
    node: Option<CString>,
    service: Option<CString>,
    hints: Option<Info>,
    answer: Cell<Option<Answer>>,
}

impl Question {
    /// Calls getaddrinfo, which blocks the thread.
    fn ask(&self, more_flags: i32) -> Answer {
        // SAFETY: all bytes zero are no hints.
        let none: Info = unsafe { core::mem::zeroed() };
        let mut hints = self.hints.unwrap_or(none);
        hints.ai_flags |= more_flags;
        let of = |s: &Option<CString>| s.as_ref().map_or(ptr::null(), |s| s.as_ptr());
        // Without hints getaddrinfo would use default flags.
        let given = self.hints.is_some() || more_flags != 0;
        let hints = if given { &raw const hints } else { ptr::null() };
        // SAFETY: the strings and hints live as long as the question.
        let (code, errno, list) =
            unsafe { socket::look_up(of(&self.node), of(&self.service), hints) };
        Answer { code, error: if code == libc::EAI_SYSTEM { -errno } else { 0 }, list }
    }

    /// # Safety
    /// The caller has a reference and uses it no more.
    unsafe fn release(this: *mut Question) {
        // AcqRel: pairs with the other release, so the question is freed after all uses.
        // SAFETY: the caller has a reference, so it is alive.
        if unsafe { &*this }.refs.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: the last reference; `Box::into_raw` has made the question.
            drop(unsafe { Box::from_raw(this) });
        }
    }
}

/// A copy of a string; none of null. `-ENOMEM`.
///
/// # Safety
/// Null or a C string.
unsafe fn copied(s: *const c_char) -> Result<Option<CString>, i32> {
    if s.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, so a C string, as the caller says.
    heap::c_string(unsafe { CStr::from_ptr(s) }).map(Some).ok_or(-libc::ENOMEM)
}

/// Looks up a host, a service or both. getaddrinfo.
///
/// # Safety
/// Each pointer is null or what getaddrinfo wants.
pub unsafe fn resolve(
    node: *const c_char,
    service: *const c_char,
    hints: *const Info,
    deadline: i64,
) -> Answer {
    if is_past(deadline) {
        return Answer::system(-libc::ETIMEDOUT);
    }
    // SAFETY: null or C strings, as the caller says.
    let (node, service) = match unsafe { (copied(node), copied(service)) } {
        (Ok(node), Ok(service)) => (node, service),
        (Err(e), _) | (_, Err(e)) => return Answer::system(e),
    };
    let question = heap::boxed(Question {
        refs: AtomicU32::new(1),
        node,
        service,
        // SAFETY: null or readable, as the caller says. The pointers in it are not used.
        hints: unsafe { hints.as_ref() }.map(|h| Info {
            ai_next: ptr::null_mut(),
            ai_addr: ptr::null_mut(),
            ai_canonname: ptr::null_mut(),
            ..*h
        }),
        answer: Cell::new(None),
    });
    let Some(question) = question.map(Box::into_raw) else {
        return Answer::system(-libc::ENOMEM);
    };
    // SAFETY: alive until it is released.
    let answer = unsafe { answer(question, deadline) };
    // SAFETY: the asker's reference.
    unsafe { Question::release(question) };
    answer
}

/// # Safety
/// The caller has a reference.
unsafe fn answer(question: *mut Question, deadline: i64) -> Answer {
    // SAFETY: the caller has a reference, so it is alive.
    let q = unsafe { &*question };
    if m::on_goroutine().is_none() && deadline == FOREVER {
        return q.ask(0);
    }
    // An address needs no server: it is parsed at once, even with a deadline that forbids waiting,
    // or after a cancel.
    // SAFETY: the question outlives the call.
    unsafe { blocking::call(ask_numeric, question.cast()) };
    match q.answer.take() {
        Some(a) if a.code != libc::EAI_NONAME => return a,
        _ if deadline == NOWAIT => return Answer::system(-libc::EAGAIN),
        _ => {}
    }
    q.refs.fetch_add(1, Ordering::Relaxed);
    let helper = match spawn_helper(question) {
        Ok(helper) => helper,
        Err(e) => {
            q.refs.fetch_sub(1, Ordering::Relaxed);
            return Answer::system(e);
        }
    };
    let e = goroutine::join(helper, deadline);
    if e != 0 && !goroutine::has_ended(helper) {
        // A helper that waits for its turn ends at once. A helper that asks can't be stopped.
        cancel::cancel(helper);
    }
    goroutine::release(helper);
    match e {
        // The helper has ended, so the answer is this caller's alone.
        0 => q.answer.take().unwrap_or(Answer::system(-libc::ENOMEM)),
        e => Answer::system(e),
    }
}

fn spawn_helper(question: *mut Question) -> Result<GRef, i32> {
    let options = Options { name: Some(c"gs_getaddrinfo"), referenced: true, ..Options::DEFAULT };
    spawn::spawn_with(help, question.cast(), 0, &options)
}

unsafe extern "C" fn help(question: *mut c_void) {
    // A goroutine's function, but the library's code: its P must not be taken, and the goroutine
    // must not be stopped with a lock held.
    let _entered = Entered::new();
    // The goroutine that asks cancels the helper when it leaves.
    if HELPING.acquire(1, FOREVER) == 0 {
        if !cancel::is_cancelled() {
            // SAFETY: the question outlives the call: the helper's reference.
            unsafe { blocking::call(ask, question) };
        }
        HELPING.release(1);
    }
    // SAFETY: the helper's reference.
    unsafe { Question::release(question.cast()) };
}

unsafe extern "C" fn ask(question: *mut c_void) -> *mut c_void {
    // SAFETY: `help` has passed a question.
    let q = unsafe { &*question.cast::<Question>() };
    q.answer.set(Some(q.ask(0)));
    ptr::null_mut()
}

unsafe extern "C" fn ask_numeric(question: *mut c_void) -> *mut c_void {
    // SAFETY: `answer` has passed a question.
    let q = unsafe { &*question.cast::<Question>() };
    q.answer.set(Some(q.ask(libc::AI_NUMERICHOST)));
    ptr::null_mut()
}

thread_local! {
    static LAST_ERROR: Cell<i32> = const { Cell::new(0) };
}

/// The latest result of `gs_getaddrinfo` for the caller, a goroutine or a plain thread.
pub fn last_error() -> i32 {
    match m::current_g() {
        Some(g) => g.last_error.get(),
        None => LAST_ERROR.get(),
    }
}

pub fn set_last_error(e: i32) {
    match m::current_g() {
        Some(g) => {
            g.last_error.set(e);
            g.set_flag(flags::FOUND_NO_HOST, e != 0);
        }
        None => LAST_ERROR.set(e),
    }
}
