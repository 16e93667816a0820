/* Files and sockets: what files.c, sockets.c and processes.c share. */

#ifndef LGS_FILE_H
#define LGS_FILE_H

#include "lgs.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

/* The least number of bytes that a read asks of the system. */
#define CHUNK 16384

enum kind { DISK, STREAM, LISTENER, DATAGRAMS };
extern const char *const lgs_kinds[];

/* A file or a socket. Goroutines may share it: reads take turns, and so do writes; close is allowed at any time. */
struct file {
    struct shared shared;
    uint8_t kind;
    bool appends;
    int fd;
    struct file *next, **at; /* the links of the files of a bubble's run; at is NULL: not among them */
    _Atomic uint32_t users; /* calls that use fd now, and CLOSED. The last of them closes fd */
    gs_mutex reading, writing;
    /* Bytes read but not yet asked for: from lo up to hi. `reading` guards them. */
    char *data;
    size_t lo, hi, size;
};

#define CLOSED (UINT32_C(1) << 31)

/* The socket's own address, or its peer's. 0 or a negative errno value. */
static inline int lgs_sockname(int fd, bool peer, struct sockaddr_storage *to)
{
    uint32_t len = sizeof *to;
    return (peer ? gs_getpeername : gs_getsockname)(fd, (struct sockaddr *)to, &len);
}

/* Begins a use of the file's descriptor, until lgs_unuse. False: the file is closed. */
static inline bool lgs_use(struct file *f)
{
    uint32_t now = atomic_load(&f->users);
    do {
        if (now & CLOSED)
            return false;
    } while (!atomic_compare_exchange_weak(&f->users, &now, now + 1));
    return true;
}

static inline int lgs_unuse(struct file *f)
{
    return atomic_fetch_sub(&f->users, 1) == (CLOSED | 1) ? gs_close(f->fd) : 0;
}

static inline bool lgs_is_closed(struct file *f)
{
    return atomic_load(&f->users) & CLOSED;
}

static inline struct file *lgs_check_file(lua_State *L, int arg)
{
    return lgs_check(L, arg, LGS_FILE);
}

/* The file of argument arg; raises an error if it is of another kind. */
struct file *lgs_check_kind(lua_State *L, int arg, enum kind kind);
/* The file of argument arg; raises an error unless it can be read and written. */
struct file *lgs_check_stream(lua_State *L, int arg);
/* Pushes a file that has no descriptor yet. */
struct file *lgs_new_file(lua_State *L, enum kind kind);
/* Gives the file on top of the stack its descriptor. fd below 0 is an error, which becomes the results. Returns
   the number of results. */
int lgs_made_file(lua_State *L, struct file *f, int fd);
/* Pushes the results of a call on a closed file; returns their number. */
int lgs_push_closed(lua_State *L);

/* What to read: at most n bytes, n bytes, a line (with its end), or all. */
enum what { SOME, BYTES, LINE, LINE_WITH_END, ALL };
/* Reads from argument 1, the file f. Returns the number of results. */
int lgs_read_file(lua_State *L, struct file *f, enum what what, size_t n, gs_deadline deadline);

#endif
