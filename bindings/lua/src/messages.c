/* Freeing messages: see message.h. */

#include "message.h"

#include <stdlib.h>

void lgs_drop_heads(const char *p, uint32_t owned, struct shared **gone)
{
    while (owned > 0) {
        void *it;
        enum kind kind = lgs_skip_head(&p, &it);
        if (!it)
            continue;
        owned--;
        if (kind == K_SHARED)
            lgs_give_up(it, gone);
        else
            lgs_message_drop_into(it, gone);
    }
}

void lgs_message_drop_into(struct message *m, struct shared **gone)
{
    if (m) {
        lgs_drop_heads(m->heads, m->owned, gone);
        free(m);
    }
}

void lgs_message_free(struct message *m)
{
    struct shared *gone = NULL;
    lgs_message_drop_into(m, &gone);
    lgs_destroy(gone);
}
