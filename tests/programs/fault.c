/*
 * Every call of the operating system that the library makes fails: the n-th one of its kind, and all of
 * them. A program that uses the whole API gets the documented error or success, loses nothing, hangs
 * nowhere, and when the fault is over each call works.
 *
 * Each fault is tried in a process of its own, CHILD(one_fault). The variable FAULT tells that process which calls
 * fail: "kind:first:last:when", with when "start" (the runtime is not there yet) or "late" (it runs).
 * FAULT_CASES is the number of single faults tried for each kind (default 6).
 */
#include "fault.h"
#include "io.h"
#include <sys/uio.h>

/* Every call must succeed: no fault is active. */
static int strict;
static long errors;

/* Whether a call succeeded. Its error, if there is one, must be the documented one. */
static bool good_at(int line, const char *call, long long r)
{
    if (r >= 0)
        return true;
    if (strict)
        check_eq(__FILE__, line, call, r, 0);
    if (r != -ENOMEM && r != -EAGAIN && r != -fault_kinds[fault.kind].error)
        check_eq(__FILE__, line, call, r, -ENOMEM);
    ADD(errors, 1);
    return false;
}
#define GOOD(call) good_at(__LINE__, #call, call)

static bool made_at(int line, const char *call, const void *p)
{
    if (!p)
        (void)good_at(line, call, -ENOMEM);
    return p != NULL;
}
#define MADE(p) made_at(__LINE__, #p, p)

static gs_waitgroup running;
static long ran;

static void counted(void *fn)
{
    ((void (*)(void))(uintptr_t)fn)();
    ADD(ran, 1);
    CHECK_EQ(gs_waitgroup_done(&running), 0);
}

/* Starts fn as a goroutine that wait_all waits for. */
static bool start_fn(void (*fn)(void))
{
    CHECK_EQ(gs_waitgroup_add(&running, 1), 0);
    if (GOOD(gs_spawn(counted, (void *)(uintptr_t)fn)))
        return true;
    CHECK_EQ(gs_waitgroup_done(&running), 0);
    return false;
}

static void wait_all(void)
{
    CHECK_EQ(gs_waitgroup_wait(&running, GS_FOREVER), 0);
}

static void nothing(void) {}

/* ---- The API, section by section ---- */

static void goroutines(void)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    long want = 0, before = GET(ran);
    int i;
    opts.name = "a goroutine with a name";
    opts.stack_size = 500 << 10;
    for (i = 0; i < 40; i++)
        want += start_fn(nothing);
    for (i = 0; i < 10; i++) {
        gs_g *g = NULL;
        opts.flags = i % 2 ? GS_SPAWN_PINNED : 0;
        opts.priority = i % 3 ? GS_PRIO_NORMAL : GS_PRIO_HIGH;
        CHECK_EQ(gs_waitgroup_add(&running, 1), 0);
        if (GOOD(gs_spawn_with(counted, (void *)(uintptr_t)nothing, &opts, &g))) {
            int e;
            want++;
            while ((e = gs_join(g, gs_after_ms(1))) == -ETIMEDOUT || (e < 0 && !GOOD(e)))
                ;
            gs_release(g);
        } else {
            CHECK(g == NULL);
            CHECK_EQ(gs_waitgroup_done(&running), 0);
        }
    }
    wait_all();
    CHECK_EQ(GET(ran) - before, want);
}

static gs_chan *numbers;

static void sends_numbers(void)
{
    int64_t i;
    for (i = 1; i <= 100; i++)
        while (!GOOD(gs_chan_send(numbers, &i, i % 2 ? GS_FOREVER : gs_after_ms(60000))))
            ;
    CHECK_EQ(gs_chan_close(numbers), 0);
}

static void channels(void)
{
    static const size_t caps[] = {0, 4, 100000};
    size_t c;
    for (c = 0; c < LENGTH(caps); c++) {
        int64_t v, sum = 0;
        int e;
        if (!MADE(numbers = gs_chan_make(sizeof v, caps[c])))
            continue;
        e = gs_chan_recv(numbers, &v, gs_after_us(100));
        CHECK(e == -ETIMEDOUT || !GOOD(e));
        if (start_fn(sends_numbers)) {
            while ((e = gs_chan_recv(numbers, &v, gs_after_ms(60000))) != -EPIPE)
                if (GOOD(e))
                    sum += v;
            CHECK_EQ(sum, 5050);
            wait_all();
        }
        CHECK_EQ(gs_chan_free(numbers), 0);
    }
}

#define CASES 12
static gs_chan *of_select[CASES];

static void sends_to_each(void)
{
    int64_t i;
    for (i = 0; i < CASES; i++)
        CHECK_EQ(gs_chan_send(of_select[i], &i, GS_FOREVER), 0);
}

static void selects(void)
{
    int64_t v;
    gs_case cases[CASES];
    int i, n = 0;
    for (i = 0; i < CASES; i++) {
        of_select[i] = gs_chan_make(sizeof v, 0);
        n += MADE(of_select[i]);
    }
    if (n == CASES && start_fn(sends_to_each)) {
        for (n = 0; n < CASES;) {
            for (i = 0; i < CASES; i++)
                cases[i] = recv_case(of_select[i], &v);
            i = gs_select(cases, CASES, n % 2 ? GS_FOREVER : gs_after_ms(60000));
            if (GOOD(i)) {
                CHECK_EQ(v, i);
                n++;
            }
        }
        wait_all();
    }
    for (i = 0; i < CASES; i++)
        if (of_select[i])
            CHECK_EQ(gs_chan_free(of_select[i]), 0);
}

