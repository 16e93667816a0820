/* Messages: values on their way from one state to another.

   A message first has each object (table, function, shared object) once, in the order of discovery, and then
   their contents, in which other objects are numbers. So cycles and shared references are kept, and depth takes
   no stack. */

#ifndef LGS_MESSAGE_H
#define LGS_MESSAGE_H

#include "lgs.h"

#include <string.h>

/* The first byte of a value. */
enum tag {
    T_NIL,
    T_FALSE,
    T_TRUE,
    T_INTEGER,
    T_NUMBER,
    T_SHORT,   /* struct value: a string of up to LGS_SHORT bytes */
    T_STRING,
    T_LIGHT,   /* a light userdata: the pointer */
    T_SHARED,  /* struct value: a reference */
    T_MESSAGE, /* struct value: a message with one value */
    T_OBJECT,  /* an object: its number, from 1 */
    T_GLOBALS, /* the state's table of globals */
    T_MODULE,  /* a module: the name for require */
    T_FIELD,   /* a field of a module */
    T_UPVALUE, /* an upvalue shared with an earlier function */
    T_END,     /* the end of a table */
};

/* The kinds of objects. */
enum kind { K_TABLE, K_FUNCTION, K_SHARED, K_CLONE };

struct message {
    char *heads, *body; /* one block of memory, after this struct */
    uint32_t objects;
    uint32_t values;
    uint32_t owned; /* the number of references and messages in heads */
};

/* Reads the next n bytes of a message from *p, which moves on. */
static inline void lgs_take(const char **p, void *to, size_t n)
{
    memcpy(to, *p, n);
    *p += n;
}

/* The kind of the object whose head is at *p, which moves on to the next head; `owned`: its reference or
   message, or NULL. */
static inline enum kind lgs_skip_head(const char **p, void **owned)
{
    enum kind kind = (enum kind)*(const uint8_t *)(*p)++;
    *owned = NULL;
    if (kind == K_TABLE) {
        *p += sizeof(uint32_t);
    } else if (kind == K_FUNCTION) {
        size_t len;
        lgs_take(p, &len, sizeof len);
        *p += len;
    } else {
        lgs_take(p, owned, sizeof *owned);
    }
    return kind;
}

/* Whether the module is the table of globals, which each state has anyway. */
static inline bool lgs_is_builtin(const char *name)
{
    return strcmp(name, "_G") == 0;
}

/* Drops the `owned` references in the heads of a message. `gone`: see lgs_give_up. */
void lgs_drop_heads(const char *p, uint32_t owned, struct shared **gone);

#endif
