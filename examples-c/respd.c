/*
 * respd: keeps strings under keys in memory, for clients of Redis. A goroutine for each connection.
 *
 * It shows that a server of many clients needs neither an event loop nor one thread for all data:
 * each goroutine reads requests, executes them one by one and answers, in plain code; all P's do so at
 * the same time, and gs_mutex guards each part of the keys (store.h). Replies are collected until
 * there is no whole request left to answer, so a pipeline of requests is answered with one write.
 * resp.h parses, server.h accepts and stops.
 *
 *   cc -std=c11 -O2 -Iinclude examples-c/respd.c -Ltarget/release -lgosched \
 *      -Wl,-rpath,$PWD/target/release -o respd
 *   ./respd -p 7379 & redis-cli -p 7379 incr counter; kill $!
 *
 * It prints:
 *
 *   respd: listening on 127.0.0.1:7379
 *   (integer) 1
 *   respd: stopped: 0 connections open, 1 accepted, 1 requests, 1 keys
 */
#define _GNU_SOURCE
#include <fnmatch.h>
#include <getopt.h>
#include <stdarg.h>
#include <strings.h>
#include <sys/random.h>

#include "resp.h"
#include "server.h"
#include "store.h"

static const char help[] =
    "usage: respd [-p PORT] [-b ADDRESS] [-P PROCS] [-t SECONDS]\n"
    "Keeps strings under keys, in memory only, for clients of Redis (RESP2 and RESP3).\n\n"
    "  -p PORT      listen on this port; 0: a free one, which is printed (6379)\n"
    "  -b ADDRESS   listen on this address (127.0.0.1); '' is all of this machine's\n"
    "  -P PROCS     how many connections may be served at the same moment\n"
    "               (GOSCHED_PROCS; the CPUs of this process)\n"
    "  -t SECONDS   end a connection that is idle, or takes nothing, for so long; 0: never (0)\n"
    "  -h, --help   print this\n\n"
    "Commands: PING ECHO QUIT SELECT HELLO CLIENT COMMAND CONFIG INFO; GET SET SETNX GETSET MGET\n"
    "MSET STRLEN APPEND INCR DECR INCRBY DECRBY; DEL EXISTS DBSIZE FLUSHDB FLUSHALL. 'redis-cli\n"
    "command docs' explains them. Keys don't expire, there is one database, nothing is kept on a\n"
    "disk, and there are no passwords: keep it to addresses that you trust.\n"
    "SIGTERM and SIGINT: requests that have come are answered, then it ends. SIGUSR1 prints the\n"
    "numbers.\n\n"
    "Exit status: 0; 1 if it can't listen; 2 for a wrong option.\n";

enum {
    FEW_BYTES = 2 * 1024,      /* read into the stack; all that most clients ever send at a time */
    BUFFER = 16 * 1024,        /* of replies, on the stack, and what is read at a time once more has come */
    KEEP_MAX = 1024 * 1024,    /* bytes of a larger buffer that a connection keeps between requests */
    COPY_MAX = 4 * 1024,       /* larger values are sent from where they are */
    NAME_MAX_BYTES = 64,       /* of a client's name */
};

static const char no_memory[] = "OOM there is no memory for this";
static const char no_integer[] = "ERR value is not an integer or out of range";

static long limit_s;           /* 0: none */
static atomic_uint_fast64_t requests, last_id;

/* What a connection has read and not yet parsed is in[begin] up to in[filled]; out[0] up to
 * out[pending] is to be sent. */
typedef struct client {
    int fd;
    bool failed;               /* nothing can be sent any more */
    bool quits;
    int protocol;              /* 2 or 3 */
    uint64_t id, served;       /* served: since it was last added to requests */
    char name[NAME_MAX_BYTES + 1];
    parser parser;
    char *in;                  /* in_small, or from malloc */
    size_t in_size, begin, filled, pending;
    /* Their beginnings are close together, so an idle client touches few pages. */
    char in_small[FEW_BYTES], out[BUFFER];
} client;

typedef struct command {
    const char *name;          /* in lower case, as everywhere in replies */
    int arity;                 /* with the name; below 0: at least -arity */
    const char *flags;         /* separated by blanks */
    int first, last, step;     /* which arguments are keys; last below 0: from the end */
    void (*run)(client *c);
    const char *group, *summary;
} command;

static int64_t deadline(void)
{
    return limit_s ? after_s(limit_s) : GS_FOREVER;
}

static size_t argc(const client *c)
{
    return c->parser.count;
}

static slice arg_of(const client *c, size_t i)
{
    arg a = c->parser.args[i];
    return (slice){c->in + c->begin + a.offset, a.length};
}

/* Is it this word? Upper and lower case are the same. */
static bool is_word(slice s, const char *word)
{
    return s.length == strlen(word) && strncasecmp(s.data, word, s.length) == 0;
}