static gs_mutex mutex;
static gs_rwmutex rwmutex;
static gs_cond cond;
static gs_sem sem;
static long holders;

static void locks(void)
{
    int i;
    for (i = 0; i < 20; i++) {
        int64_t until = i % 2 ? GS_FOREVER : gs_after_ms(60000);
        while (!GOOD(gs_mutex_lock(&mutex, until)))
            ;
        CHECK_EQ(++holders, 1);
        gs_yield();
        holders--;
        CHECK_EQ(gs_mutex_unlock(&mutex), 0);
        if (GOOD(gs_rwmutex_rlock(&rwmutex, until))) {
            gs_yield();
            CHECK_EQ(gs_rwmutex_runlock(&rwmutex), 0);
        }
        if (GOOD(gs_rwmutex_lock(&rwmutex, until))) {
            gs_yield();
            CHECK_EQ(gs_rwmutex_unlock(&rwmutex), 0);
        }
        if (GOOD(gs_sem_acquire(&sem, 2, until))) {
            gs_yield();
            CHECK_EQ(gs_sem_release(&sem, 2), 0);
        }
    }
}

static void sync_objects(void)
{
    int i, e;
    CHECK_EQ(gs_sem_init(&sem, 3), 0);
    for (i = 0; i < 6; i++)
        (void)start_fn(locks);
    wait_all();
    CHECK_EQ(gs_mutex_lock(&mutex, GS_FOREVER), 0);
    e = gs_cond_wait(&cond, &mutex, gs_after_us(100));
    CHECK(e == -ETIMEDOUT || !GOOD(e));
    CHECK_EQ(gs_mutex_unlock(&mutex), 0);
    CHECK_EQ(gs_rwmutex_lock(&rwmutex, GS_FOREVER), 0);
    CHECK_EQ(gs_rwmutex_unlock(&rwmutex), 0);
    CHECK_EQ(gs_sem_acquire(&sem, 3, GS_NOWAIT), 0);
}

static int fired;

static void fires(void *arg)
{
    (void)arg;
    ADD(fired, 1);
}

static void timers(void)
{
    gs_timer *t = gs_timer_start(1 * MS, fires, NULL);
    gs_chan *ch;
    int64_t v;
    int e, i;
    SET(fired, 0);
    if (MADE(t)) {
        CHECK_GE(gs_timer_stop(t), 0);
        (void)GOOD(gs_timer_stop_wait(t, GS_FOREVER));
        SET(fired, 0);
        e = gs_timer_reset(t, 100 * US);
        if (GOOD(e))
            while (!GET(fired))
                gs_yield();
        CHECK_EQ(gs_timer_free(t), 0);
    }
    if (MADE(ch = gs_after(50 * US))) {
        CHECK_EQ(gs_chan_recv(ch, &v, GS_FOREVER), 0);
        CHECK_EQ(gs_chan_free(ch), 0);
    }
    if (MADE(ch = gs_ticker_start(50 * US))) {
        for (i = 0; i < 5; i++)
            CHECK_EQ(gs_chan_recv(ch, &v, GS_FOREVER), 0);
        CHECK_EQ(gs_ticker_stop(ch), 0);
        CHECK_EQ(gs_chan_free(ch), 0);
    }
}

static void sleeps(void)
{
    int i;
    for (i = 0; i < 3; i++)
        (void)GOOD(gs_sleep(100 * US));
    (void)GOOD(gs_sleep_until(gs_after_us(100)));
}

/* More deadlines at a time than fit into what a heap of timers begins with. */
static void many_deadlines(void)
{
    int i;
    for (i = 0; i < 100; i++)
        (void)start_fn(sleeps);
    wait_all();
}

static int destroyed;

static void destroys(void *value)
{
    CHECK(value != NULL);
    ADD(destroyed, 1);
}

static gs_key keys_of_all[40];
static int wanted;

static void uses_keys(void)
{
    int i;
    for (i = 0; i < 40; i++) {
        if (!keys_of_all[i])
            continue;
        if (GOOD(gs_setspecific(keys_of_all[i], &keys_of_all[i]))) {
            CHECK(gs_getspecific(keys_of_all[i]) == &keys_of_all[i]);
            ADD(wanted, 1);
        } else {
            CHECK(gs_getspecific(keys_of_all[i]) == NULL);
        }
    }
}

static void *thread_with_keys(void *arg)
{
    (void)arg;
    uses_keys();
    return NULL;
}

static void keys(void)
{
    pthread_t t;
    int i;
    SET(destroyed, 0);
    SET(wanted, 0);
    for (i = 0; i < 40; i++)
        if (!GOOD(gs_key_create(&keys_of_all[i], destroys)))
            keys_of_all[i] = 0;
    (void)start_fn(uses_keys);
    (void)start_fn(uses_keys);
    wait_all();
    t = start_thread(thread_with_keys, NULL);
    go_join_thread(t);
    /* Those of a goroutine run after its function. */
    WAIT_UNTIL(GET(destroyed) == GET(wanted));
    for (i = 0; i < 40; i++)
        if (keys_of_all[i])
            CHECK_EQ(gs_key_delete(keys_of_all[i]), 0);
}

static void gangs(void)
{
    gs_gang *gang = gs_gang_create();
    int i;
    if (!MADE(gang))
        return;
    for (i = 0; i < 4; i++) {
        CHECK_EQ(gs_waitgroup_add(&running, 1), 0);
        if (!GOOD(gs_gang_spawn(gang, counted, (void *)(uintptr_t)sleeps, NULL, NULL)))
            CHECK_EQ(gs_waitgroup_done(&running), 0);
    }
    gs_gang_free(gang);
    wait_all();
}

