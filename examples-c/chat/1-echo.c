/* Step 1 of docs/tutorial.md: a goroutine for each connection, which sends back what it gets. */
#include "chat.h"

static void serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    struct input in = {0};
    struct line line;

    while (read_line(fd, &in, &line, GS_FOREVER) && send_text(fd, line.text, GS_FOREVER))
        ;
    gs_close(fd);
}

static void run(void *port)
{
    int listener = listen_on(port), fd;

    while ((fd = accept_next(listener)) >= 0)
        must("gs_spawn", gs_spawn(serve, (void *)(intptr_t)fd));
}

int main(int argc, char **argv)
{
    must("gs_run", gs_run(run, argc > 1 ? argv[1] : "7000"));
    return 0;
}
