//! Files that are waited for: whoever waits gets what comes, and a close ends all
//! waits.

use shuttle_models::io::want::Want;
use shuttle_models::io::{table, wait};
use shuttle_models::model::{Count, Plain, check, go, in_runtime};
use shuttle_models::os::file::FileKind;
use shuttle_models::sched::run::park::{self, FOREVER};
use shuttle_models::sched::take::call;
use shuttle_models::sched::types::waiter;
use shuttle_models::{os, poll};
use std::sync::Arc;

/// Reads a byte as `gs_read` does.
fn read(fd: i32, deadline: i64) -> isize {
    let file = table::get(fd).expect("open");
    wait::until_done(fd, file, Want::READ, deadline, || poll::read(fd))
}

/// Reads what is there as `gs_read` does from a TCP connection: the next read relies
/// on it when less comes than there is room for.
fn read_up_to(fd: i32, room: usize) -> isize {
    let file = table::get(fd).expect("open");
    wait::until_done(fd, file, Want::to_read(room), FOREVER, || poll::read_up_to(fd, room))
}

fn close(fd: i32) -> i32 {
    let file = table::known(fd).expect("waited for");
    let e = file.begin_closing(fd, None);
    if e == 0 {
        poll::close(fd);
        file.end_closing();
    }
    e
}

/// A new file; one of the library's own is not asked about at each wait.
fn make_file(ours: bool) -> i32 {
    let fd = poll::make_file();
    if ours {
        table::get(fd).expect("open").made(FileKind::Other);
    }
    fd
}

/// Goroutines that read what a plain thread writes, one byte after the other.
fn read_what_comes(procs: usize, nodes: usize, files: usize, bytes: usize) {
    let count = Arc::new(Count::default());
    in_runtime(procs, nodes, || {
        let fds: Vec<i32> = (0..files).map(|n| make_file(n % 2 == 0)).collect();
        for &fd in &fds {
            let count = count.clone();
            go(move || {
                for _ in 0..bytes {
                    assert_eq!(read(fd, FOREVER), 1);
                    count.add(1);
                }
            });
        }
        let writer = Plain::start(move || {
            for _ in 0..bytes {
                fds.iter().for_each(|&fd| poll::write(fd, 1));
            }
        });
        writer.join();
    });
    assert_eq!(count.get(), (files * bytes) as u64);
}

#[test]
fn one_p_goes_idle_while_a_byte_comes() {
    check(2500, || read_what_comes(1, 1, 1, 3));
}

#[test]
fn two_ps_go_idle_while_bytes_come() {
    check(2500, || read_what_comes(2, 1, 2, 2));
}

#[test]
fn a_watcher_for_each_of_two_nodes() {
    check(2500, || read_what_comes(2, 2, 2, 2));
}

#[test]
fn a_file_that_its_user_closed_behind_our_back() {
    check(1500, || {
        in_runtime(1, 1, || {
            let fd = make_file(true);
            go(move || {
                assert_eq!(read(fd, FOREVER), 1);
                // The number is another file now, in no instance.
                poll::replace(fd);
                go(move || assert_eq!(read(fd, FOREVER), 1));
                let _ = park::sleep_until(os::time::now() + 100_000, waiter::Why::Sleep);
                poll::write(fd, 1);
            });
            Plain::start(move || poll::write(fd, 1)).join();
        });
    });
}

/// Reads until this number of bytes has come; 3 at a time, so some reads are short.
fn read_in_pieces(fd: i32, bytes: usize) {
    let mut left = bytes;
    while left > 0 {
        let n = read_up_to(fd, 3);
        assert!(n > 0 && n as usize <= left, "{n} of {left}");
        left -= n as usize;
    }
}

#[test]
fn a_short_read_says_that_the_next_byte_is_an_event() {
    for procs in [1, 2] {
        check(2500, move || {
            in_runtime(procs, 1, move || {
                let fd = make_file(true);
                go(move || read_in_pieces(fd, 6));
                let writer =
                    Plain::start(move || [1, 4, 1].iter().for_each(|&n| poll::write(fd, n)));
                writer.join();
            });
        });
    }
}

#[test]
fn a_short_read_of_a_file_that_its_user_closed_says_nothing_of_the_next() {
    check(1500, || {
        in_runtime(1, 1, || {
            let fd = make_file(true);
            go(move || {
                assert_eq!(read_up_to(fd, 3), 1);
                poll::replace(fd);
                poll::write(fd, 1);
                assert_eq!(read_up_to(fd, 3), 1);
            });
            Plain::start(move || poll::write(fd, 1)).join();
        });
    });
}