/* The end of a pair that a goroutine echoes on. */
static int echo_fd;

static void echoes(void)
{
    int fd = echo_fd;
    char c;
    ssize_t n;
    for (;;) {
        while (!GOOD(n = gs_read(fd, &c, 1, GS_FOREVER)))
            gs_yield();
        if (n == 0)
            break;
        while (!GOOD(gs_write(fd, &c, 1, GS_FOREVER)))
            gs_yield();
    }
    CHECK_EQ(gs_close(fd), 0);
}

static void talk(int fd)
{
    int64_t deadline = gs_after_ms(60000);
    char c, i;
    for (i = 0; i < 5; i++) {
        while (!GOOD(gs_write(fd, &i, 1, deadline)))
            gs_yield();
        while (!GOOD(gs_read(fd, &c, 1, deadline)))
            gs_yield();
        CHECK_EQ(c, i);
    }
}

static void *thread_that_talks(void *fd)
{
    talk(*(int *)fd);
    return NULL;
}

static void sockets(void)
{
    int fds[2], e, listener, client;
    pthread_t t;
    make_pair(fds);
    e = gs_poll_fd(fds[0], POLLIN, gs_after_us(100));
    CHECK(e == -ETIMEDOUT || !GOOD(e));
    echo_fd = fds[1];
    if (start_fn(echoes)) {
        talk(fds[0]);
        t = start_thread(thread_that_talks, &fds[0]);
        go_join_thread(t);
        CHECK_EQ(gs_close(fds[0]), 0);
        wait_all();
    } else {
        close_both(fds);
    }
    listener = gs_tcp_listen("127.0.0.1", 0, 0);
    if (!GOOD(listener))
        return;
    client = gs_tcp_connect("127.0.0.1", port_of(listener), gs_after_ms(60000));
    if (GOOD(client)) {
        while (!GOOD(echo_fd = gs_accept(listener, NULL, NULL, gs_after_ms(60000))))
            gs_yield();
        if (start_fn(echoes))
            talk(client);
        else
            CHECK_EQ(gs_close(echo_fd), 0);
        CHECK_EQ(gs_close(client), 0);
        wait_all();
    }
    CHECK_EQ(gs_close(listener), 0);
}

/* What makes files of its own, or takes numbers. */
static void kernel_copies(void)
{
    char path[64], name[64];
    int fd, pair[2], s, c;
    off_t at = 0;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 9);
    snprintf(path, sizeof path, "/tmp/gosched-fault-%d-open", (int)getpid());
    snprintf(name, sizeof name, "@gosched-fault-%d", (int)getpid());
    while (!GOOD(fd = gs_open(path, O_RDWR | O_CREAT, 0600, GS_FOREVER)))
        gs_yield();
    CHECK_EQ(unlink(path), 0);
    while (!GOOD(gs_pwrite(fd, "0123456789", 10, 0, GS_FOREVER)))
        gs_yield();
    (void)GOOD(gs_fsync(fd, GS_FOREVER));
    (void)GOOD(gs_fdatasync(fd, GS_FOREVER));
    if (GOOD(gs_unix_pair(pair))) {
        int fds[2];
        CHECK_EQ(pipe(fds), 0);
        if (GOOD(gs_sendfile(pair[0], fd, &at, 10, GS_FOREVER)))
            (void)GOOD(gs_splice(pair[1], NULL, fds[1], NULL, 10, 0, GS_FOREVER));
        close(fds[0]);
        close(fds[1]);
        CHECK_EQ(gs_close(pair[0]), 0);
        CHECK_EQ(gs_close(pair[1]), 0);
    }
    CHECK_EQ(gs_close(fd), 0);
    if (GOOD(s = gs_udp_bind("127.0.0.1", 0))) {
        if (GOOD(c = gs_udp_connect("127.0.0.1", 1, gs_after_ms(60000))))
            CHECK_EQ(gs_close(c), 0);
        CHECK_EQ(gs_close(s), 0);
    }
    if (GOOD(s = gs_unix_listen(name, 1))) {
        if (GOOD(c = gs_unix_connect(name, gs_after_ms(60000))))
            CHECK_EQ(gs_close(c), 0);
        CHECK_EQ(gs_close(s), 0);
    }
    CHECK_EQ(gs_syscall(SYS_getpid), getpid());
    CHECK_EQ(gs_waitpid(getpid(), NULL, 0, GS_FOREVER), -ECHILD);
    c = gs_signal_wait(&set, NULL, gs_after_us(50));
    CHECK(c == -ETIMEDOUT || !GOOD(c));
}

static void files(void)
{
    char text[32] = "";
    struct iovec v[3] = {{text, 2}, {text + 2, 2}, {text + 4, 20}};
    char path[] = "/tmp/gosched-fault-XXXXXX";
    struct addrinfo *res = NULL;
    int fd = mkstemp(path), e;
    CHECK_GE(fd, 0);
    CHECK_EQ(unlink(path), 0);
    while (!GOOD(gs_pwrite(fd, "0123456789", 10, 0, GS_FOREVER)))
        ;
    while (!GOOD(gs_pread(fd, text, 10, 0, GS_FOREVER)))
        ;
    CHECK_EQ(memcmp(text, "0123456789", 10), 0);
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    while (!GOOD(gs_readv(fd, v, 3, GS_FOREVER)))
        ;
    CHECK_EQ(memcmp(text, "0123", 4), 0);
    CHECK_EQ(gs_close(fd), 0);
    kernel_copies();
    e = gs_getaddrinfo("127.0.0.1", "80", NULL, &res, gs_after_ms(60000));
    CHECK(GOOD(e) || gs_eai(e) == 0);
    CHECK_EQ(gs_last_error(), e);
    if (res)
        freeaddrinfo(res);
}

