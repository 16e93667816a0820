/*
 * workercount: the third program of the post "Go Scheduler", in C.
 *
 * A goroutine can block in many ways, and none of them costs a running P. Here: on a mutex, on a
 * channel, on a timer, in a system call, and in a long blocking C function. The post fetches a
 * web page; here the blocking function reads a file instead.
 *
 *   cc -std=c11 -O2 -Iinclude examples-c/workercount.c -Ltarget/release -lgosched \
 *      -Wl,-rpath,$PWD/target/release -o workercount
 *   ./workercount [FROM [TO]]     copies FROM to TO beside its other work;
 *                                 /proc/self/status to file.txt, if not said otherwise
 *
 * It prints (the mutex is held across the send, so the lines come in order with any number of P's):
 *
 *   Worker 1 is ready
 *   Worker 2 is ready
 *   ...
 *   Worker 100 is ready
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gosched.h"

enum { WORKERS = 100 };

typedef struct line { char text[32]; } line; /* goes through the channel by value */

static gs_waitgroup wg;    /* all goroutines started here */
static gs_mutex mu;        /* guards worker */
static int worker;
static gs_chan *ch, *done; /* of line; of bool */
static const char *from = "/proc/self/status", *to = "file.txt";

static void must(int result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "workercount: %s: %s\n", what, gs_strerror(result));
        exit(1);
    }
}

/* Ordinary C that knows nothing of goroutines and may block for as long as it likes. */
static void *read_all(void *arg)
{
    size_t *len = arg, cap = 0;
    char *body = NULL;
    FILE *f = fopen(from, "r");
    for (*len = 0; f; *len += fread(body + *len, 1, cap - *len, f)) {
        if (feof(f) || ferror(f))
            break;
        if (*len == cap) {
            cap = cap ? 2 * cap : 4096;
            if (!(body = realloc(body, cap)))
                break;
        }
    }
    if (!f || !body || ferror(f)) {
        fprintf(stderr, "workercount: %s: %s\n", from, strerror(errno));
        exit(1);
    }
    fclose(f);
    return body;
}

/* System calls between these two let another thread take the P if they last. After gs_exitsyscall
 * this may be another thread, with an errno of its own: so errno is read before it, in a function
 * that isn't inlined (a compiler may compute errno's address only once in a function). */
__attribute__((noinline)) static int save(const char *body, size_t len)
{
    must(gs_entersyscall(), "entersyscall");
    int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    ssize_t written = 0;
    for (size_t at = 0; fd >= 0 && written >= 0 && at < len; at += (size_t)written)
        written = write(fd, body + at, len - at);
    int err = fd < 0 || written < 0 || close(fd) < 0 ? errno : 0;
    must(gs_exitsyscall(), "exitsyscall");
    return err;
}

static void write_to_file(void *arg)
{
    (void)arg;
    size_t len;
    char *body = gs_blocking(read_all, &len); /* on the thread's own stack, the P released */
    int err = save(body, len);
    if (err) {
        fprintf(stderr, "workercount: %s: %s\n", to, strerror(err));
        exit(1);
    }
    free(body);
    must(gs_waitgroup_done(&wg), "done");
}

static void worker_count(void *arg)
{
    (void)arg;
    line ready;
    must(gs_mutex_lock(&mu, GS_FOREVER), "lock");        /* blocks on the mutex */
    worker = worker + 1;
    snprintf(ready.text, sizeof ready.text, "Worker %d is ready", worker);
    must(gs_chan_send(ch, &ready, GS_FOREVER), "send");  /* blocks on the channel */
    must(gs_mutex_unlock(&mu), "unlock");
    must(gs_waitgroup_done(&wg), "done");
}

static void print_worker(void *arg)
{
    (void)arg;
    for (int i = 0; i < WORKERS; i++) {
        line ready;
        must(gs_chan_recv(ch, &ready, GS_FOREVER), "receive");
        printf("%s\n", ready.text);
    }
    must(gs_waitgroup_done(&wg), "done");
    must(gs_chan_send(done, &(bool){true}, GS_FOREVER), "send");
}

static void go_main(void *arg)
{
    (void)arg;
    ch = gs_chan_make(sizeof(line), 0);
    done = gs_chan_make(sizeof(bool), 0);
    gs_chan *second = gs_after(1000 * 1000 * 1000);      /* the post waits for one second at the end */
    if (!ch || !done || !second) {
        fprintf(stderr, "workercount: out of memory\n");
        exit(1);
    }

    must(gs_waitgroup_add(&wg, WORKERS + 2), "add");
    for (int i = 0; i < WORKERS; i++)
        must(gs_spawn(worker_count, NULL), "spawn");
    must(gs_spawn(write_to_file, NULL), "spawn");
    must(gs_spawn(print_worker, NULL), "spawn");

    must(gs_waitgroup_wait(&wg, GS_FOREVER), "wait");    /* until all have said done */
    must(gs_chan_recv(done, NULL, GS_FOREVER), "receive");
    must(gs_chan_recv(second, NULL, GS_FOREVER), "timer"); /* blocks on the timer */

    must(gs_chan_close(ch), "close");
    must(gs_chan_close(done), "close");
    must(gs_chan_free(ch), "free");
    must(gs_chan_free(done), "free");
    must(gs_chan_free(second), "free");
}

int main(int argc, char **argv)
{
    if (argc > 3 || (argc > 1 && argv[1][0] == '-')) {
        fprintf(stderr, "usage: workercount [FROM [TO]]\n");
        return 2;
    }
    if (argc > 1)
        from = argv[1];
    if (argc > 2)
        to = argv[2];
    must(gs_run(go_main, NULL), "run");
    must(gs_shutdown(GS_FOREVER), "shutdown");
    return 0;
}
