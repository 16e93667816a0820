//! Negative errno values, as the results of calls that otherwise return a count.

macro_rules! results {
    ($($name:ident)*) => { $(pub const $name: isize = -libc::$name as isize;)* };
}

results! {
    EAGAIN EALREADY EBADF ECANCELED ECONNABORTED EINPROGRESS EINTR EINVAL EISCONN ENOMEM ENOTSOCK
    EPERM EPIPE EPROTO ETIMEDOUT
}