/// sysmon has nothing to do for so long that it sleeps until it is woken, and what it is to
/// look at comes while it falls asleep.
#[test]
fn a_wait_that_must_be_verified_begins_while_sysmon_falls_asleep() {
    check(2500, || {
        in_runtime(1, 1, || {
            let fd = make_file(true);
            let read = Arc::new(Count::default());
            let count = read.clone();
            go(move || {
                assert_eq!(read_up_to(fd, 3), 1);
                count.add(1);
            });
            let other = Plain::start(move || {
                os::time::sleep(10_000);
                poll::write(fd, 1);
                while read.get() == 0 {
                    os::time::sleep(100_000);
                }
                // About as long as it takes sysmon to fall asleep.
                let begin = os::time::now();
                while os::time::now() - begin < 4_200_000 {
                    os::time::sleep(100_000);
                }
                poll::replace(fd);
                poll::write(fd, 1);
                go(move || assert_eq!(read_up_to(fd, 3), 1));
            });
            other.join();
        });
    });
}

#[test]
fn a_p_that_is_run_while_an_m_sleeps_in_its_instance() {
    check(2500, || {
        in_runtime(3, 1, || {
            let fds: Vec<i32> = (0..2).map(|_| make_file(true)).collect();
            for &fd in &fds {
                go(move || read_in_pieces(fd, 3));
            }
            for _ in 0..2 {
                // Whoever comes back takes an idle P and leaves its M asleep.
                go(|| {
                    for _ in 0..3 {
                        call::enter();
                        os::time::sleep(200_000);
                        call::exit();
                    }
                });
            }
            let writer = Plain::start(move || {
                for n in [1, 2] {
                    fds.iter().for_each(|&fd| poll::write(fd, n));
                    // Wakes whoever sleeps, by its bell if it sleeps in an instance.
                    (0..2).for_each(|_| go(|| ()));
                }
            });
            writer.join();
        });
    });
}

#[test]
fn a_p_that_a_system_call_has_left_is_watched() {
    for procs in [1, 2] {
        check(1500, move || {
            let count = Arc::new(Count::default());
            in_runtime(procs, 1, || {
                let fd = make_file(true);
                let (read, called) = (count.clone(), count.clone());
                go(move || {
                    for _ in 0..3 {
                        read_in_pieces(fd, 1);
                        read.add(1);
                    }
                });
                // Its M comes back only when the byte has been read: sysmon takes the P,
                // and no thread attends to it.
                go(move || {
                    for n in 1..=3 {
                        call::enter();
                        poll::write(fd, 1);
                        while called.get() < n {
                            os::time::sleep(500_000);
                        }
                        call::exit();
                    }
                });
            });
        });
    }
}

#[test]
fn bytes_that_come_at_once_wake_all_who_read_them() {
    check(2500, || {
        let count = Arc::new(Count::default());
        in_runtime(2, 1, || {
            let fd = make_file(true);
            for _ in 0..3 {
                let count = count.clone();
                go(move || {
                    assert_eq!(read(fd, FOREVER), 1);
                    count.add(1);
                });
            }
            Plain::start(move || poll::write(fd, 3)).join();
        });
        assert_eq!(count.get(), 3);
    });
}

#[test]
fn one_that_times_out_keeps_no_byte_from_another() {
    check(2500, || {
        in_runtime(2, 1, || {
            let fd = make_file(true);
            let impatient = move || {
                let r = read(fd, os::time::now() + 50_000);
                assert!(r == 1 || r == -libc::ETIMEDOUT as isize);
                if r == 1 {
                    poll::write(fd, 1);
                }
            };
            go(impatient);
            go(move || assert_eq!(read(fd, FOREVER), 1));
            Plain::start(move || poll::write(fd, 1)).join();
        });
    });
}

#[test]
fn a_close_ends_all_waits() {
    check(2500, || {
        in_runtime(2, 1, || {
            let fd = poll::make_file();
            assert!(table::get(fd).is_ok());
            for _ in 0..2 {
                go(move || {
                    let r = read(fd, FOREVER);
                    assert!(r == -libc::ECANCELED as isize || r == -libc::EBADF as isize, "{r}");
                });
            }
            Plain::start(move || assert_eq!(close(fd), 0)).join();
        });
    });
}