/* Replies. Each is appended to c->out, which is sent when it is full. */

/* Sends what is pending, and the bytes of more after it. */
static void send_out(client *c, slice more)
{
    struct iovec parts[2] = {{c->out, c->pending}, {(void *)(uintptr_t)more.data, more.length}};
    c->pending = 0;
    if (c->served) {
        requests += c->served;
        c->served = 0;
    }
    if (!c->failed && send_parts(c->fd, parts, 2, deadline()) != 0)
        c->failed = true;
}

static void flush(client *c)
{
    send_out(c, (slice){"", 0});
}

/* Appends n bytes, at most BUFFER. */
static void put(client *c, const char *bytes, size_t n)
{
    if (n > BUFFER - c->pending)
        flush(c);
    memcpy(c->out + c->pending, bytes, n);
    c->pending += n;
}

static void put_text(client *c, const char *text)
{
    put(c, text, strlen(text));
}

/* A character, a number and CR LF: how most replies begin. */
static void put_number(client *c, char kind, int64_t value)
{
    char line[24], *at = line + sizeof line;
    uint64_t n = value < 0 ? -(uint64_t)value : (uint64_t)value;
    *--at = '\n';
    *--at = '\r';
    do
        *--at = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    if (value < 0)
        *--at = '-';
    *--at = kind;
    put(c, at, (size_t)(line + sizeof line - at));
}

static void reply_integer(client *c, int64_t n)
{
    put_number(c, ':', n);
}

static void reply_array(client *c, size_t n)
{
    put_number(c, '*', (int64_t)n);
}

static void reply_ok(client *c)
{
    put_text(c, "+OK\r\n");
}

/* n names, each with a value after it. */
static void reply_map(client *c, size_t n)
{
    if (c->protocol == 3)
        put_number(c, '%', (int64_t)n);
    else
        reply_array(c, 2 * n);
}

static void reply_nothing(client *c)
{
    put_text(c, c->protocol == 3 ? "_\r\n" : "$-1\r\n");
}

/* A line; what would end it becomes a blank. */
static __attribute__((format(printf, 3, 4))) void reply_line(client *c, char kind, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (char *p = line; *p; p++)
        if (*p == '\r' || *p == '\n')
            *p = ' ';
    put(c, &kind, 1);
    put_text(c, line);
    put(c, "\r\n", 2);
}

static void reply_error(client *c, const char *why)
{
    reply_line(c, '-', "%s", why);
}

static void reply_bulk(client *c, slice bytes)
{
    put_number(c, '$', (int64_t)bytes.length);
    if (bytes.length > COPY_MAX)
        send_out(c, bytes);
    else
        put(c, bytes.data, bytes.length);
    put(c, "\r\n", 2);
}

static void reply_string(client *c, const char *text)
{
    reply_bulk(c, (slice){text, strlen(text)});
}

static slice bytes_of(const blob *b)
{
    return (slice){b->data, b->length};
}

/* A value that the caller has a reference to, or NULL. */
static void reply_blob(client *c, const blob *b)
{
    if (b)
        reply_bulk(c, bytes_of(b));
    else
        reply_nothing(c);
}

static void reply_arity(client *c, const char *name)
{
    reply_line(c, '-', "ERR wrong number of arguments for '%s' command", name);
}

static void reply_syntax(client *c)
{
    reply_error(c, "ERR syntax error");
}

static void reply_subcommand(client *c, const char *name)
{
    slice sub = arg_of(c, 1);
    reply_line(c, '-', "ERR unknown subcommand or wrong number of arguments for '%.*s' of '%s'",
               (int)(sub.length < 128 ? sub.length : 128), sub.data, name);
}

/* Strings */

static void run_get(client *c)
{
    slice key = arg_of(c, 1);
    uint64_t hash = store_hash(key);
    shard *s = &shards[shard_of(hash)];
    shard_lock(s);
    blob *b = store_get(hash, key);
    if (b)
        blob_retain(b);
    shard_unlock(s);
    reply_blob(c, b);
    blob_release(b);
}

/* Sets the key unless its being there (present) speaks against it: only_if 1 wants it to be there, 0
 * to be absent, -1 takes either. Gives true if it was set. *before: a reference to the value that was there,
 * or NULL. Has replied if *failed. */
static bool set_key(client *c, slice key, slice bytes, int only_if, blob **before, bool *failed)
{
    blob *value = blob_make(bytes), *old = NULL;
    uint64_t hash = store_hash(key);
    shard *s = &shards[shard_of(hash)];
    *failed = value == NULL;
    *before = NULL;
    bool set = false;
    if (value) {
        shard_lock(s);
        blob *b = only_if == -1 ? NULL : store_get(hash, key);
        if (only_if == -1 || (b != NULL) == only_if) {
            set = store_put(hash, key, value, &old);
            *failed = !set;
        } else if (b) {
            old = blob_retain(b);
        }
        shard_unlock(s);
    }
    if (!set)
        blob_release(value);
    if (*failed)
        reply_error(c, no_memory);
    *before = old;
    return set;
}

