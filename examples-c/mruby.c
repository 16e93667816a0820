/*
 * mruby.c: Ruby scripts with goroutines, on mruby 3.1. Each goroutine has an interpreter of its own (an mrb_state), so
 * Ruby runs on all P's at the same time; what goes over channels is copied. mruby_copy.h does that;
 * docs/embedding-ruby.md leads through both.
 *
 *     mruby SCRIPT [ARGUMENT...]
 *
 * The script defines methods, and a method main(*arguments), which is called. Every goroutine loads the definitions anew.
 *
 *     go(:name, *arguments)     calls a method in a goroutine; gives a channel for what the method returns
 *     Chan.new(capacity = 0)    a channel
 *     ch.put(value)             ClosedError if it is closed
 *     ch.take                   the next value; nil once it is closed and empty; GoError if the goroutine
 *                               whose value it is for has ended with an exception
 *     ch.each { |value| ... }   until it is closed and empty
 *     ch.close
 *     sleep(seconds)
 *
 * Values are nil, true, false, numbers, strings, symbols, channels, and arrays and hashes of these. An exception that
 * nothing rescues ends its goroutine only.
 */
#define _POSIX_C_SOURCE 200809L
#include <gosched.h>
#include <mruby.h>
#include <mruby/array.h>
#include <mruby/class.h>
#include <mruby/compile.h>
#include <mruby/data.h>
#include <mruby/dump.h>
#include <mruby/error.h>
#include <mruby/hash.h>
#include <mruby/irep.h>
#include <mruby/proc.h>
#include <mruby/string.h>
#include "mruby_copy.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Chan ---- */

