//! What the ABI has besides functions, as Rust sees it: the layouts of the public structs, and the
//! values of constants. `tests/abi/layouts.h` has the figures, and C compilers assert them
//! (`tests/abi/layouts.c`). This file is not a section of the header.

use super::*;
use core::fmt::Write;
use core::mem::offset_of;

const HEADER: &str = include_str!("../../include/gosched.h");
const LAYOUTS: &str = include_str!("../../tests/abi/layouts.h");

fn size_behind<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// The lines of the structs with all their fields: another field doesn't compile.
macro_rules! structs {
    ($($name:ident { $($field:ident)* })*) => {{
        let mut lines = String::new();
        $(
            let _ = |all: $name| { let $name { $($field: _),* } = all; };
            let (size, align) = (size_of::<$name>(), align_of::<$name>());
            writeln!(lines, "STRUCT({}, {size}, {align})", stringify!($name)).unwrap();
            $(
                let (at, size) = (offset_of!($name, $field), size_behind(|all: &$name| &all.$field));
                writeln!(lines, "FIELD({}, {}, {at}, {size})", stringify!($name), stringify!($field)).unwrap();
            )*
        )*
        lines
    }};
}

macro_rules! values {
    ($($name:ident)*) => {{
        let mut lines = String::new();
        $(writeln!(lines, "VALUE({}, {})", stringify!($name), $name).unwrap();)*
        lines
    }};
}

fn layouts() -> String {
    structs! {
        gs_config { size gomaxprocs max_threads stack_size topology time_slice_ns flags preempt_signal }
        gs_spawn_opts { size name stack_size priority node flags reserved data workers }
        gs_case { ch elem op result }
        gs_mutex { opaque }
        gs_rwmutex { opaque }
        gs_cond { opaque }
        gs_waitgroup { opaque }
        gs_sem { opaque }
        gs_once { opaque }
        gs_g_info {
            id state node stack_lo stack_hi sp regs arg name spawned_at creator wait_reason since
        }
        gs_frame { function file line }
        gs_hooks {
            size ctx thread_start thread_stop switch_in switch_out switch_over idle goexit dead tick
            fork_child shutdown tick_every reserved frames
        }
        gs_stats {
            size goroutines created ended procs idle_procs threads switches handoffs steals_near
            steals_remote_queue steals_remote_p stacks_sent_home migrations pages_moved run_waits
            runnable running in_calls waiting calls loans stack_bytes thread_limit_hits run_wait_ns
            lock_wait_ns stop_ns pause_ns stops pauses
        }
        gs_test_net { delay jitter loss duplicate cut reset refuse short_io }
        gs_test_opts {
            size seed schedule depth max_steps check check_arg replay flags log net report cancel
            no_memory reserved
        }
    }
}

#[test]
fn structs_and_constants_are_as_tests_abi_layouts_says() {
    let values = values! {
        GS_FOREVER GS_NOWAIT GS_MAX_PROCS GS_CONFIG_COOPERATIVE GS_CONFIG_UNBOUND
        GS_CONFIG_KEEP_AFFINITY GS_CONFIG_FIXED_PROCS GS_SPAWN_PINNED GS_SPAWN_NOPREEMPT
        GS_SPAWN_NOSIGNAL GS_PRIO_HIGH GS_PRIO_NORMAL GS_PRIO_LOW GS_PRIO_IDLE
        GS_WORKERS_RUNNER GS_WORKERS_RUNNERS GS_SEND GS_RECV GS_G_ENDED GS_G_RUNNABLE
        GS_G_RUNNING GS_G_WAITING GS_G_SYSCALL GS_NUMA_LOCAL GS_NUMA_STRIPE GS_RUN_WAITS
        GS_TEST_RANDOM GS_TEST_PCT GS_TEST_ROUND_ROBIN GS_TEST_QUIET GS_TEST_CRASH
        GS_TEST_STRICT
    };
    let is = layouts() + &values;
    let is_comment = |line: &&str| line.starts_with(['/', ' ']) || line.is_empty();
    let was = LAYOUTS.lines().filter(|line| !is_comment(line)).collect::<Vec<_>>();
    let changed = is.lines().filter(|line| !was.contains(line)).collect::<Vec<_>>();
    let gone = was.iter().filter(|was| is.lines().all(|line| line != **was)).collect::<Vec<_>>();
    assert!(
        changed.is_empty() && gone.is_empty(),
        "the ABI is {changed:#?}, where tests/abi/layouts.h has {gone:#?}"
    );
}

#[test]
fn tests_abi_layouts_has_each_struct_and_constant_of_the_header() {
    for line in HEADER.lines() {
        let define = line.strip_prefix("#define GS_").filter(|text| text.contains(" ("));
        let line = match (line.strip_prefix("typedef struct "), define) {
            (Some(text), _) if text.ends_with(" {") => {
                format!("STRUCT({},", &text[..text.len() - 2])
            }
            (_, Some(text)) if !text.starts_with("VERSION ") => {
                format!("VALUE(GS_{},", text.split(' ').next().unwrap())
            }
            _ => continue,
        };
        assert!(LAYOUTS.contains(&line), "tests/abi/layouts.h lacks {line} ...)");
    }
}