static void run_set(client *c)
{
    int only_if = -1;
    bool get = false, failed;
    for (size_t i = 3; i < argc(c); i++) {
        slice option = arg_of(c, i);
        if (is_word(option, "nx") && only_if != 1) {
            only_if = 0;
        } else if (is_word(option, "xx") && only_if != 0) {
            only_if = 1;
        } else if (is_word(option, "get")) {
            get = true;
        } else if (is_word(option, "ex") || is_word(option, "px") || is_word(option, "exat") ||
                   is_word(option, "pxat") || is_word(option, "keepttl")) {
            reply_error(c, "ERR keys don't expire here: only NX, XX and GET are options of SET");
            return;
        } else {
            reply_syntax(c);
            return;
        }
    }
    blob *before;
    bool set = set_key(c, arg_of(c, 1), arg_of(c, 2), only_if, &before, &failed);
    if (!failed && get)
        reply_blob(c, before);
    else if (!failed && set)
        reply_ok(c);
    else if (!failed)
        reply_nothing(c);
    blob_release(before);
}

static void run_setnx(client *c)
{
    blob *before;
    bool failed, set = set_key(c, arg_of(c, 1), arg_of(c, 2), 0, &before, &failed);
    if (!failed)
        reply_integer(c, set);
    blob_release(before);
}

static void run_getset(client *c)
{
    blob *before;
    bool failed;
    set_key(c, arg_of(c, 1), arg_of(c, 2), -1, &before, &failed);
    if (!failed)
        reply_blob(c, before);
    blob_release(before);
}

/* For commands of several keys: what is needed for each. */
typedef struct item { slice key; uint64_t hash; blob *value; } item;

/* The keys in every step-th argument from the first on, their hashes, and the tables that they belong
 * to; n: how many. To be freed. NULL: no memory, and it has replied. */
static item *items_of(client *c, size_t step, size_t *n, shard_set *set)
{
    *n = (argc(c) - 1) / step;
    item *items = calloc(*n, sizeof *items);
    if (!items)
        reply_error(c, no_memory);
    for (size_t i = 0; items && i < *n; i++) {
        items[i].key = arg_of(c, 1 + i * step);
        items[i].hash = store_hash(items[i].key);
        set_add(set, items[i].hash);
    }
    return items;
}

/* The keys of a command, each with what `take` gives for it, all at one moment. NULL: no memory, as the reply says. */
static item *take_each(client *c, size_t *n, blob *(*take)(uint64_t hash, slice key))
{
    shard_set set = {{0}};
    item *items = items_of(c, 1, n, &set);
    if (!items)
        return NULL;
    set_lock(&set);
    for (size_t i = 0; i < *n; i++)
        items[i].value = take(items[i].hash, items[i].key);
    set_unlock(&set);
    return items;
}

static blob *get_retained(uint64_t hash, slice key)
{
    blob *b = store_get(hash, key);
    return b ? blob_retain(b) : NULL;
}

static void run_mget(client *c)
{
    size_t n;
    item *items = take_each(c, &n, get_retained);
    if (!items)
        return;
    reply_array(c, n);
    for (size_t i = 0; i < n; i++) {
        reply_blob(c, items[i].value);
        blob_release(items[i].value);
    }
    free(items);
}

static void run_mset(client *c)
{
    if (argc(c) % 2 == 0) {
        reply_arity(c, "mset");
        return;
    }
    size_t n, made = 0, done = 0;
    shard_set set = {{0}};
    item *items = items_of(c, 2, &n, &set);
    if (!items)
        return;
    while (made < n && (items[made].value = blob_make(arg_of(c, 2 + made * 2))) != NULL)
        made++;
    if (made == n) {
        set_lock(&set);
        for (; done < n; done++) {
            blob *old;
            if (!store_put(items[done].hash, items[done].key, items[done].value, &old))
                break;
            items[done].value = old;
        }
        /* All or nothing: back to the values before, the last one first for a key that is twice in it. */
        for (size_t i = done; done < n && i-- > 0;) {
            blob *new;
            if (items[i].value)
                store_put(items[i].hash, items[i].key, items[i].value, &new); /* replaces: needs no memory */
            else
                new = store_remove(items[i].hash, items[i].key);
            items[i].value = new;
        }
        set_unlock(&set);
    }
    for (size_t i = 0; i < n; i++)
        blob_release(items[i].value);
    free(items);
    if (done == n)
        reply_ok(c);
    else
        reply_error(c, no_memory);
}