static void free_chan(mrb_state *mrb, void *chan)
{
    struct chan *c = chan;
    struct message m;
    (void)mrb;
    if (c == NULL || __atomic_sub_fetch(&c->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    while (gs_chan_recv(c->ch, &m, GS_NOWAIT) == 0)
        take_value(NULL, m);
    gs_chan_free(c->ch);
    free(c);
}

static struct chan *new_chan(size_t capacity)
{
    struct chan *c = calloc(1, sizeof *c);
    if (c != NULL && (c->ch = gs_chan_make(sizeof(struct message), capacity)) != NULL) {
        c->refs = 1;
        return c;
    }
    free(c);
    return NULL;
}

static mrb_value chan_init(mrb_state *mrb, mrb_value self)
{
    mrb_int capacity = 0;
    struct chan *c;
    mrb_get_args(mrb, "|i", &capacity);
    if (capacity < 0 || (c = new_chan((size_t)capacity)) == NULL)
        mrb_raise(mrb, E_ARGUMENT_ERROR, "a channel's capacity is 0 or more, and not more than there is memory for");
    mrb_data_init(self, c, &chan_type);
    return self;
}

static gs_chan *chan_of(mrb_state *mrb, mrb_value self)
{
    struct chan *c = mrb_data_get_ptr(mrb, self, &chan_type); /* raises for what Chan.new hasn't made */
    return c->ch;
}

static mrb_value chan_put(mrb_state *mrb, mrb_value self)
{
    gs_chan *ch = chan_of(mrb, self);
    struct message m;
    mrb_value v;
    mrb_get_args(mrb, "o", &v);
    m = message_of(mrb, v);
    if (gs_chan_send(ch, &m, GS_FOREVER) < 0) { /* parks; the goroutine may resume on another thread */
        take_value(NULL, m);
        mrb_raise(mrb, mrb_class_get(mrb, "ClosedError"), "put on a closed channel");
    }
    return self;
}

static mrb_value chan_take(mrb_state *mrb, mrb_value self)
{
    struct message m;
    return gs_chan_recv(chan_of(mrb, self), &m, GS_FOREVER) < 0 ? mrb_nil_value() : take_value(mrb, m);
}

static mrb_value chan_each(mrb_state *mrb, mrb_value self)
{
    mrb_value block;
    struct message m;
    int arena = mrb_gc_arena_save(mrb);
    mrb_get_args(mrb, "&!", &block);
    while (gs_chan_recv(chan_of(mrb, self), &m, GS_FOREVER) == 0) {
        mrb_yield(mrb, block, take_value(mrb, m));
        mrb_gc_arena_restore(mrb, arena);
    }
    return self;
}

static mrb_value chan_close(mrb_state *mrb, mrb_value self)
{
    if (gs_chan_close(chan_of(mrb, self)) < 0)
        mrb_raise(mrb, mrb_class_get(mrb, "ClosedError"), "the channel is closed already");
    return self;
}

/* ---- Goroutines ---- */

static uint8_t *program; /* the script as bytecode: read once, loaded into each state */
static size_t program_size;
static gs_mutex reports; /* keeps the lines of one on standard error together */

struct task {
    struct message call; /* the method's name and the arguments */
    struct chan *result;
};

static mrb_state *open_state(void);

/* Within mrb_protect_error: loads the definitions, and calls the method. */
static mrb_value call_method(mrb_state *mrb, void *call)
{
    mrb_value c = take_value(mrb, *(struct message *)call);
    mrb_load_irep_buf(mrb, program, program_size);
    if (mrb->exc != NULL)
        mrb_exc_raise(mrb, mrb_obj_value(mrb->exc));
    return mrb_funcall_argv(mrb, mrb_top_self(mrb), mrb_symbol(RARRAY_PTR(c)[0]), RARRAY_LEN(c) - 1, RARRAY_PTR(c) + 1);
}

static void run_task(void *arg)
{
    struct task *t = arg;
    struct message m = {0};
    struct walk w = {NULL, &m, 0, NULL};
    mrb_bool failed = FALSE;
    mrb_value v;
    if ((w.mrb = open_state()) == NULL)
        no_memory();
    v = mrb_protect_error(w.mrb, call_method, &t->call, &failed);
    if (failed) {
        gs_mutex_lock(&reports, GS_FOREVER);
        w.mrb->exc = mrb_obj_ptr(v);
        mrb_print_error(w.mrb);
        gs_mutex_unlock(&reports);
        v = mrb_format(w.mrb, "%v (%s)", v, mrb_obj_classname(w.mrb, v));
        put(&m, "e", 1);
    }
    walk(&w, why_not(w.mrb, v) == NULL ? v : mrb_nil_value());
    gs_chan_send(t->result->ch, &m, GS_FOREVER);
    gs_chan_close(t->result->ch);
    mrb_close(w.mrb);
    free_chan(NULL, t->result);
    free(t);
}

/* The channel for the result, with a reference for the caller. */
static struct chan *start(struct message call)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    struct task *t = calloc(1, sizeof *t);
    opts.stack_size = 1 << 20; /* Ruby calls that go through C nest on it */
    if (t == NULL || (t->result = new_chan(1)) == NULL)
        no_memory();
    t->call = call;
    t->result->refs = 2;
    if (gs_spawn_with(run_task, t, &opts, NULL) < 0)
        no_memory();
    return t->result;
}

static mrb_value ruby_go(mrb_state *mrb, mrb_value self)
{
    const mrb_value *args;
    mrb_int n;
    struct RData *object;
    (void)self;
    mrb_get_args(mrb, "*", &args, &n);
    if (n == 0 || !mrb_symbol_p(args[0]))
        mrb_raise(mrb, E_TYPE_ERROR, "go takes the name of a method as a symbol, and its arguments");
    object = mrb_data_object_alloc(mrb, mrb_class_get(mrb, "Chan"), NULL, &chan_type);
    object->data = start(message_of(mrb, mrb_ary_new_from_values(mrb, n, args)));
    return mrb_obj_value(object);
}

static mrb_value ruby_sleep(mrb_state *mrb, mrb_value self)
{
    mrb_float s;
    mrb_get_args(mrb, "f", &s);
    if (!(s >= 0 && s < 1e9))
        mrb_raise(mrb, E_ARGUMENT_ERROR, "sleep takes a time in seconds, 0 or more");
    gs_sleep((gs_duration)(s * 1e9));
    return self;
}

static mrb_state *open_state(void)
{
    mrb_state *mrb = mrb_open();
    struct RClass *chan;
    if (mrb == NULL)
        return NULL;
    chan = mrb_define_class(mrb, "Chan", mrb->object_class);
    MRB_SET_INSTANCE_TT(chan, MRB_TT_DATA);
    mrb_define_method(mrb, chan, "initialize", chan_init, MRB_ARGS_OPT(1));
    mrb_define_method(mrb, chan, "put", chan_put, MRB_ARGS_REQ(1));
    mrb_define_method(mrb, chan, "take", chan_take, MRB_ARGS_NONE());
    mrb_define_method(mrb, chan, "each", chan_each, MRB_ARGS_BLOCK());
    mrb_define_method(mrb, chan, "close", chan_close, MRB_ARGS_NONE());
    mrb_define_class(mrb, "ClosedError", mrb->eStandardError_class);
    mrb_define_class(mrb, "GoError", mrb->eStandardError_class);
    mrb_define_method(mrb, mrb->kernel_module, "go", ruby_go, MRB_ARGS_ANY());
    mrb_define_method(mrb, mrb->kernel_module, "sleep", ruby_sleep, MRB_ARGS_REQ(1));
    return mrb;
}

/* ---- The script ---- */

static void read_script(const char *name)
{
    mrb_state *mrb = mrb_open();
    mrbc_context *context = mrbc_context_new(mrb);
    struct mrb_parser_state *parsed;
    FILE *f = fopen(name, "r");
    if (f == NULL) {
        fprintf(stderr, "mruby: %s: %s\n", name, strerror(errno));
        exit(1);
    }
    mrbc_filename(mrb, context, name);
    parsed = mrb_parse_file(mrb, f, context); /* it says what is wrong */
    if (parsed == NULL || parsed->nerr > 0)
        exit(1);
    mrb_dump_irep(mrb, mrb_generate_code(mrb, parsed)->body.irep, MRB_DUMP_DEBUG_INFO, &program, &program_size);
    fclose(f);
}

static void go_main(void *call)
{
    struct message m;
    gs_chan_recv(start(*(struct message *)call)->ch, &m, GS_FOREVER);
    fflush(stdout);
    _exit(m.bytes[0] == 'e'); /* as in Go: others don't keep the program */
}

int main(int argc, char **argv)
{
    struct message call = {0};
    struct walk w = {NULL, &call, 0, NULL};
    int64_t n = argc - 1;
    if (argc < 2 || argv[1][0] == '-') {
        fprintf(stderr, "usage: mruby SCRIPT [ARGUMENT...]\n");
        return 2;
    }
    read_script(argv[1]);
    put_word(&w, 'a', &n, "", 0);
    for (int i = 1; i <= n; i++) {
        const char *s = i == 1 ? "main" : argv[i];
        int64_t len = (int64_t)strlen(s);
        put_word(&w, i == 1 ? 'y' : 's', &len, s, (size_t)len);
    }
    return gs_run(go_main, &call) < 0;
}