/* The end of a pair that a goroutine drains, some bytes at a time. */
static int drained_fd;
static long drained;

static void drains(void)
{
    char text[8];
    ssize_t n;
    struct iovec v[2] = {{text, 3}, {text + 3, 5}};
    struct msghdr m;
    int turn = 0;
    memset(&m, 0, sizeof m);
    m.msg_iov = v;
    m.msg_iovlen = 2;
    do {
        switch (turn++ % 4) {
        case 0:
            n = gs_recv(drained_fd, text, 8, 0, GS_FOREVER);
            break;
        case 1:
            n = gs_recvfrom(drained_fd, text, 8, 0, NULL, NULL, GS_FOREVER);
            break;
        case 2:
            n = gs_readv(drained_fd, v, 2, GS_FOREVER);
            break;
        default:
            n = gs_recvmsg(drained_fd, &m, 0, GS_FOREVER);
        }
        if (GOOD(n))
            drained += n;
        else
            gs_yield();
    } while (n != 0);
    CHECK_EQ(gs_close(drained_fd), 0);
}

static void messages(void)
{
    int64_t until = gs_after_ns(60 * SEC);
    char text[8] = "12345";
    struct iovec v[2] = {{text, 2}, {text + 2, 3}};
    struct msghdr m;
    long sent = 0;
    int fds[2], i;
    memset(&m, 0, sizeof m);
    m.msg_iov = v;
    m.msg_iovlen = 2;
    make_pair(fds);
    drained_fd = fds[0];
    drained = 0;
    if (!start_fn(drains)) {
        close_both(fds);
        return;
    }
    for (i = 0; i < 40; i++) {
        ssize_t n = i % 4 == 0   ? gs_send(fds[1], text, 5, 0, until)
                    : i % 4 == 1 ? gs_sendto(fds[1], text, 5, 0, NULL, 0, until)
                    : i % 4 == 2 ? gs_writev(fds[1], v, 2, until)
                                 : gs_sendmsg(fds[1], &m, 0, until);
        if (GOOD(n))
            sent += n;
        if (i % 8 == 0)
            gs_yield();
    }
    CHECK_EQ(gs_close(fds[1]), 0);
    wait_all();
    CHECK_EQ(drained, sent);
}