static void run_strlen(client *c)
{
    slice key = arg_of(c, 1);
    uint64_t hash = store_hash(key);
    shard *s = &shards[shard_of(hash)];
    shard_lock(s);
    blob *b = store_get(hash, key);
    size_t length = b ? b->length : 0;
    shard_unlock(s);
    reply_integer(c, (int64_t)length);
}

/* Puts what make gives for the value before (NULL: there is none) in its place, both at one moment.
 * The new value; NULL: it has replied with why. The value is the table's, so only what make leaves in
 * context may be used after this. */
static void update(client *c, slice key, blob *(*make)(blob *before, void *context, const char **why),
                   void *context, void (*reply)(client *c, void *context))
{
    uint64_t hash = store_hash(key);
    shard *s = &shards[shard_of(hash)];
    const char *why = no_memory;
    blob *old = NULL;
    shard_lock(s);
    blob *value = make(store_get(hash, key), context, &why);
    bool done = value && store_put(hash, key, value, &old);
    shard_unlock(s);
    blob_release(done ? old : value);
    if (done)
        reply(c, context);
    else
        reply_error(c, value ? no_memory : why);
}

typedef struct addition { int64_t by, sum; } addition;

/* A number as clients write it: no blank, plus sign or zero in front of it. */
static bool parse_integer(slice s, int64_t *value)
{
    const char *p = s.data, *end = p + s.length;
    bool negative = p < end && *p == '-';
    p += negative;
    if (p == end || end - p > 19 || (*p == '0' && (end - p > 1 || negative)))
        return false;
    uint64_t n = 0;
    for (; p < end; p++) {
        if (*p < '0' || *p > '9')
            return false;
        n = n * 10 + (uint64_t)(*p - '0'); /* 19 digits fit */
    }
    if (n > (uint64_t)INT64_MAX + negative)
        return false;
    *value = negative ? (int64_t)-n : (int64_t)n;
    return true;
}

static blob *make_sum(blob *before, void *context, const char **why)
{
    addition *a = context;
    int64_t value = 0;
    if (before && !parse_integer(bytes_of(before), &value)) {
        *why = no_integer;
        return NULL;
    }
    if (__builtin_add_overflow(value, a->by, &a->sum)) {
        *why = "ERR increment or decrement would overflow";
        return NULL;
    }
    char text[24];
    int n = snprintf(text, sizeof text, "%" PRId64, a->sum);
    return blob_make((slice){text, (size_t)n});
}

static void reply_sum(client *c, void *context)
{
    reply_integer(c, ((addition *)context)->sum);
}

static void add(client *c, int64_t by)
{
    addition a = {.by = by};
    update(c, arg_of(c, 1), make_sum, &a, reply_sum);
}

static void run_incr(client *c)
{
    add(c, 1);
}

static void run_decr(client *c)
{
    add(c, -1);
}

static void run_incrby(client *c)
{
    int64_t by;
    if (parse_integer(arg_of(c, 2), &by))
        add(c, by);
    else
        reply_error(c, no_integer);
}

static void run_decrby(client *c)
{
    int64_t by;
    if (!parse_integer(arg_of(c, 2), &by))
        reply_error(c, no_integer);
    else if (by == INT64_MIN)
        reply_error(c, "ERR decrement would overflow");
    else
        add(c, -by);
}

typedef struct suffix { slice bytes; size_t length; } suffix;

static blob *make_longer(blob *before, void *context, const char **why)
{
    suffix *x = context;
    size_t length = before ? before->length : 0;
    x->length = length + x->bytes.length;
    if (x->length > BULK_MAX) {
        *why = "ERR string exceeds maximum allowed size (512 MiB)";
        return NULL;
    }
    blob *b = blob_alloc(x->length);
    if (b) {
        if (before)
            memcpy(b->data, before->data, length);
        memcpy(b->data + length, x->bytes.data, x->bytes.length);
    }
    return b;
}

static void reply_length(client *c, void *context)
{
    reply_integer(c, (int64_t)((suffix *)context)->length);
}

static void run_append(client *c)
{
    suffix x = {.bytes = arg_of(c, 2)};
    update(c, arg_of(c, 1), make_longer, &x, reply_length);
}

/* Keys */

/* Replies for how many of the keys `take` gives something. */
static void reply_taken(client *c, blob *(*take)(uint64_t hash, slice key))
{
    size_t n, taken = 0;
    item *items = take_each(c, &n, take);
    if (!items)
        return;
    for (size_t i = 0; i < n; i++) {
        taken += items[i].value != NULL;
        blob_release(items[i].value);
    }
    free(items);
    reply_integer(c, (int64_t)taken);
}

static void run_del(client *c)
{
    reply_taken(c, store_remove);
}

static void run_exists(client *c)
{
    reply_taken(c, get_retained);
}

static void run_dbsize(client *c)
{
    reply_integer(c, (int64_t)store_count());
}

