/* Step 5 of docs/tutorial.md: a signal ends the server in order. */
#define _POSIX_C_SOURCE 200809L
#include "chat.h"
#include <signal.h>

/* In ms: see step 3. */
static int64_t idle = 600 * 1000, slow = 10 * 1000, quiet = 60 * 1000;

struct client {
    struct client *next;
    int fd;
    gs_chan *outbox;
    char name[32];
};

struct message {
    struct client *from;
    struct line line;
};

static gs_chan *entering, *leaving; /* of struct client * */
static gs_chan *messages;           /* of struct message */
static gs_chan *stopping;           /* of nothing: closed when the server stops */
static gs_waitgroup connections;

/* Gives a client a line. A client whose outbox stays full is cut off: its reader then sees the end. */
static void tell(struct client *client, const struct line *line)
{
    if (gs_chan_send(client->outbox, line, gs_after_ms(100)) == -ETIMEDOUT)
        shutdown(client->fd, SHUT_RDWR);
}

static void tell_all(struct client *all, const struct client *but, const struct line *line)
{
    for (struct client *client = all; client; client = client->next)
        if (client != but)
            tell(client, line);
}

/* Changes a client's name until no other has it. */
static void make_unique(struct client *all, struct client *it)
{
    for (struct client *client = all; client;) {
        size_t length = strlen(it->name);
        bool is_taken = strcmp(client->name, it->name) == 0;
        if (is_taken && length + 1 < sizeof it->name)
            memcpy(it->name + length, "_", 2);
        else if (is_taken)
            it->name[length - 1]++;
        client = is_taken ? all : client->next;
    }
}

/* One line with the names of all clients, as far as they fit. */
static struct line names_of(struct client *all)
{
    struct line line = {"* here are"};
    for (struct client *client = all; client; client = client->next)
        if (strlen(line.text) + strlen(client->name) < LINE - 4)
            strcat(strcat(line.text, " "), client->name);
    strcat(line.text, "\n");
    return line;
}

/* Three texts as a line, cut to its length. */
static struct line joined(const char *before, const char *name, const char *text)
{
    struct line line;
    if (snprintf(line.text, LINE, "%s%s%s", before, name, text) >= LINE)
        line.text[LINE - 2] = '\n';
    return line;
}

static void hub(void *arg)
{
    static const struct line silence = {"* it is quiet here\n"}, goodbye = {"* the server stops\n"};
    bool has_stopped = false;
    struct client *all = NULL, *client, **at;
    struct message message;
    struct line line;
    gs_case cases[] = {
        {.ch = entering, .op = GS_RECV, .elem = &client},
        {.ch = leaving, .op = GS_RECV, .elem = &client},
        {.ch = messages, .op = GS_RECV, .elem = &message},
        {.ch = stopping, .op = GS_RECV},
    };

    (void)arg;
    for (;;) {
        switch (gs_select(cases, 4, gs_after_ms(quiet))) {
        case 0:
            if (cases[0].result == -EPIPE)
                return; /* no client can come any more */
            if (has_stopped)
                shutdown(client->fd, SHUT_RD);
            make_unique(all, client);
            client->next = all;
            all = client;
            line = joined("* ", client->name, " has come\n");
            tell_all(all, NULL, &line);
            break;
        case 1:
            for (at = &all; *at != client; at = &(*at)->next)
                ;
            *at = client->next;
            line = joined("* ", client->name, " has gone\n");
            tell_all(all, NULL, &line);
            gs_chan_close(client->outbox);
            break;
        case 2:
            client = message.from;
            if (strcmp(message.line.text, "/who\n") == 0) {
                line = names_of(all);
                tell(client, &line);
            } else {
                line = joined(client->name, ": ", message.line.text);
                tell_all(all, client, &line);
            }
            break;
        case 3:
            has_stopped = true;
            cases[3].ch = NULL; /* a closed channel is always ready, and NULL never */
            tell_all(all, NULL, &goodbye);
            for (client = all; client; client = client->next)
                shutdown(client->fd, SHUT_RD); /* its reader gets what was sent, and then the end */
            break;
        case -ETIMEDOUT:
            tell_all(all, NULL, &silence);
            break;
        }
    }
}

