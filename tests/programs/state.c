/*
 * What belongs to a goroutine wherever it runs: errno, rounding mode, control words, registers.
 * This program is also built with -O3 -flto, where compilers cache the most.
 */
#include "check.h"
#include <fenv.h>

/* errno's address may be cached within a function, so it is read and written in functions of its own. */
static __attribute__((noinline)) void set_errno(int e)
{
    __asm__ volatile("" ::: "memory");
    errno = e;
}

static __attribute__((noinline)) int get_errno(void)
{
    __asm__ volatile("" ::: "memory");
    return errno;
}

/* 1/3 as the mode in force rounds it: up and down differ. */
static __attribute__((noinline)) double third(void)
{
    volatile double one = 1.0, three = 3.0;
    return one / three;
}

static __attribute__((noinline)) long double third_x87(void)
{
    volatile long double one = 1.0L, three = 3.0L;
    return one / three;
}

#if defined(__x86_64__)
static unsigned short get_x87(void)
{
    unsigned short w;
    __asm__ volatile("fnstcw %0" : "=m"(w));
    return w;
}

static void set_x87(unsigned short w)
{
    __asm__ volatile("fldcw %0" : : "m"(w));
}

static unsigned get_mxcsr(void)
{
    unsigned w;
    __asm__ volatile("stmxcsr %0" : "=m"(w));
    return w;
}

static void set_mxcsr(unsigned w)
{
    __asm__ volatile("ldmxcsr %0" : : "m"(w));
}
#elif defined(__aarch64__)
static uint64_t get_fpcr(void)
{
    uint64_t w;
    __asm__ volatile("mrs %0, fpcr" : "=r"(w));
    return w;
}

static void set_fpcr(uint64_t w)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(w));
}
#endif

/* One of several ways to give up the thread, after which the goroutine may be on another. */
static gs_chan *meeting[2];

static void *do_nothing(void *arg)
{
    return arg;
}

static void go_elsewhere(int i)
{
    int64_t v = i;
    gs_case c[2];
    switch (i % 6) {
    case 0:
        gs_yield();
        break;
    case 1:
        CHECK_EQ(gs_sleep(20 * US), 0);
        break;
    case 2:
        c[0] = send_case(meeting[0], &v);
        c[1] = recv_case(meeting[0], &v);
        CHECK(gs_select(c, 2, gs_after_us(50)) != -EINVAL);
        break;
    case 3:
        gs_entersyscall();
        if (i % 12 == 3) {
            /* Whatever signal interrupts the sleep, its EINTR is not the library's. */
            int before = get_errno();
            nap(50 * US);
            set_errno(before);
        }
        gs_exitsyscall();
        break;
    case 4:
        (void)gs_blocking(do_nothing, NULL);
        break;
    default:
        (void)gs_chan_send(meeting[1], &v, GS_NOWAIT);
        (void)gs_chan_recv(meeting[1], &v, GS_NOWAIT);
        gs_yield();
    }
}

static void many_of(gs_fn fn)
{
    gs_g *gs[40];
    intptr_t i;
    meeting[0] = chan_of_ints(0);
    meeting[1] = chan_of_ints(3);
    for (i = 0; i < 40; i++)
        gs[i] = go_ref(fn, (void *)i);
    for (i = 0; i < 40; i++)
        join(gs[i]);
    free_chan(meeting[0]);
    free_chan(meeting[1]);
}

/* ---- errno ---- */

static void keep_errno(void *arg)
{
    int me = 1000 + (int)(intptr_t)arg, i;
    set_errno(me);
    for (i = 0; i < 120; i++) {
        go_elsewhere(i);
        CHECK_EQ(get_errno(), me);
    }
}

GO_TEST(errno_belongs_to_the_goroutine)
{
    many_of(keep_errno);
}

static void fail_in_system_call(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 50; i++) {
        set_errno(0);
        gs_entersyscall();
        CHECK_EQ(close(-1), -1);
        if (i % 10 == 0)
            sched_yield();
        gs_exitsyscall();
        CHECK_EQ(get_errno(), EBADF);
        gs_yield();
        CHECK_EQ(get_errno(), EBADF);
    }
}

GO_TEST(errno_of_a_system_call_can_be_read_after_gs_exitsyscall)
{
    many_of(fail_in_system_call);
}

static void *fail_on_system_stack(void *arg)
{
    CHECK_EQ(close(-1), -1);
    return arg;
}

