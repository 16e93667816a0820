/*
 * pthread_exit, thrd_exit and pthread_cleanup_push, which in a goroutine act on the goroutine. libc's pthread_exit
 * would end the thread, which has other goroutines and a P. On a thread that gs_attach has made a goroutine they are
 * libc's.
 */
#include "calls.h"
#include "masks.h"
#include "parts.h"

#include <unwind.h>

/* From libgcc_s, which libc's pthread_exit needs too. */
#pragma weak _Unwind_ForcedUnwind
#pragma weak _Unwind_GetCFA
#pragma weak _Unwind_GetIP

/* The state of a goroutine that has called one of these functions: its value of `exits_key`. */
struct exits {
    /*
     * The buffer of the innermost pthread_cleanup_push that has not been popped. __pad[0] of each buffer points to the
     * next buffer. __pad[3], which libc doesn't use, points to exits_key, and so marks the buffer as one of this list.
     * The child of a fork needs the mark: it has no goroutines, and may pop a buffer that the goroutine pushed before
     * the fork.
     */
    __pthread_unwind_buf_t *pushed;
    /* The unwinder's state while it leaves frames. */
    struct _Unwind_Exception unwinding;
};

static gs_key exits_key;

void exits_start(void)
{
    gs_key_create(&exits_key, free);
}

/* Whether the goroutine is a thread that has called gs_attach, and so runs on the thread's stack. */
static bool is_attached(void)
{
    gs_g_info info;
    pthread_attr_t attr;
    struct range stack = {0, 0};
    void *lowest;
    /* spawned_at is NULL for goroutines that gs_attach or a timer has made. A timer's has a stack of its own. */
    if (gs_g_info_read(gs_self(), &info, sizeof info) != 0 || info.spawned_at != NULL)
        return false;
    if (pthread_getattr_np(pthread_self(), &attr) == 0) {
        if (pthread_attr_getstack(&attr, &lowest, &stack.size) == 0)
            stack.from = (uintptr_t)lowest;
        pthread_attr_destroy(&attr);
    }
    return is_within(__builtin_frame_address(0), &stack);
}
#define OWN_EXITS (TAKEN && !is_attached())

/* The calling goroutine's struct exits, made if need be. NULL: no memory. */
static struct exits *own_exits(void)
{
    struct exits *exits = gs_getspecific(exits_key);
    if (exits == NULL && (exits = calloc(1, sizeof *exits)) != NULL && gs_setspecific(exits_key, exits) != 0) {
        free(exits);
        exits = NULL;
    }
    return exits;
}

/* Runs the handler of the innermost pthread_cleanup_push: resumes in its macro, which calls __pthread_unwind_next. */
static _Noreturn void run_handler(struct exits *exits)
{
    __pthread_unwind_buf_t *buf = exits->pushed;
    exits->pushed = buf->__pad[0];
    real.longjmp((struct __jmp_buf_tag *)buf->__cancel_jmp_buf, 1);
    __builtin_unreachable();
}

/* Called before the unwinder leaves a frame. */
static _Unwind_Reason_Code before_frame(int version, _Unwind_Action actions, _Unwind_Exception_Class kind,
                                        struct _Unwind_Exception *unwinding, struct _Unwind_Context *context, void *arg)
{
    (void)version, (void)kind, (void)unwinding;
    struct exits *exits = arg;
    bool at_end = (actions & _UA_END_OF_STACK) || is_within((const void *)_Unwind_GetIP(context), &library);
    /* The stack grows down, and _Unwind_GetCFA tells where this frame begins: frames below it have been left. */
    if (exits->pushed && (at_end || (uintptr_t)exits->pushed < _Unwind_GetCFA(context)))
        run_handler(exits);
    if (at_end)
        gs_exit();
    return _URC_NO_REASON;
}

/* Leaves all frames of the goroutine: runs the handlers and the destructors of C++ objects. */
static _Noreturn void leave(struct exits *exits)
{
    if (exits && _Unwind_ForcedUnwind) {
        memset(&exits->unwinding, 0, sizeof exits->unwinding);
        _Unwind_ForcedUnwind(&exits->unwinding, before_frame, exits);
    }
    /* Only if the frames can't be read: _Unwind_ForcedUnwind has returned. */
    if (exits && exits->pushed)
        run_handler(exits);
    gs_exit();
    abort(); /* gs_exit returns only if the goroutine has no P to give up. */
}

/* Ends the goroutine. Returns if it can't give up its P: then libc's function has to end the thread. */
static void end_goroutine(struct counts *counts)
{
    end_all_taking();
    if (!can_park())
        return;
    if (debug)
        count_parked(counts);
    leave(own_exits());
}

EXPORT _Noreturn void pthread_exit(void *value)
{
    COUNTED(pthread_exit);
    if (OWN_EXITS)
        end_goroutine(&counts);
    real.pthread_exit(value);
    __builtin_unreachable();
}

EXPORT _Noreturn void thrd_exit(int result)
{
    COUNTED(thrd_exit);
    if (OWN_EXITS)
        end_goroutine(&counts);
    real.thrd_exit(result);
    __builtin_unreachable();
}

/* The functions that the macros pthread_cleanup_push and pthread_cleanup_pop call. */

/* The other two are pthread_cleanup_push_defer_np's: nothing cancels a goroutine, so nothing is deferred. */
#define PUSHES(name) \
    EXPORT void name(__pthread_unwind_buf_t *buf) \
    { \
        if (!OWN_EXITS) { \
            buf->__pad[3] = NULL; \
            real.name(buf); \
            return; \
        } \
        struct exits *exits = own_exits(); /* without memory the buffer is in no list */ \
        buf->__pad[3] = &exits_key; \
        buf->__pad[0] = exits ? exits->pushed : NULL; \
        if (exits) \
            exits->pushed = buf; \
    }
PUSHES(__pthread_register_cancel)
PUSHES(__pthread_register_cancel_defer)

/* Pops more than the innermost buffer if need be: siglongjmp may have left frames with others. */
#define POPS(name) \
    EXPORT void name(__pthread_unwind_buf_t *buf) \
    { \
        struct exits *exits = TAKEN ? gs_getspecific(exits_key) : NULL; \
        if (buf->__pad[3] != &exits_key) \
            real.name(buf); \
        else if (exits) \
            exits->pushed = buf->__pad[0]; \
    }
POPS(__pthread_unregister_cancel)
POPS(__pthread_unregister_cancel_restore)

EXPORT _Noreturn void __pthread_unwind_next(__pthread_unwind_buf_t *buf)
{
    if (buf->__pad[3] != &exits_key)
        real.__pthread_unwind_next(buf);
    else if (TAKEN && can_park())
        leave(gs_getspecific(exits_key));
    else
        real.pthread_exit(NULL); /* the handler has forked, or begun a system call */
    __builtin_unreachable();
}
