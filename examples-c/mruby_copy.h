/*
 * mruby_copy.h: Ruby values as bytes outside of any interpreter, for mruby.c.
 *
 * The including file defines free_chan, which gives a reference to a channel back.
 */
#ifndef MRUBY_COPY_H
#define MRUBY_COPY_H

#include <gosched.h>
#include <mruby.h>
#include <mruby/array.h>
#include <mruby/class.h>
#include <mruby/data.h>
#include <mruby/hash.h>
#include <mruby/string.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void no_memory(void)
{
    fputs("mruby: no memory\n", stderr);
    _exit(1);
}

/* ---- Values outside of any state ---- */

/* A value in bytes: for each a letter, then what the letter calls for. */
struct message {
    char *bytes;
    size_t n, room;
};

struct chan {
    gs_chan *ch; /* of struct message */
    int refs;    /* Ruby objects, and messages that mention it */
};

static void free_chan(mrb_state *mrb, void *chan);
static const struct mrb_data_type chan_type = {"Chan", free_chan};

/* ---- Copying a value: first whether it can be copied, then into a message, then out of it ---- */

struct walk {
    mrb_state *mrb;
    struct message *m; /* NULL: only look */
    int depth;
    const char *why_not;
};

static void put(struct message *m, const void *bytes, size_t n)
{
    if (m->n + n > m->room) {
        m->room = 2 * m->room + n + 64;
        if ((m->bytes = realloc(m->bytes, m->room)) == NULL)
            no_memory();
    }
    memcpy(m->bytes + m->n, bytes, n);
    m->n += n;
}

static void put_word(struct walk *w, char letter, const void *word, const void *rest, size_t n)
{
    if (w->m != NULL) {
        put(w->m, &letter, 1);
        put(w->m, word, 8);
        put(w->m, rest, n);
    }
}

static void walk(struct walk *w, mrb_value v);

static int walk_pair(mrb_state *mrb, mrb_value key, mrb_value value, void *w)
{
    (void)mrb;
    walk(w, key);
    walk(w, value);
    return 0;
}

static void walk(struct walk *w, mrb_value v)
{
    struct chan *c = mrb_data_check_get_ptr(w->mrb, v, &chan_type);
    int64_t n;
    if (++w->depth > 100) {
        w->why_not = "it is nested more than 100 deep, or holds itself";
    } else if (mrb_nil_p(v) || mrb_false_p(v) || mrb_true_p(v)) {
        if (w->m != NULL)
            put(w->m, mrb_nil_p(v) ? "n" : mrb_true_p(v) ? "t" : "f", 1);
    } else if (mrb_integer_p(v)) {
        n = mrb_integer(v);
        put_word(w, 'i', &n, "", 0);
    } else if (mrb_float_p(v)) {
        double d = mrb_float(v);
        put_word(w, 'd', &d, "", 0);
    } else if (mrb_string_p(v)) {
        n = RSTRING_LEN(v);
        put_word(w, 's', &n, RSTRING_PTR(v), (size_t)n);
    } else if (mrb_symbol_p(v)) {
        mrb_int len;
        const char *name = mrb_sym_name_len(w->mrb, mrb_symbol(v), &len);
        n = len;
        put_word(w, 'y', &n, name, (size_t)n);
    } else if (mrb_array_p(v)) {
        n = RARRAY_LEN(v);
        put_word(w, 'a', &n, "", 0);
        for (mrb_int i = 0; i < n && w->why_not == NULL; i++)
            walk(w, RARRAY_PTR(v)[i]);
    } else if (mrb_hash_p(v)) {
        n = mrb_hash_size(w->mrb, v);
        put_word(w, 'h', &n, "", 0);
        mrb_hash_foreach(w->mrb, mrb_hash_ptr(v), walk_pair, w);
    } else if (c != NULL) {
        if (w->m != NULL)
            __atomic_add_fetch(&c->refs, 1, __ATOMIC_RELAXED);
        put_word(w, 'c', &c, "", 0);
    } else {
        w->why_not = "objects of this class stay in their goroutine";
    }
    w->depth--;
}

static const char *why_not(mrb_state *mrb, mrb_value v)
{
    struct walk w = {mrb, NULL, 0, NULL};
    walk(&w, v);
    return w.why_not;
}

/* Raises a TypeError, before anything is copied, if the value can't be. */
static struct message message_of(mrb_state *mrb, mrb_value v)
{
    struct message m = {0};
    struct walk w = {mrb, &m, 0, NULL};
    const char *why = why_not(mrb, v);
    if (why != NULL)
        mrb_raisef(mrb, E_TYPE_ERROR, "%s can't be copied: %s", mrb_obj_classname(mrb, v), why);
    walk(&w, v);
    return m;
}

/* Reads one value; mrb NULL: only gives back what the message has references to. */
static mrb_value value_at(mrb_state *mrb, const char **at)
{
    mrb_value v = mrb_nil_value();
    int arena = mrb != NULL ? mrb_gc_arena_save(mrb) : 0;
    char letter = *(*at)++;
    union { int64_t n; double d; struct chan *c; } word = {0};
    if (strchr("ntf", letter) == NULL) {
        memcpy(&word, *at, 8);
        *at += 8;
    }
    if (mrb != NULL)
        v = letter == 't' ? mrb_true_value() : letter == 'f' ? mrb_false_value()
            : letter == 'i' ? mrb_int_value(mrb, word.n) : letter == 'd' ? mrb_float_value(mrb, word.d)
            : letter == 's' ? mrb_str_new(mrb, *at, word.n)
            : letter == 'y' ? mrb_symbol_value(mrb_intern(mrb, *at, (size_t)word.n))
            : letter == 'a' ? mrb_ary_new_capa(mrb, word.n) : letter == 'h' ? mrb_hash_new(mrb)
            : letter == 'c' ? mrb_obj_value(mrb_data_object_alloc(mrb, mrb_class_get(mrb, "Chan"), word.c, &chan_type)) : v;
    else if (letter == 'c')
        free_chan(NULL, word.c);
    if (letter == 's' || letter == 'y')
        *at += word.n;
    for (int64_t i = 0; i < word.n && (letter == 'a' || letter == 'h'); i++) {
        mrb_value first = value_at(mrb, at), second = letter == 'h' ? value_at(mrb, at) : first;
        if (mrb != NULL && letter == 'a')
            mrb_ary_push(mrb, v, first);
        else if (mrb != NULL)
            mrb_hash_set(mrb, v, first, second);
    }
    if (mrb != NULL) {
        mrb_gc_arena_restore(mrb, arena);
        mrb_gc_protect(mrb, v);
    }
    return v;
}

/* The value, or GoError, of a message, which is freed. */
static mrb_value take_value(mrb_state *mrb, struct message m)
{
    bool failed = m.bytes[0] == 'e';
    const char *at = m.bytes + failed;
    mrb_value v = value_at(mrb, &at);
    free(m.bytes);
    if (failed && mrb != NULL)
        mrb_raisef(mrb, mrb_class_get(mrb, "GoError"), "%v", v);
    return v;
}

#endif
