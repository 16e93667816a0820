/* Messages: values on their way from one state to another.

   A message has the objects (tables, functions, what is shared) once each, in the order in which they were met,
   and then what is in them, in which other objects are numbers. So cycles and shared references stay what they
   are, and depth takes no stack. */

#ifndef LGS_MESSAGE_H
#define LGS_MESSAGE_H

#include "lgs.h"

#include <string.h>

/* What a value begins with. */
enum tag {
    T_NIL,
    T_FALSE,
    T_TRUE,
    T_INTEGER,
    T_NUMBER,
    T_SHORT,   /* of struct value: up to LGS_SHORT bytes */
    T_STRING,
    T_LIGHT,   /* a light userdata: the pointer */
    T_SHARED,  /* of struct value: a reference */
    T_MESSAGE, /* of struct value: a message with one value */
    T_OBJECT,  /* its number, from 1 */
    T_GLOBALS, /* the table of globals of the state */
    T_MODULE,  /* require of a name */
    T_FIELD,   /* of a module */
    T_UPVALUE, /* the same upvalue as of an earlier function */
    T_END,     /* of a table */
};

/* What an object is. */
enum kind { K_TABLE, K_FUNCTION, K_SHARED, K_CLONE };

struct message {
    char *heads, *body; /* one block of memory, which begins with this struct */
    uint32_t objects;
    uint32_t values;
    uint32_t owned; /* references and messages in heads */
};

/* Reads the next n bytes of a message, whose place *p moves on. */
static inline void lgs_take(const char **p, void *to, size_t n)
{
    memcpy(to, *p, n);
    *p += n;
}

/* The kind of the object whose head is at *p, which moves on to the next one; `owned`: its reference or message, or
   NULL. */
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

/* Whether a module's name is that of the globals, which each state has anyway. */
static inline bool lgs_is_builtin(const char *name)
{
    return strcmp(name, "_G") == 0;
}

/* The references in the heads of a message, of which there are `owned`. `gone`: see lgs_give_up. */
void lgs_drop_heads(const char *p, uint32_t owned, struct shared **gone);

#endif
