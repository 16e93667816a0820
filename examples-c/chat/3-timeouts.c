/* Step 3 of docs/tutorial.md: no client holds up the others, and silence ends. */
#include "chat.h"

/* In ms: after how long a silent client is let go, how long a client may take nothing, and after how long
 * without a word the hub says so. */
static int64_t idle = 600 * 1000, slow = 10 * 1000, quiet = 60 * 1000;

struct client {
    struct client *next;
    int fd;
    gs_chan *outbox;
};

struct message {
    struct client *from;
    struct line line;
};

static gs_chan *entering, *leaving; /* of struct client * */
static gs_chan *messages;           /* of struct message */

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

static void hub(void *arg)
{
    static const struct line welcome = {"* welcome\n"}, silence = {"* it is quiet here\n"};
    struct client *all = NULL, *client, **at;
    struct message message;
    gs_case cases[] = {
        {.ch = entering, .op = GS_RECV, .elem = &client},
        {.ch = leaving, .op = GS_RECV, .elem = &client},
        {.ch = messages, .op = GS_RECV, .elem = &message},
    };

    (void)arg;
    for (;;) {
        switch (gs_select(cases, 3, gs_after_ms(quiet))) {
        case 0:
            client->next = all;
            all = client;
            tell(client, &welcome);
            break;
        case 1:
            for (at = &all; *at != client; at = &(*at)->next)
                ;
            *at = client->next;
            gs_chan_close(client->outbox);
            break;
        case 2:
            tell_all(all, message.from, &message.line);
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

static void serve(void *arg)
{
    struct client me = {.fd = (int)(intptr_t)arg, .outbox = gs_chan_make(sizeof(struct line), 64)}, *it = &me;
    struct message message = {.from = &me};
    struct input in = {0};
    gs_g *writer;

    must("gs_spawn_with", gs_spawn_with(write_lines, &me, NULL, &writer));
    gs_chan_send(entering, &it, GS_FOREVER);
    while (read_line(me.fd, &in, &message.line, gs_after_ms(idle)))
        gs_chan_send(messages, &message, GS_FOREVER);
    gs_chan_send(leaving, &it, GS_FOREVER);

    gs_join(writer, GS_FOREVER);
    gs_release(writer);
    gs_chan_free(me.outbox);
    gs_close(me.fd);
}

static void run(void *port)
{
    int listener = listen_on(port), fd;

    entering = gs_chan_make(sizeof(struct client *), 0);
    leaving = gs_chan_make(sizeof(struct client *), 0);
    messages = gs_chan_make(sizeof(struct message), 0);
    must("gs_spawn", gs_spawn(hub, NULL));
    while ((fd = accept_next(listener)) >= 0)
        must("gs_spawn", gs_spawn(serve, (void *)(intptr_t)fd));
}

/* chat [PORT [IDLE SLOW QUIET]], the last three in ms. */
int main(int argc, char **argv)
{
    if (argc == 5) {
        idle = atoll(argv[2]);
        slow = atoll(argv[3]);
        quiet = atoll(argv[4]);
    }
    must("gs_run", gs_run(run, argc > 1 ? argv[1] : "7000"));
    return 0;
}
