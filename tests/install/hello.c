/* A program in C that a stranger builds with the installed library. */
#include <gosched.h>
#include <stdio.h>

static void send(void *ch)
{
    for (int i = 0; i < 100; i++)
        gs_chan_send(ch, &i, GS_FOREVER);
    gs_chan_close(ch);
}

static void go_main(void *ch)
{
    int sum = 0, n = 0;
    gs_spawn(send, ch);
    while (gs_chan_recv(ch, &n, GS_FOREVER) == 0)
        sum += n;
    printf("the sum is %d\n", sum);
}

int main(void)
{
    return gs_run(go_main, gs_chan_make(sizeof(int), 0)) != 0;
}
