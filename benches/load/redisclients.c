/*
 * redisclients PORT WAY CLIENTS SECONDS: clients of a redis-server that block in hiredis, one connection each, ask for
 * a key again and again. WAY: threads; or goroutines whose calls are announced (between gs_entersyscall and
 * gs_exitsyscall) or unannounced. Once all are connected it measures for that number of seconds, and prints the calls
 * a second and how long calls take: p50 and p99 in us.
 */
#include <gosched.h>
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* Each power of two of ns has STEPS classes of times. */
enum { STEPS = 16, CLASSES = 64 * STEPS, STACK = 256 << 10 };

static int port, clients, seconds, announced;
static atomic_int connected;
static atomic_bool measuring, over;
static atomic_long times[CLASSES];

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "redisclients: %s: %s\n", what, why);
    exit(1);
}

static int class_of(int64_t ns)
{
    int power = 63 - __builtin_clzll((uint64_t)ns | STEPS);
    return (power - 4) * STEPS + (int)(ns >> (power - 4)) % STEPS;
}

static double us_of(int class)
{
    return (double)(STEPS + class % STEPS) * (double)(INT64_C(1) << (class / STEPS)) / 1e3;
}

static void client(void *arg)
{
    (void)arg;
    if (announced)
        gs_entersyscall();
    redisContext *c = redisConnect("127.0.0.1", port);
    if (announced)
        gs_exitsyscall();
    if (!c || c->err)
        fail("connect", c ? c->errstr : "no memory");
    atomic_fetch_add(&connected, 1);
    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        int64_t began = gs_now();
        if (announced)
            gs_entersyscall();
        redisReply *reply = redisCommand(c, "GET key");
        if (announced)
            gs_exitsyscall();
        if (!reply)
            fail("GET", c->errstr);
        if (reply->type != REDIS_REPLY_STRING)
            fail("GET", "the answer is no string");
        freeReplyObject(reply);
        if (atomic_load_explicit(&measuring, memory_order_relaxed))
            atomic_fetch_add_explicit(&times[class_of(gs_now() - began)], 1, memory_order_relaxed);
    }
    redisFree(c);
}

static void *client_thread(void *arg)
{
    client(arg);
    return NULL;
}

static void pause_for(int64_t ns)
{
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
}

static double percentile(long calls, double part)
{
    long left = (long)((double)calls * part);
    int class = 0;
    while (class < CLASSES - 1 && (left -= times[class]) >= 0)
        class++;
    return us_of(class);
}

/* Measures, and prints the result. */
static void *watch(void *arg)
{
    (void)arg;
    while (atomic_load(&connected) < clients)
        pause_for(1000000);
    int64_t began = gs_now();
    atomic_store(&measuring, true);
    pause_for(seconds * INT64_C(1000000000));
    atomic_store(&measuring, false);
    int64_t took = gs_now() - began;
    atomic_store(&over, true);
    long calls = 0;
    for (int i = 0; i < CLASSES; i++)
        calls += times[i];
    printf("%.0f %.1f %.1f\n", (double)calls / ((double)took / 1e9), percentile(calls, 0.5), percentile(calls, 0.99));
    return NULL;
}

static void all_goroutines(void *arg)
{
    (void)arg;
    for (int i = 0; i < clients; i++)
        if (gs_spawn(client, NULL) != 0)
            fail("gs_spawn", "no goroutine");
}

static void all_threads(void)
{
    pthread_t *threads = calloc((size_t)clients, sizeof *threads);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    for (int i = 0; i < clients; i++)
        if (pthread_create(&threads[i], &attributes, client_thread, NULL) != 0)
            fail("pthread_create", "no thread");
    for (int i = 0; i < clients; i++)
        pthread_join(threads[i], NULL);
    free(threads);
}

int main(int argc, char **argv)
{
    pthread_t watcher;
    struct rlimit files;
    int threads = argc == 5 && strcmp(argv[2], "threads") == 0;
    announced = argc == 5 && strcmp(argv[2], "announced") == 0;
    if (argc != 5 || !(threads || announced || strcmp(argv[2], "unannounced") == 0)) {
        fprintf(stderr, "usage: redisclients PORT threads|announced|unannounced CLIENTS SECONDS\n");
        return 2;
    }
    port = atoi(argv[1]);
    clients = atoi(argv[3]);
    seconds = atoi(argv[4]);
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    pthread_create(&watcher, NULL, watch, NULL);
    if (threads)
        all_threads();
    else {
        int error = gs_run(all_goroutines, NULL);
        if (error)
            fail("gs_run", strerror(-error));
        gs_shutdown(GS_FOREVER);
    }
    pthread_join(watcher, NULL);
    return 0;
}