static void connections(void)
{
    struct sockaddr_in a = loopback(0), from;
    socklen_t len = sizeof from;
    int listener, fd, accepted, e, on = 1;
    while (!GOOD(listener = gs_socket(AF_INET, SOCK_STREAM, 0)))
        gs_yield();
    (void)GOOD(gs_setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    while (!GOOD(gs_bind(listener, (struct sockaddr *)&a, sizeof a)))
        gs_yield();
    while (!GOOD(gs_listen(listener, 1)))
        gs_yield();
    a = loopback(port_of(listener));
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_GE(fd, 0);
    while ((e = gs_connect(fd, (struct sockaddr *)&a, sizeof a, gs_after_ms(60000))) != 0 && e != -EISCONN)
        (void)GOOD(e);
    while (!GOOD(accepted = gs_accept(listener, (struct sockaddr *)&from, &len, gs_after_ms(60000))))
        gs_yield();
    CHECK_EQ(ntohs(from.sin_port), port_of(fd));
    (void)GOOD(gs_adopt(accepted));
    len = sizeof from;
    (void)GOOD(gs_getsockname(fd, (struct sockaddr *)&from, &len));
    len = sizeof from;
    (void)GOOD(gs_getpeername(fd, (struct sockaddr *)&from, &len));
    len = sizeof on;
    (void)GOOD(gs_getsockopt(fd, SOL_SOCKET, SO_ERROR, &on, &len));
    (void)GOOD(gs_shutdown_fd(fd, SHUT_WR));
    CHECK_EQ(gs_close(accepted), 0);
    CHECK_EQ(gs_close(fd), 0);
    CHECK_EQ(gs_close(listener), 0);
}

static void *short_nap(void *arg)
{
    nap(100 * US);
    return arg;
}

static void blocks(void)
{
    int i;
    for (i = 0; i < 3; i++) {
        CHECK(gs_blocking(short_nap, &i) == &i);
        CHECK_EQ(gs_entersyscall(), 0);
        nap(100 * US);
        CHECK_EQ(gs_exitsyscall(), 0);
        CHECK_EQ(gs_entersyscallblock(), 0);
        nap(100 * US);
        CHECK_EQ(gs_exitsyscall(), 0);
        CHECK_EQ(gs_lock_os_thread(), 0);
        gs_yield();
        CHECK_EQ(gs_unlock_os_thread(), 0);
    }
}

/* Longer than a slice without a call. */
static void computes(void)
{
    int64_t until = clock_now() + 25 * MS;
    while (clock_now() < until)
        ;
}

static void threads(void)
{
    int i;
    for (i = 0; i < 6; i++)
        (void)start_fn(i % 3 ? blocks : computes);
    wait_all();
}

static void visit(const gs_g_info *info, void *count)
{
    (void)info;
    ++*(int *)count;
}

static void world(void)
{
    int seen = 0, procs = gs_gomaxprocs(0), e;
    e = gs_gomaxprocs(procs + 3);
    if (GOOD(e)) {
        CHECK_EQ(e, procs);
        (void)start_fn(sleeps);
        while (!GOOD(e = gs_gomaxprocs(procs)))
            ;
        CHECK_EQ(e, procs + 3);
        wait_all();
    }
    CHECK_EQ(gs_gomaxprocs(0), procs);
    (void)GOOD(gs_set_default_gomaxprocs());
    while (!GOOD(e = gs_gomaxprocs(procs)))
        ;
    if (GOOD(gs_stop_the_world())) {
        CHECK_EQ(gs_foreach_g(visit, &seen), 0);
        CHECK_GE(seen, 1);
        CHECK_EQ(gs_start_the_world(), 0);
    }
}

static gs_g *parked;

static bool publish(gs_g *g, void *arg)
{
    (void)arg;
    SET(parked, g);
    return true;
}

static void parks(void)
{
    int e;
    (void)GOOD(gs_park(publish, NULL, GS_FOREVER));
    e = gs_park(NULL, NULL, gs_after_us(100));
    CHECK(e == -ETIMEDOUT || !GOOD(e));
}

static void embedding(void)
{
    void *memory;
    SET(parked, NULL);
    if (start_fn(parks)) {
        WAIT_UNTIL(GET(parked) != NULL);
        CHECK_EQ(gs_ready(parked), 0);
        wait_all();
    }
    CHECK_GE(gs_numa_nodes(), 1);
    if (MADE(memory = gs_numa_alloc(100000, GS_NUMA_STRIPE)))
        gs_numa_free(memory, 100000);
}

static gs_once once;
static int times, tellers, ended_early;

static void add_one(void *n)
{
    ADD(*(int *)n, 1);
}

static void waits_to_be_told(void)
{
    CHECK_EQ(gs_mutex_lock(&mutex, GS_FOREVER), 0);
    while (!tellers)
        (void)GOOD(gs_cond_wait(&cond, &mutex, GS_FOREVER));
    CHECK_EQ(gs_mutex_unlock(&mutex), 0);
}

static void tell(bool all)
{
    int i;
    tellers = 0;
    for (i = 0; i < 2; i++)
        (void)start_fn(waits_to_be_told);
    gs_yield();
    CHECK_EQ(gs_mutex_lock(&mutex, GS_FOREVER), 0);
    tellers = 1;
    CHECK_EQ(gs_mutex_unlock(&mutex), 0);
    if (all) {
        CHECK_EQ(gs_cond_broadcast(&cond), 0);
    } else {
        CHECK_EQ(gs_cond_signal(&cond), 0);
        CHECK_EQ(gs_cond_signal(&cond), 0);
    }
    wait_all();
}

static void ends_early(void *arg)
{
    (void)arg;
    CHECK(gs_self() != NULL);
    CHECK_GE(gs_id(gs_self()), 1);
    ADD(ended_early, 1);
    gs_exit();
    CHECK(0);
}

static void waits_for_cancel(void *arg)
{
    int e;
    (void)arg;
    e = gs_park(NULL, NULL, GS_FOREVER);
    CHECK_EQ(e, -ECANCELED);
}

static void thread_changes(void *ctx)
{
    ADD(*(int *)ctx, 1);
}

static int hooked;

static void drops_line(void *ctx, const char *line)
{
    (void)ctx;
    (void)line;
}

static void uses_data_and_cancel(void *arg)
{
    CHECK(gs_data(gs_self()) == arg);
    CHECK_EQ(gs_set_data(gs_self(), &hooked), 0);
    CHECK(gs_data(gs_self()) == &hooked);
    {
        gs_g_info info;
        char name[8];
        CHECK_EQ(gs_g_info_read(gs_self(), &info, sizeof info), 0);
        CHECK_EQ(gs_name(gs_self(), name, sizeof name), 0);
    }
    CHECK_EQ(gs_cancel_disable(), 0);
    CHECK_EQ(gs_cancelled(), 0);
    CHECK_EQ(gs_uncancel(), 0);
    CHECK_EQ(gs_cancel_enable(), 0);
    CHECK_EQ(gs_waitgroup_done(&running), 0);
}

/* Worker groups, hooks and data. */
static void embedders(void)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    gs_hooks hooks;
    gs_workers *workers = gs_workers_create(2, 0);
    int i, null;
    memset(&hooks, 0, sizeof hooks);
    hooks.size = sizeof hooks;
    hooks.ctx = &hooked;
    hooks.thread_start = thread_changes;
    hooks.thread_stop = thread_changes;
    CHECK_EQ(gs_set_log(drops_line, NULL), 0);
    (void)GOOD(gs_set_hooks(&hooks));
    CHECK_EQ(gs_hold(), 0);
    if (MADE(workers)) {
        opts.flags = GS_SPAWN_PINNED;
        opts.workers = workers;
        opts.data = &opts;
        for (i = 0; i < 4; i++) {
            CHECK_EQ(gs_waitgroup_add(&running, 1), 0);
            if (!GOOD(gs_spawn_with(uses_data_and_cancel, &opts, &opts, NULL)))
                CHECK_EQ(gs_waitgroup_done(&running), 0);
        }
        wait_all();
        while ((i = gs_workers_free(workers)) == -EBUSY)
            gs_yield();
        CHECK_EQ(i, 0);
    }
    null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null >= 0) {
        (void)GOOD(gs_dump(null));
        (void)GOOD(gs_stats_write(null));
        i = gs_leaks(null);
        if (i != -EBUSY)
            (void)GOOD(i);
        (void)GOOD(gs_dump_json(null));
        (void)GOOD(gs_dump_pprof(null));
        CHECK_EQ(close(null), 0);
    }
    CHECK_EQ(gs_unhold(), 0);
    CHECK_EQ(gs_set_log(NULL, NULL), 0);
    while (!GOOD(gs_set_hooks(NULL)))
        ;
}