static void write_lines(void *arg)
{
    struct client *me = arg;
    struct line line;

    while (gs_chan_recv(me->outbox, &line, GS_FOREVER) == 0)
        if (!send_text(me->fd, line.text, gs_after_ms(slow)))
            shutdown(me->fd, SHUT_RDWR);
}

/* Spawns f(arg) with a name; a reference to it. */
static gs_g *go(const char *name, gs_fn f, void *arg)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    gs_g *g;
    opts.name = name;
    must("gs_spawn_with", gs_spawn_with(f, arg, &opts, &g));
    return g;
}

/* Asks a client for its name. False: it gives none. */
static bool get_name(struct client *me, struct input *in)
{
    struct line line;
    if (!send_text(me->fd, "* your name?\n", gs_after_ms(slow)) || !read_line(me->fd, in, &line, gs_after_ms(slow)))
        return false;
    line.text[strcspn(line.text, "\r\n")] = 0;
    snprintf(me->name, sizeof me->name, "%.30s", line.text);
    return me->name[0] != 0;
}

static void serve(void *arg)
{
    struct client me = {.fd = (int)(intptr_t)arg, .outbox = gs_chan_make(sizeof(struct line), 64)}, *it = &me;
    struct message message = {.from = &me};
    struct input in = {0};
    gs_g *writer;

    if (get_name(&me, &in)) {
        writer = go(joined("writer of ", me.name, "").text, write_lines, &me);
        gs_chan_send(entering, &it, GS_FOREVER);
        while (read_line(me.fd, &in, &message.line, gs_after_ms(idle)))
            gs_chan_send(messages, &message, GS_FOREVER);
        gs_chan_send(leaving, &it, GS_FOREVER);

        gs_join(writer, GS_FOREVER);
        gs_release(writer);
    }
    gs_chan_free(me.outbox);
    gs_close(me.fd);
    gs_waitgroup_done(&connections);
}

static void accept_all(void *listener)
{
    int fd;
    while ((fd = accept_next((int)(intptr_t)listener)) >= 0) {
        gs_waitgroup_add(&connections, 1);
        gs_release(go("reader", serve, (void *)(intptr_t)fd));
    }
}

/* The signals that end the server. */
static void wanted(sigset_t *signals)
{
    sigemptyset(signals);
    sigaddset(signals, SIGINT);
    sigaddset(signals, SIGTERM);
}

static void run(void *port)
{
    int listener = listen_on(port);
    gs_g *the_hub, *acceptor;
    sigset_t signals;

    entering = gs_chan_make(sizeof(struct client *), 0);
    leaving = gs_chan_make(sizeof(struct client *), 0);
    messages = gs_chan_make(sizeof(struct message), 0);
    stopping = gs_chan_make(0, 0);
    the_hub = go("hub", hub, NULL);
    acceptor = go("acceptor", accept_all, (void *)(intptr_t)listener);

    wanted(&signals);
    must("gs_signal_wait", gs_signal_wait(&signals, NULL, GS_FOREVER));

    gs_cancel(acceptor);
    gs_join(acceptor, GS_FOREVER);
    gs_release(acceptor);
    gs_close(listener);
    gs_chan_close(stopping);
    gs_waitgroup_wait(&connections, GS_FOREVER);
    gs_chan_close(entering);
    gs_join(the_hub, GS_FOREVER);
    gs_release(the_hub);
    gs_chan_free(entering);
    gs_chan_free(leaving);
    gs_chan_free(messages);
    gs_chan_free(stopping);
    puts("chat: stopped");
}

/* chat [PORT [IDLE SLOW QUIET]], the last three in ms. */
int main(int argc, char **argv)
{
    sigset_t signals;
    wanted(&signals);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before the library starts its threads */
    if (argc == 5) {
        idle = atoll(argv[2]);
        slow = atoll(argv[3]);
        quiet = atoll(argv[4]);
    }
    must("gs_run", gs_run(run, argc > 1 ? argv[1] : "7000"));
    must("gs_shutdown", gs_shutdown(GS_FOREVER));
    return 0;
}