static void run_flush(client *c)
{
    if (argc(c) > 2 || (argc(c) == 2 && !is_word(arg_of(c, 1), "sync") && !is_word(arg_of(c, 1), "async"))) {
        reply_syntax(c);
        return;
    }
    store_clear();
    reply_ok(c);
}

/* The connection */

static void run_ping(client *c)
{
    if (argc(c) > 2)
        reply_arity(c, "ping");
    else if (argc(c) == 2)
        reply_bulk(c, arg_of(c, 1));
    else
        put_text(c, "+PONG\r\n");
}

static void run_echo(client *c)
{
    reply_bulk(c, arg_of(c, 1));
}

static void run_quit(client *c)
{
    c->quits = true;
    reply_ok(c);
}

static void run_select(client *c)
{
    int64_t n;
    if (!parse_integer(arg_of(c, 1), &n))
        reply_error(c, no_integer);
    else if (n != 0)
        reply_error(c, "ERR DB index is out of range");
    else
        reply_ok(c);
}

static bool set_name(client *c, slice name)
{
    bool printable = true;
    for (size_t i = 0; i < name.length; i++)
        printable = printable && name.data[i] > ' ' && name.data[i] < 127;
    if (name.length > NAME_MAX_BYTES || !printable) {
        reply_error(c, "ERR Client names are up to 64 characters without spaces, newlines or special characters.");
        return false;
    }
    memcpy(c->name, name.data, name.length);
    c->name[name.length] = '\0';
    return true;
}

static void run_client(client *c)
{
    slice sub = arg_of(c, 1);
    if (is_word(sub, "id") && argc(c) == 2) {
        reply_integer(c, (int64_t)c->id);
    } else if (is_word(sub, "getname") && argc(c) == 2) {
        if (*c->name)
            reply_string(c, c->name);
        else
            reply_nothing(c);
    } else if (is_word(sub, "setname") && argc(c) == 3) {
        if (set_name(c, arg_of(c, 2)))
            reply_ok(c);
    } else if (is_word(sub, "setinfo") && argc(c) == 4) {
        if (is_word(arg_of(c, 2), "lib-name") || is_word(arg_of(c, 2), "lib-ver"))
            reply_ok(c); /* nothing here shows it */
        else
            reply_error(c, "ERR Unrecognized option of CLIENT SETINFO");
    } else {
        reply_subcommand(c, "client");
    }
}

static void run_hello(client *c)
{
    int64_t version = c->protocol;
    if (argc(c) > 1 && !parse_integer(arg_of(c, 1), &version)) {
        reply_error(c, "ERR Protocol version is not an integer or out of range");
        return;
    }
    if (version != 2 && version != 3) {
        reply_error(c, "NOPROTO unsupported protocol version");
        return;
    }
    for (size_t i = 2; i < argc(c); i++) {
        if (is_word(arg_of(c, i), "setname") && i + 1 < argc(c)) {
            if (!set_name(c, arg_of(c, ++i)))
                return;
        } else if (is_word(arg_of(c, i), "auth")) {
            reply_error(c, "ERR there are no passwords here: AUTH");
            return;
        } else {
            slice option = arg_of(c, i);
            reply_line(c, '-', "ERR Syntax error in HELLO option '%.*s'",
                       (int)(option.length < 128 ? option.length : 128), option.data);
            return;
        }
    }
    c->protocol = (int)version;
    reply_map(c, 7);
    reply_string(c, "server");
    reply_string(c, "respd");
    reply_string(c, "version");
    reply_string(c, gs_version());
    reply_string(c, "proto");
    reply_integer(c, version);
    reply_string(c, "id");
    reply_integer(c, (int64_t)c->id);
    reply_string(c, "mode");
    reply_string(c, "standalone");
    reply_string(c, "role");
    reply_string(c, "master");
    reply_string(c, "modules");
    reply_array(c, 0);
}

/* The server */

static void run_config(client *c)
{
    if (!is_word(arg_of(c, 1), "get") || argc(c) < 3) {
        reply_subcommand(c, "config");
        return;
    }
    char port[8], timeout[24], bulk[16];
    snprintf(port, sizeof port, "%u", (unsigned)the_server.port);
    snprintf(timeout, sizeof timeout, "%ld", limit_s);
    snprintf(bulk, sizeof bulk, "%d", BULK_MAX);
    const char *const parameters[][2] = {
        {"appendonly", "no"}, {"bind", the_server.host}, {"databases", "1"}, {"port", port},
        {"proto-max-bulk-len", bulk}, {"save", ""}, {"timeout", timeout}};
    enum { COUNT = sizeof parameters / sizeof parameters[0] };
    bool wanted[COUNT] = {false};
    size_t found = 0;
    for (size_t i = 2; i < argc(c); i++) {
        slice s = arg_of(c, i);
        char pattern[128];
        if (s.length >= sizeof pattern || memchr(s.data, '\0', s.length))
            continue; /* no parameter has such a name */
        memcpy(pattern, s.data, s.length);
        pattern[s.length] = '\0';
        for (size_t k = 0; k < COUNT; k++) {
            if (!wanted[k] && fnmatch(pattern, parameters[k][0], FNM_CASEFOLD) == 0) {
                wanted[k] = true;
                found++;
            }
        }
    }
    reply_map(c, found);
    for (size_t k = 0; k < COUNT; k++) {
        if (wanted[k]) {
            reply_string(c, parameters[k][0]);
            reply_string(c, parameters[k][1]);
        }
    }
}