static size_t no_frames(void *ctx, gs_g *g, gs_frame *frames, size_t room)
{
    (void)ctx;
    (void)g;
    (void)frames;
    (void)room;
    return 0;
}

/* What asks for nothing of the system works as always. */
static void what_never_fails(void)
{
    gs_stats stats = {.size = sizeof stats};
    unsigned char cpus[128];
    int64_t v = 1, before = gs_now();
    gs_chan *ch;
    gs_g *g = NULL;
    int e;
    CHECK_EQ(gs_add_frames(add_one, no_frames, NULL), 0);
    for (e = 0; e < 3; e++)
        CHECK_EQ(gs_once_do(&once, add_one, &times), 0);
    CHECK_EQ(times, 1);
    tell(true);
    tell(false);
    SET(ended_early, 0);
    if (GOOD(gs_spawn_with(ends_early, NULL, NULL, &g))) {
        CHECK(gs_retain(g) == g);
        gs_release(g);
        while ((e = gs_join(g, GS_FOREVER)) != 0)
            (void)GOOD(e);
        gs_release(g);
        CHECK_EQ(ended_early, 1);
    }
    if (GOOD(gs_spawn_with(waits_for_cancel, NULL, NULL, &g))) {
        CHECK_EQ(gs_cancel(g), 0);
        while ((e = gs_join(g, GS_FOREVER)) != 0)
            (void)GOOD(e);
        gs_release(g);
    }
    if (MADE(ch = gs_chan_make(sizeof v, 2))) {
        CHECK_EQ(gs_chan_send(ch, &v, GS_NOWAIT), 0);
        CHECK_EQ(gs_chan_len(ch), 1);
        CHECK_EQ(gs_chan_put(ch, &v), 0);
        CHECK_EQ(gs_chan_take(ch, &v), 0);
        CHECK_EQ(gs_chan_cap(ch), 2);
        CHECK_EQ(gs_chan_free(ch), 0);
    }
    gs_preempt_disable();
    gs_preempt_check();
    gs_preempt_enable();
    gs_preempt_now();
    CHECK_GE(gs_num_goroutines(), 1);
    CHECK_GE(gs_stats_read(&stats), 0);
    CHECK_GE(gs_stats_node(0, &stats), 0);
    CHECK_GE(gs_stats_steals(0, 0), 0);
    CHECK_GE(gs_numa_node(), 0);
    CHECK_GE(gs_numa_distance(0, 0), 1);
    CHECK_GE(gs_numa_cpus(0, sizeof cpus, cpus), 0);
    CHECK_GE(gs_numa_unbound_cpus(sizeof cpus, cpus), 0);
    CHECK_GE(gs_set_max_threads(10000), 1);
    CHECK_GE(gs_own_threads(NULL, 0), 0);
    CHECK_EQ(gs_set_deadlock_handler(NULL, NULL), 0);
    CHECK_GE(gs_now(), before);
    CHECK(gs_strerror(-EINVAL) && gs_version());
    CHECK_GE(gs_abi_version(), 0);
}

static void use_everything(void)
{
    goroutines();
    channels();
    selects();
    sync_objects();
    timers();
    many_deadlines();
    keys();
    gangs();
    sockets();
    messages();
    connections();
    files();
    threads();
    world();
    embedding();
    embedders();
    what_never_fails();
}

/* A plain thread may have to start the runtime. */
static void use_from_outside(void)
{
    gs_timer *t;
    gs_g *g = NULL;
    if (MADE(t = gs_timer_start(3600 * SEC, fires, NULL)))
        CHECK_EQ(gs_timer_free(t), 0);
    (void)GOOD(gs_spawn(fires, NULL));
    if (GOOD(gs_spawn_with(fires, NULL, NULL, &g)))
        join(g);
    (void)GOOD(gs_gomaxprocs(0));
    (void)GOOD(gs_numa_nodes());
    if (GOOD(gs_stop_the_world()))
        CHECK_EQ(gs_start_the_world(), 0);
}

/* ---- One fault ---- */

static enum fault_kind kind;
static long first, last;
static bool late;
static long counts[KINDS];

static int is_late;

/* While all calls fail goroutines may wait for a stack or a thread: until then. */
static void *end_it(void *arg)
{
    (void)arg;
    NAP_UNTIL(!late || GET(is_late));
    nap(150 * MS);
    fault_end();
    return NULL;
}

static void main_goroutine(void *arg)
{
    (void)arg;
    if (late && !strict) {
        fault_arm(kind, first, last);
        SET(is_late, 1);
    }
    use_everything();
    ADD(ran, 1);
}