static void fail_in_gs_blocking(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 50; i++) {
        set_errno(0);
        (void)gs_blocking(fail_on_system_stack, NULL);
        CHECK_EQ(get_errno(), EBADF);
    }
}

GO_TEST(errno_of_gs_blocking_is_the_goroutines)
{
    many_of(fail_in_gs_blocking);
}

TEST(the_library_leaves_errno_of_a_plain_thread_alone)
{
    gs_chan *ch = chan_of_ints(0);
    int64_t v;
    set_errno(77);
    CHECK_EQ(gs_chan_recv(ch, &v, gs_after_ms(2)), -ETIMEDOUT);
    CHECK_EQ(get_errno(), 77);
    CHECK_EQ(gs_chan_recv(ch, &v, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_sleep(MS), 0);
    CHECK_EQ(get_errno(), 77);
    free_chan(ch);
}

/* ---- Rounding mode ---- */

static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};

static void keep_rounding(void *arg)
{
    int mode = modes[(intptr_t)arg % 4], i;
    double mine;
    long double mine_x87;
    CHECK_EQ(fesetround(mode), 0);
    mine = third();
    mine_x87 = third_x87();
    for (i = 0; i < 120; i++) {
        go_elsewhere(i);
        CHECK_EQ(fegetround(), mode);
        CHECK(third() == mine);
        CHECK(third_x87() == mine_x87);
    }
}

GO_TEST(rounding_mode_belongs_to_the_goroutine)
{
    CHECK_EQ(fegetround(), FE_TONEAREST);
    many_of(keep_rounding);
    CHECK_EQ(fegetround(), FE_TONEAREST);
}

static int rounding_set;

static void round_up_and_wait(void *arg)
{
    (void)arg;
    CHECK_EQ(fesetround(FE_UPWARD), 0);
    SET(rounding_set, 1);
    WAIT_UNTIL(GET(rounding_set) == 2);
    CHECK_EQ(fegetround(), FE_UPWARD);
}

static void check_nearest(void *arg)
{
    (void)arg;
    CHECK_EQ(fegetround(), FE_TONEAREST);
}

/* A goroutine that starts does not find what another left in the thread's registers. */
GO_TEST(a_new_goroutine_rounds_to_nearest)
{
    gs_g *g = go_ref(round_up_and_wait, NULL);
    int i;
    WAIT_UNTIL(GET(rounding_set) == 1);
    for (i = 0; i < 50; i++)
        join(go_ref(check_nearest, NULL));
    SET(rounding_set, 2);
    join(g);
    for (i = 0; i < 50; i++)
        join(go_ref(check_nearest, NULL));
}

static void begin_clean_and_end_unclean(void *arg)
{
    (void)arg;
    CHECK_EQ(fegetround(), FE_TONEAREST);
    CHECK(get_errno() != 4321);
    CHECK_EQ(fesetround(FE_UPWARD), 0);
    set_errno(4321);
}

/* Many of these goroutines get the stack and the descriptor of a goroutine that has just ended. */
GO_TEST(a_goroutine_begins_with_nothing_of_the_one_before)
{
    int i, k;
    for (i = 0; i < 100; i++) {
        for (k = 0; k < 10; k++)
            go(begin_clean_and_end_unclean, NULL);
        join(go_ref(begin_clean_and_end_unclean, NULL));
    }
    WAIT_UNTIL(gs_num_goroutines() == 1);
}

static void round_up_and_end(void *arg)
{
    (void)arg;
    CHECK_EQ(fesetround(FE_UPWARD), 0);
}

TEST(run_leaves_the_rounding_mode_of_its_caller)
{
    CHECK_EQ(fesetround(FE_DOWNWARD), 0);
    CHECK_EQ(gs_run(round_up_and_end, NULL), 0);
    CHECK_EQ(fegetround(), FE_DOWNWARD);
    CHECK_EQ(fesetround(FE_TONEAREST), 0);
}

static void *check_up(void *arg)
{
    CHECK_EQ(fegetround(), FE_UPWARD);
    return arg;
}

static void round_up_then_block(void *arg)
{
    (void)arg;
    CHECK_EQ(fesetround(FE_UPWARD), 0);
    (void)gs_blocking(check_up, NULL);
    CHECK_EQ(fegetround(), FE_UPWARD);
}

GO_TEST(rounding_mode_holds_inside_gs_blocking)
{
    int i;
    for (i = 0; i < 20; i++)
        join(go_ref(round_up_then_block, NULL));
}

/* ---- Control words ---- */