static void run_info(client *c)
{
    char text[1024];
    int n = snprintf(text, sizeof text,
                     "# Server\r\nserver_name:respd\r\ngosched_version:%s\r\nprocess_id:%d\r\n"
                     "tcp_port:%u\r\nprocs:%d\r\n\r\n"
                     "# Clients\r\nconnected_clients:%d\r\n\r\n"
                     "# Stats\r\ntotal_connections_received:%" PRIu64 "\r\n"
                     "total_commands_processed:%" PRIu64 "\r\n\r\n"
                     "# Keyspace\r\n",
                     gs_version(), (int)getpid(), (unsigned)the_server.port, gs_gomaxprocs(0),
                     (int)the_server.open, (uint64_t)the_server.accepted,
                     (uint64_t)requests + c->served);
    size_t keys = store_count();
    if (keys > 0)
        n += snprintf(text + n, sizeof text - (size_t)n, "db0:keys=%zu,expires=0,avg_ttl=0\r\n", keys);
    if (c->protocol == 3) {
        put_number(c, '=', n + 4);
        put(c, "txt:", 4);
        put(c, text, (size_t)n);
        put(c, "\r\n", 2);
    } else {
        reply_bulk(c, (slice){text, (size_t)n});
    }
}

static void run_command(client *c);

static const command commands[] = {
    {"append", 3, "write denyoom fast", 1, 1, 1, run_append, "string", "Appends to a key's value; its new length."},
    {"client", -2, "noscript loading stale", 0, 0, 0, run_client, "connection", "ID, GETNAME, SETNAME name, SETINFO attribute value."},
    {"command", -1, "loading stale", 0, 0, 0, run_command, "server", "All commands; COUNT, INFO [name ...], DOCS [name ...], LIST."},
    {"config", -2, "admin noscript loading stale", 0, 0, 0, run_config, "server", "GET pattern ...: parameters and their values."},
    {"dbsize", 1, "readonly fast", 0, 0, 0, run_dbsize, "server", "How many keys there are."},
    {"decr", 2, "write denyoom fast", 1, 1, 1, run_decr, "string", "Subtracts 1 from the number under a key."},
    {"decrby", 3, "write denyoom fast", 1, 1, 1, run_decrby, "string", "Subtracts from the number under a key."},
    {"del", -2, "write", 1, -1, 1, run_del, "generic", "Takes keys away; how many there were."},
    {"echo", 2, "loading stale fast", 0, 0, 0, run_echo, "connection", "Gives the message back."},
    {"exists", -2, "readonly fast", 1, -1, 1, run_exists, "generic", "How many of the keys there are."},
    {"flushall", -1, "write", 0, 0, 0, run_flush, "server", "Takes all keys away."},
    {"flushdb", -1, "write", 0, 0, 0, run_flush, "server", "Takes all keys away."},
    {"get", 2, "readonly fast", 1, 1, 1, run_get, "string", "The value under a key."},
    {"getset", 3, "write denyoom fast", 1, 1, 1, run_getset, "string", "Sets a key; the value before."},
    {"hello", -1, "noscript loading stale fast", 0, 0, 0, run_hello, "connection", "[2 | 3 [SETNAME name]]: chooses the protocol, says what server this is."},
    {"incr", 2, "write denyoom fast", 1, 1, 1, run_incr, "string", "Adds 1 to the number under a key."},
    {"incrby", 3, "write denyoom fast", 1, 1, 1, run_incrby, "string", "Adds to the number under a key."},
    {"info", -1, "loading stale", 0, 0, 0, run_info, "server", "The numbers of the server."},
    {"mget", -2, "readonly fast", 1, -1, 1, run_mget, "string", "The values under keys, all of one moment."},
    {"mset", -3, "write denyoom", 1, -1, 2, run_mset, "string", "Sets keys, all at one moment."},
    {"ping", -1, "fast", 0, 0, 0, run_ping, "connection", "[message]: PONG, or the message."},
    {"quit", -1, "noscript loading stale fast", 0, 0, 0, run_quit, "connection", "Ends the connection."},
    {"select", 2, "loading stale fast", 0, 0, 0, run_select, "connection", "Takes the database 0; there is no other."},
    {"set", -3, "write denyoom", 1, 1, 1, run_set, "string", "Sets a key. [NX | XX] [GET]"},
    {"setnx", 3, "write denyoom fast", 1, 1, 1, run_setnx, "string", "Sets a key unless it is there."},
    {"strlen", 2, "readonly fast", 1, 1, 1, run_strlen, "string", "The length of the value under a key."},
};

