//! Errors as the results of calls that give a count or a negative errno value.

macro_rules! results {
    ($($name:ident)*) => { $(pub const $name: isize = -libc::$name as isize;)* };
}

results! {
    EAGAIN EALREADY EBADF ECANCELED ECONNABORTED EINPROGRESS EINTR EINVAL EISCONN ENOMEM ENOTSOCK
    EPERM EPIPE EPROTO ETIMEDOUT
}