/* Prints how many calls of each kind there were. */
CHILD(one_fault)
{
    char name[32] = "alloc", when[8] = "start";
    const char *what = getenv("FAULT");
    long files_open = 0;
    pthread_t ender = 0;
    int i, round;
    CHECK(what && sscanf(what, "%31[a-z_]:%ld:%ld:%7s", name, &first, &last, when) == 4);
    snprintf(check_note, sizeof check_note, "FAULT=%s", what);
    while (kind < KINDS && strcmp(fault_kinds[kind].name, name) != 0)
        kind++;
    CHECK(kind < KINDS);
    late = strcmp(when, "late") == 0;
    if (!late)
        fault_arm(kind, first, last);
    if (last == LONG_MAX)
        ender = start_thread(end_it, NULL);
    use_from_outside();
    (void)GOOD(gs_run(main_goroutine, NULL));
    SET(is_late, 1);
    if (last == LONG_MAX)
        join_thread(ender);
    fault_end();
    for (i = 0; i < KINDS; i++)
        counts[i] = fault.seen[i];
    SET(strict, 1);
    for (round = 0; round < 2; round++) {
        use_from_outside();
        CHECK_EQ(gs_run(main_goroutine, NULL), 0);
        CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
        /* What the process keeps, whatever happens to runtimes, it has by the first round. */
        if (round > 0)
            CHECK_EQ(count_fds(), files_open);
        files_open = count_fds();
    }
    printf("calls:\n");
    for (i = 0; i < KINDS; i++)
        printf("%s %ld\n", fault_kinds[i].name, counts[i]);
    printf("failed %ld errors %ld\n", GET(fault.failed), GET(errors));
}

/* What the child printed after this word. */
static long printed(const struct outcome *out, const char *word)
{
    char line[40];
    const char *at;
    snprintf(line, sizeof line, "\n%s ", word);
    at = strstr(out->text, line);
    CHECK(at != NULL);
    return atol(at + strlen(line));
}

static void run_fault(enum fault_kind k, long from, long to, const char *when, struct outcome *out)
{
    char what[64];
    snprintf(what, sizeof what, "%s:%ld:%ld:%s", fault_kinds[k].name, from, to, when);
    CHECK_EQ(setenv("FAULT", what, 1), 0);
    CHECK_EQ(setenv("CHECK_SECONDS", "20", 1), 0);
    CHECK_EQ(k == ALLOC ? setenv("GOSCHED_DEBUG", "systemheap=1", 1) : unsetenv("GOSCHED_DEBUG"), 0);
    run_child("one_fault", out);
    if (!WIFEXITED(out->status) || WEXITSTATUS(out->status) != 0) {
        snprintf(check_note, sizeof check_note, "FAULT=%s, wait status 0x%x", what, out->status);
        failed(__FILE__, __LINE__, "one_fault", out->text);
    }
}

/* All calls fail, and single ones, spread over those that the program makes. */
static void try_kind(enum fault_kind k)
{
    const char *cases = getenv("FAULT_CASES");
    long most = cases ? atol(cases) : 6, n, i;
    uint64_t seed = random_seed();
    struct outcome out;
    run_fault(k, LONG_MAX, LONG_MAX, "start", &out);
    n = printed(&out, fault_kinds[k].name);
    run_fault(k, 1, LONG_MAX, "start", &out);
    run_fault(k, 1, LONG_MAX, "late", &out);
    for (i = 0; i < most && i < n; i++) {
        long step = n > most ? n / most : 1;
        long at = 1 + i * step + (long)(random_next(&seed) % (uint64_t)step);
        run_fault(k, at, at, "start", &out);
    }
}

CHILD(without_threads)
{
    fault_arm(THREAD, 1, LONG_MAX);
    CHECK_EQ(gs_run(fires, NULL), -EAGAIN);
    CHECK_EQ(gs_spawn(fires, NULL), -EAGAIN);
    CHECK_EQ(gs_init(NULL), -EAGAIN);
    CHECK(gs_timer_start(0, fires, NULL) == NULL);
    CHECK(gs_ticker_start(MS) == NULL);
    CHECK_EQ(GET(fired), 0);
    fault_end();
    CHECK_EQ(gs_run(fires, NULL), 0);
    CHECK_EQ(GET(fired), 1);
    CHECK_EQ(gs_attach(0), 0);
    gs_yield();
    CHECK_EQ(gs_detach(), 0);
}

TEST(a_runtime_that_gets_no_thread_is_an_error_of_the_call)
{
    struct outcome out;
    run_child("without_threads", &out);
    if (!WIFEXITED(out.status) || WEXITSTATUS(out.status) != 0 || strstr(out.text, "TOPOLOGY"))
        failed(__FILE__, __LINE__, "without_threads", out.text);
}

CHILD(without_memory)
{
    gs_chan *ch;
    gs_key key;
    CHECK_EQ(gs_key_create(&key, NULL), 0);
    CHECK_EQ(gs_init(NULL), 0);
    fault_arm(ALLOC, 1, LONG_MAX);
    CHECK(gs_chan_make(8, 1) == NULL);
    CHECK(gs_chan_make(0, 0) == NULL);
    CHECK(gs_timer_start(0, fires, NULL) == NULL);
    CHECK(gs_after(0) == NULL);
    CHECK(gs_ticker_start(MS) == NULL);
    CHECK(gs_gang_create() == NULL);
    CHECK_EQ(gs_run(fires, NULL), -ENOMEM);
    CHECK_EQ(gs_attach(0), -ENOMEM);
    CHECK_EQ(GET(fired), 0);
    CHECK_EQ(gs_setspecific(key, &key), -ENOMEM);
    CHECK(gs_getspecific(key) == NULL);
    fault_end();
    CHECK_EQ(gs_setspecific(key, &key), 0);
    CHECK((ch = gs_chan_make(8, 1)) != NULL);
    CHECK_EQ(gs_chan_free(ch), 0);
    CHECK_EQ(gs_run(fires, NULL), 0);
    CHECK_EQ(GET(fired), 1);
}