enum { COMMANDS = sizeof commands / sizeof commands[0], NAME_SLOTS = 128 };

static const command *by_name[NAME_SLOTS];

static size_t slot_of(slice name)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < name.length; i++)
        h = (h ^ ((unsigned char)name.data[i] | 0x20)) * 16777619u;
    return (h ^ h >> 16) & (NAME_SLOTS - 1);
}

static const command *find_command(slice name)
{
    const command *found;
    if (name.length > 16)
        return NULL;
    for (size_t i = slot_of(name); (found = by_name[i]) != NULL; i = (i + 1) & (NAME_SLOTS - 1))
        if (is_word(name, found->name))
            return found;
    return NULL;
}

static void index_commands(void)
{
    for (size_t k = 0; k < COMMANDS; k++) {
        size_t i = slot_of((slice){commands[k].name, strlen(commands[k].name)});
        while (by_name[i])
            i = (i + 1) & (NAME_SLOTS - 1);
        by_name[i] = &commands[k];
    }
}

/* Words that are separated by blanks. RESP3 has sets for them. */
static void reply_words(client *c, const char *words)
{
    size_t n = 1;
    for (const char *p = words; *p; p++)
        n += *p == ' ';
    put_number(c, c->protocol == 3 ? '~' : '*', (int64_t)n);
    for (const char *p = words; *p; p += *p == ' ') {
        size_t length = strcspn(p, " ");
        put(c, "+", 1);
        put(c, p, length);
        put(c, "\r\n", 2);
        p += length;
    }
}

/* As Redis 7 does; but without tips, key specifications and subcommands. */
static void describe(client *c, const command *known)
{
    if (!known) {
        put_text(c, c->protocol == 3 ? "_\r\n" : "*-1\r\n");
        return;
    }
    char categories[64];
    snprintf(categories, sizeof categories, "%s@%s @%s",
             strstr(known->flags, "write") ? "@write " : strstr(known->flags, "readonly") ? "@read " : "",
             strcmp(known->group, "generic") == 0 ? "keyspace" : known->group,
             strstr(known->flags, "fast") ? "fast" : "slow");
    reply_array(c, 10);
    reply_string(c, known->name);
    reply_integer(c, known->arity);
    reply_words(c, known->flags);
    reply_integer(c, known->first);
    reply_integer(c, known->last);
    reply_integer(c, known->step);
    reply_words(c, categories);
    for (int i = 0; i < 3; i++)
        reply_array(c, 0);
}

static void document(client *c, const command *known)
{
    reply_string(c, known->name);
    reply_map(c, 2);
    reply_string(c, "summary");
    reply_string(c, known->summary);
    reply_string(c, "group");
    reply_string(c, known->group);
}

static void run_command(client *c)
{
    if (argc(c) == 1) {
        reply_array(c, COMMANDS);
        for (size_t i = 0; i < COMMANDS; i++)
            describe(c, &commands[i]);
        return;
    }
    slice sub = arg_of(c, 1);
    if (is_word(sub, "count") && argc(c) == 2) {
        reply_integer(c, COMMANDS);
    } else if (is_word(sub, "list") && argc(c) == 2) {
        reply_array(c, COMMANDS);
        for (size_t i = 0; i < COMMANDS; i++)
            reply_string(c, commands[i].name);
    } else if (is_word(sub, "info")) {
        reply_array(c, argc(c) == 2 ? COMMANDS : argc(c) - 2);
        for (size_t i = 0; argc(c) == 2 && i < COMMANDS; i++)
            describe(c, &commands[i]);
        for (size_t i = 2; i < argc(c); i++)
            describe(c, find_command(arg_of(c, i)));
    } else if (is_word(sub, "docs")) {
        size_t known = argc(c) == 2 ? COMMANDS : 0;
        for (size_t i = 2; i < argc(c); i++)
            known += find_command(arg_of(c, i)) != NULL;
        reply_map(c, known);
        for (size_t i = 0; argc(c) == 2 && i < COMMANDS; i++)
            document(c, &commands[i]);
        for (size_t i = 2; i < argc(c); i++) {
            const command *found = find_command(arg_of(c, i));
            if (found)
                document(c, found);
        }
    } else {
        reply_subcommand(c, "command");
    }
}

