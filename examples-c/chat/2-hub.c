/* Step 2 of docs/tutorial.md: what one client says, all others hear. */
#include "chat.h"

/* A client lives on the stack of its goroutine. Only the hub uses `next`. */
struct client {
    struct client *next;
    int fd;
    gs_chan *outbox; /* of struct line: what is to be sent to the client */
};

struct message {
    struct client *from;
    struct line line;
};

static gs_chan *entering, *leaving; /* of struct client * */
static gs_chan *messages;           /* of struct message */

/* The hub alone knows who is there, so nothing needs a lock. */
static void hub(void *arg)
{
    static const struct line welcome = {"* welcome\n"};
    struct client *all = NULL, *client, **at;
    struct message message;
    gs_case cases[] = {
        {.ch = entering, .op = GS_RECV, .elem = &client},
        {.ch = leaving, .op = GS_RECV, .elem = &client},
        {.ch = messages, .op = GS_RECV, .elem = &message},
    };

    (void)arg;
    for (;;) {
        switch (must("gs_select", gs_select(cases, 3, GS_FOREVER))) {
        case 0:
            client->next = all;
            all = client;
            gs_chan_send(client->outbox, &welcome, GS_FOREVER);
            break;
        case 1:
            for (at = &all; *at != client; at = &(*at)->next)
                ;
            *at = client->next;
            gs_chan_close(client->outbox); /* the last use of the client here */
            break;
        case 2:
            for (client = all; client; client = client->next)
                if (client != message.from)
                    gs_chan_send(client->outbox, &message.line, GS_FOREVER);
            break;
        }
    }
}

/* Sends what is in the outbox, until that is closed. */
static void write_lines(void *arg)
{
    struct client *me = arg;
    struct line line;

    while (gs_chan_recv(me->outbox, &line, GS_FOREVER) == 0)
        send_text(me->fd, line.text, GS_FOREVER);
}

static void serve(void *arg)
{
    struct client me = {.fd = (int)(intptr_t)arg, .outbox = gs_chan_make(sizeof(struct line), 64)}, *it = &me;
    struct message message = {.from = &me};
    struct input in = {0};
    gs_g *writer;

    must("gs_spawn_with", gs_spawn_with(write_lines, &me, NULL, &writer));
    gs_chan_send(entering, &it, GS_FOREVER);
    while (read_line(me.fd, &in, &message.line, GS_FOREVER))
        gs_chan_send(messages, &message, GS_FOREVER);
    gs_chan_send(leaving, &it, GS_FOREVER);

    gs_join(writer, GS_FOREVER); /* it ends when the hub has closed the outbox */
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

int main(int argc, char **argv)
{
    must("gs_run", gs_run(run, argc > 1 ? argv[1] : "7000"));
    return 0;
}
