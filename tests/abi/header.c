/*
 * Compiles without a warning in each version of C and C++ (tests/programs.rs): gosched.h, twice, with its initialisers,
 * some of its constants, and all its inline functions.
 */
#include <gosched.h>
#include <gosched.h>

gs_config config(void);
int use(const gs_config *c, gs_mutex *m, gs_rwmutex *rw, gs_once *o, gs_fn f);
gs_spawn_opts opts(void);

gs_config config(void)
{
    gs_config c = GS_CONFIG_INIT;
    c.gomaxprocs = GS_MAX_PROCS;
    c.flags = GS_CONFIG_COOPERATIVE | GS_CONFIG_UNBOUND | GS_CONFIG_KEEP_AFFINITY | GS_CONFIG_FIXED_PROCS;
    return c;
}

gs_spawn_opts opts(void)
{
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    o.flags = GS_SPAWN_PINNED | GS_SPAWN_NOPREEMPT;
    o.priority = GS_PRIO_LOW;
    return o;
}

int use(const gs_config *c, gs_mutex *m, gs_rwmutex *rw, gs_once *o, gs_fn f)
{
    int err = gs_init(c);
    gs_preempt_check();
    err |= gs_mutex_lock(m, GS_FOREVER);
    err |= gs_mutex_unlock(m);
    err |= gs_mutex_trylock(m);
    err |= gs_rwmutex_rlock(rw, GS_NOWAIT) | gs_rwmutex_runlock(rw);
    err |= gs_rwmutex_lock(rw, gs_after_ms(1)) | gs_rwmutex_unlock(rw);
    return err | gs_once_do(o, f, m) | gs_run(f, m);
}