static void reply_unknown(client *c)
{
    char args[160];
    size_t used = 0;
    args[0] = '\0';
    for (size_t i = 1; i < argc(c) && used < sizeof args - 32; i++) {
        slice s = arg_of(c, i);
        size_t room = sizeof args - used - 8, n = s.length < room ? s.length : room;
        used += (size_t)snprintf(args + used, sizeof args - used, "'%.*s' ", (int)n, s.data);
    }
    slice name = arg_of(c, 0);
    reply_line(c, '-', "ERR unknown command '%.*s', with args beginning with: %s",
               (int)(name.length < 128 ? name.length : 128), name.data, args);
}

static void execute(client *c)
{
    const command *found = find_command(arg_of(c, 0));
    c->served++;
    if (!found)
        reply_unknown(c);
    else if (found->arity < 0 ? argc(c) < (size_t)-found->arity : argc(c) != (size_t)found->arity)
        reply_arity(c, found->name);
    else
        found->run(c);
}

/* Makes room behind what is there, which is less than a request: at the beginning of the buffer, or
 * in another one. False: there is no memory. */
static bool make_room(client *c)
{
    size_t n = c->filled - c->begin, size = c->in_size;
    char *in = c->in;
    if (size > KEEP_MAX && n <= FEW_BYTES / 2) {
        in = c->in_small;
        size = FEW_BYTES;
    } else if (n == size || (c->filled == size && size < BUFFER)) {
        size = size < BUFFER ? BUFFER : 2 * size;
        if ((in = malloc(size)) == NULL)
            return false;
    }
    memmove(in, c->in + c->begin, n);
    if (in != c->in && c->in != c->in_small)
        free(c->in);
    c->in = in;
    c->in_size = size;
    c->filled = n;
    c->begin = 0;
    return true;
}

/* Answers the requests that have come whole. False: the connection is to be ended. */
static bool answer(client *c)
{
    parser *p = &c->parser;
    for (;;) {
        switch (resp_parse(p, c->in + c->begin, c->filled - c->begin)) {
        case RESP_MORE:
            return true;
        case RESP_BAD:
            reply_line(c, '-', "ERR Protocol error: %s", p->error);
            return false;
        case RESP_NO_MEMORY:
            reply_error(c, no_memory);
            return false;
        case RESP_REQUEST:
            if (p->count > 0)
                execute(c);
            c->begin += p->at;
            resp_next(p);
            if (c->failed || c->quits)
                return false;
        }
    }
}

static void serve(connection *connection)
{
    client c;
    c.fd = connection->fd;
    c.failed = c.quits = false;
    c.protocol = 2;
    c.id = ++last_id;
    c.served = 0;
    c.name[0] = '\0';
    c.in = c.in_small;
    c.in_size = FEW_BYTES;
    c.begin = c.filled = c.pending = 0;
    resp_init(&c.parser);
    for (;;) {
        bool goes_on = answer(&c);
        flush(&c);
        if (!goes_on || c.failed)
            break;
        if (!make_room(&c)) {
            reply_error(&c, no_memory);
            flush(&c);
            break;
        }
        ssize_t n = gs_read(c.fd, c.in + c.filled, c.in_size - c.filled, deadline());
        if (n <= 0)
            break;
        c.filled += (size_t)n;
    }
    if (c.in != c.in_small)
        free(c.in);
    resp_free(&c.parser);
    if (!c.failed)
        linger(c.fd);
}

static void greet(const char *address)
{
    const char *port = strrchr(address, ':');
    the_server.port = (uint16_t)strtoul(port + 1, NULL, 10); /* for CONFIG GET and INFO */
    printf("respd: listening on %s\n", address);
}

static void print_requests(void)
{
    printf(", %" PRIu64 " requests, %zu keys", (uint64_t)requests, store_count());
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    the_server = (server){.name = "respd", .host = "127.0.0.1", .port = 6379,
                          .greet = greet, .serve = serve, .print_more = print_requests};
    gs_config config = GS_CONFIG_INIT;
    for (int c; (c = getopt_long(argc, argv, "p:b:P:t:h", longs, NULL)) != -1;) {
        switch (c) {
        case 'p': the_server.port = (uint16_t)number('p', optarg, 0, 65535); break;
        case 'b': the_server.host = optarg; break;
        case 'P': config.gomaxprocs = (uint32_t)number('P', optarg, 1, GS_MAX_PROCS); break;
        case 't': limit_s = number('t', optarg, 0, 1000 * 1000); break;
        case 'h': fputs(help, stdout); return 0;
        default: fprintf(stderr, "Try 'respd --help'.\n"); return 2;
        }
    }
    if (optind < argc)
        misuse("'%s' is not an option", argv[optind]);
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        fail("getrandom", strerror(errno));
    store_init(random);
    index_commands();
    must(gs_init(&config), "start");
    server_run();
    store_clear();
    return 0;
}