#if defined(__x86_64__)
static void keep_control_words(void *arg)
{
    static const unsigned short precision[] = {0x000, 0x200, 0x300}; /* 24, 53 and 64 bits */
    unsigned short x87 = (unsigned short)((get_x87() & ~0x300) | precision[(intptr_t)arg % 3]);
    unsigned flush = (unsigned)((intptr_t)arg % 2) * 0x8040; /* flush to zero, denormals are zero */
    int i;
    set_x87(x87);
    set_mxcsr((get_mxcsr() & ~0x8040u) | flush);
    for (i = 0; i < 120; i++) {
        go_elsewhere(i);
        CHECK_EQ(get_x87(), x87);
        CHECK_EQ(get_mxcsr() & 0x8040u, flush);
    }
}

GO_TEST(control_words_belong_to_the_goroutine)
{
    many_of(keep_control_words);
}
#elif defined(__aarch64__)
static void keep_control_words(void *arg)
{
    /* Two bits for the rounding mode; flush to zero; one NaN for all. */
    const uint64_t own = (uint64_t)((intptr_t)arg % 4) << 22 | (uint64_t)((intptr_t)arg % 3 == 0) << 24 |
                         (uint64_t)((intptr_t)arg % 5 == 0) << 25;
    const uint64_t fpcr = (get_fpcr() & ~(UINT64_C(15) << 22)) | own;
    int i;
    set_fpcr(fpcr);
    for (i = 0; i < 120; i++) {
        go_elsewhere(i);
        CHECK_EQ(get_fpcr(), fpcr);
    }
}

GO_TEST(control_words_belong_to_the_goroutine)
{
    many_of(keep_control_words);
}
#endif

/* ---- Registers ---- */

static __attribute__((noinline)) uint64_t mix(uint64_t x)
{
    __asm__ volatile("" : "+r"(x));
    return x * 6364136223846793005u + 1442695040888963407u;
}

/* Many live values across a switch: they sit in the registers that a switch must keep. */
static void keep_registers(void *arg)
{
    uint64_t a = (uint64_t)(intptr_t)arg, b = mix(a), c = mix(b), d = mix(c), e = mix(d), f = mix(e), g = mix(f);
    double x = (double)(intptr_t)arg, y = x + 0.5, z = y * 3.25;
    uint64_t a0 = a, b0 = b, c0 = c, d0 = d, e0 = e, f0 = f, g0 = g;
    double x0 = x, y0 = y, z0 = z;
    int i;
    for (i = 0; i < 120; i++) {
        go_elsewhere(i);
        a = mix(a), b = mix(b), c = mix(c), d = mix(d), e = mix(e), f = mix(f), g = mix(g);
        x += 1.0, y += 2.0, z += 4.0;
    }
    for (i = 0; i < 120; i++) {
        a0 = mix(a0), b0 = mix(b0), c0 = mix(c0), d0 = mix(d0), e0 = mix(e0), f0 = mix(f0), g0 = mix(g0);
        x0 += 1.0, y0 += 2.0, z0 += 4.0;
    }
    CHECK(a == a0 && b == b0 && c == c0 && d == d0 && e == e0 && f == f0 && g == g0);
    CHECK(x == x0 && y == y0 && z == z0);
}

GO_TEST(registers_are_kept_across_switches)
{
    many_of(keep_registers);
}

/* Vectors on the stack need the alignment that the ABI promises. */
static void use_aligned(void *arg)
{
    typedef float vec __attribute__((vector_size(16)));
    volatile vec v = {1, 2, 3, 4};
    int i;
    CHECK_EQ((uintptr_t)&v % 16, 0);
    for (i = 0; i < 20; i++) {
        go_elsewhere(i);
        v += (vec){1, 1, 1, 1};
    }
    CHECK(v[0] == 21 && v[3] == 24);
    (void)arg;
}

GO_TEST(the_stack_is_aligned)
{
    many_of(use_aligned);
}

/* The frame pointer and the unwinder's view: a variable-length array in a frame that switches. */
static void use_alloca(void *arg)
{
    int n = 10 + (int)(intptr_t)arg, i;
    volatile unsigned char text[n];
    for (i = 0; i < n; i++)
        text[i] = (unsigned char)(n + i);
    for (i = 0; i < 60; i++)
        go_elsewhere(i);
    for (i = 0; i < n; i++)
        CHECK_EQ(text[i], (unsigned char)(n + i));
}

GO_TEST(what_is_on_the_stack_stays_there)
{
    many_of(use_alloca);
}
