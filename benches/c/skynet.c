/* skynet: a tree of goroutines, ten children each, a million leaves; every node sends its sum up. */
#include "bench.h"

enum { CHILDREN = 10, LEAVES = 1000000 };

struct node {
    gs_chan *up;
    int64_t number, size;
};

static void grow(void *arg)
{
    struct node node = *(struct node *)arg;

    if (node.size == 1) {
        MUST(gs_chan_send(node.up, &node.number, GS_FOREVER));
        return;
    }
    struct node children[CHILDREN];
    gs_chan *down = new_chan(sizeof(int64_t), 0);
    int64_t size = node.size / CHILDREN, sum = 0;
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = (struct node){down, node.number + i * size, size};
        MUST(gs_spawn(grow, &children[i]));
    }
    for (int i = 0; i < CHILDREN; i++) {
        int64_t part;
        MUST(gs_chan_recv(down, &part, GS_FOREVER));
        sum += part;
    }
    MUST(gs_chan_free(down));
    MUST(gs_chan_send(node.up, &sum, GS_FOREVER));
}

void skynet(int64_t n)
{
    struct node root = {new_chan(sizeof(int64_t), 0), 0, LEAVES};

    int64_t start = gs_now();
    for (int64_t i = 0; i < n; i++) {
        int64_t sum;
        MUST(gs_spawn(grow, &root));
        MUST(gs_chan_recv(root.up, &sum, GS_FOREVER));
        CHECK(sum == (int64_t)LEAVES * (LEAVES - 1) / 2);
    }
    report("skynet", ms_since(start) / (double)n, "ms");

    MUST(gs_chan_free(root.up));
}