TEST(what_is_made_without_memory_is_the_documented_error)
{
    struct outcome out;
    CHECK_EQ(setenv("GOSCHED_DEBUG", "systemheap=1", 1), 0);
    run_child("without_memory", &out);
    if (!WIFEXITED(out.status) || WEXITSTATUS(out.status) != 0)
        failed(__FILE__, __LINE__, "without_memory", out.text);
}

static void waits_with_deadlines(void *arg)
{
    gs_chan *ch = chan_of_ints(0);
    gs_mutex m = {0};
    gs_cond c = {0};
    int64_t v;
    int fds[2];
    char byte;
    (void)arg;
    CHECK_EQ(pipe(fds), 0);
    CHECK_EQ(gs_mutex_lock(&m, GS_FOREVER), 0);
    fault_arm(ALLOC, 1, LONG_MAX);
    /* None of these deadlines passes before the goroutine waits. */
    CHECK_EQ(gs_sleep(3600 * SEC), -ENOMEM);
    CHECK_EQ(gs_read(fds[0], &byte, 1, gs_after_ms(3600000)), -ENOMEM);
    CHECK_EQ(gs_chan_recv(ch, &v, gs_after_ms(3600000)), -ENOMEM);
    CHECK_EQ(gs_park(NULL, NULL, gs_after_ms(3600000)), -ENOMEM);
    CHECK_EQ(gs_cond_wait(&c, &m, gs_after_ms(3600000)), -ENOMEM);
    CHECK_EQ(gs_mutex_trylock(&m), -EBUSY);
    CHECK_EQ(gs_chan_recv(ch, &v, GS_NOWAIT), -EAGAIN);
    gs_yield();
    fault_end();
    CHECK_EQ(gs_sleep(MS), 0);
    CHECK_EQ(gs_chan_recv(ch, &v, gs_after_ms(1)), -ETIMEDOUT);
    CHECK_EQ(gs_cond_wait(&c, &m, gs_after_ms(1)), -ETIMEDOUT);
    CHECK_EQ(gs_read(fds[0], &byte, 1, gs_after_ms(1)), -ETIMEDOUT);
    CHECK_EQ(gs_mutex_unlock(&m), 0);
    CHECK_EQ(gs_close(fds[0]), 0);
    CHECK_EQ(gs_close(fds[1]), 0);
    free_chan(ch);
}

CHILD(without_memory_for_deadlines)
{
    CHECK_EQ(setenv("GOSCHED_PROCS", "1", 1), 0);
    CHECK_EQ(gs_run(waits_with_deadlines, NULL), 0);
}

TEST(a_deadline_without_memory_is_an_error_and_not_a_wait)
{
    CHECK_EQ(setenv("GOSCHED_DEBUG", "systemheap=1", 1), 0);
    check_child_succeeds("without_memory_for_deadlines");
}

static void spawns_until_it_fails(void *arg)
{
    gs_timer *t = gs_timer_start(3600 * SEC, fires, NULL);
    long spawned = 0;
    (void)arg;
    CHECK(t != NULL);
    fault_arm(MMAP, 1, LONG_MAX);
    while (gs_spawn(fires, NULL) == 0)
        spawned++;
    CHECK_EQ(gs_timer_reset(t, 0), 1);
    /* With one P the timer is looked at first, and there is no record left for its goroutine. */
    (void)GOOD(gs_sleep(2 * MS));
    fault_end();
    WAIT_UNTIL(GET(fired) == spawned + 1);
    CHECK_EQ(gs_timer_free(t), 0);
}

CHILD(without_memory_for_a_timers_goroutine)
{
    CHECK_EQ(setenv("GOSCHED_PROCS", "1", 1), 0);
    CHECK_EQ(gs_run(spawns_until_it_fails, NULL), 0);
}

TEST(a_timer_that_finds_no_memory_for_its_goroutine_fires_later)
{
    check_child_succeeds("without_memory_for_a_timers_goroutine");
}

static void *wait_for_another_thread(void *arg)
{
    NAP_UNTIL(GET(fault.failed) >= 50);
    fault_end();
    NAP_UNTIL(GET(fired));
    return arg;
}

/* Only a further thread can run the other goroutine. */
static void needs_another_thread(void *arg)
{
    CHECK_GE(gs_set_max_threads(4), 1);
    go(fires, arg);
    fault_arm(ALLOC, 1, LONG_MAX);
    (void)gs_blocking(wait_for_another_thread, NULL);
}

CHILD(without_memory_for_threads)
{
    CHECK_EQ(setenv("GOSCHED_PROCS", "1", 1), 0);
    CHECK_EQ(gs_run(needs_another_thread, NULL), 0);
}

TEST(threads_that_found_no_memory_do_not_count)
{
    CHECK_EQ(setenv("GOSCHED_DEBUG", "systemheap=1", 1), 0);
    check_child_succeeds("without_memory_for_threads");
}

#define KIND(name, kind)  \
    TEST(name)            \
    {                     \
        try_kind(kind);   \
    }
KIND(no_memory_from_the_heap, ALLOC)
KIND(no_address_space, MMAP)
KIND(no_advice, MADVISE)
KIND(no_guards_by_mappings, MPROTECT)
KIND(no_threads, THREAD)
KIND(no_epoll, EPOLL)
KIND(no_room_in_epoll, EPOLL_ADD)
KIND(no_eventfd, EVENTFD)
KIND(no_files, OPEN)
KIND(no_membarrier, MEMBARRIER)
KIND(no_signals, SIGQUEUE)
KIND(no_timer_slack, SLACK)
KIND(no_alternate_stack, ALTSTACK)
KIND(no_names, RESOLVE)
KIND(no_binding, AFFINITY)
