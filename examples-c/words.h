/*
 * words.h: the table of words and counts that wordcount.c uses. Nothing here knows of goroutines.
 *
 * A hash table with open addressing. A table of zero bytes is empty and ready for use.
 */
#ifndef WORDS_H
#define WORDS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct word { char *text; uint64_t hash, count; } word; /* without text: a free slot */
typedef struct table { word *slots; size_t used, size; } table; /* size: 0 or a power of two */

static bool is_letter(char c)
{
    return (unsigned char)((c | 0x20) - 'a') < 26;
}

static void *or_die(void *p)
{
    if (!p) {
        fprintf(stderr, "wordcount: out of memory\n");
        exit(1);
    }
    return p;
}

/* The word's slot, or the free one where it belongs. */
static word *table_find(const table *t, const char *text, size_t len, uint64_t hash)
{
    for (uint64_t i = hash;; i++) {
        word *w = &t->slots[i & (t->size - 1)];
        if (!w->text ||
            (w->hash == hash && strncmp(w->text, text, len) == 0 && w->text[len] == '\0'))
            return w;
    }
}

/* Makes sure that a slot is free: a table is never more than two thirds full. */
static void table_reserve(table *t)
{
    if (3 * (t->used + 1) <= 2 * t->size)
        return;
    table old = *t;
    t->size = old.size ? 2 * old.size : 1024;
    t->slots = or_die(calloc(t->size, sizeof *t->slots));
    for (size_t i = 0; i < old.size; i++) {
        word *w = &old.slots[i];
        if (w->text)
            *table_find(t, w->text, strlen(w->text), w->hash) = *w;
    }
    free(old.slots);
}

static void table_add(table *t, const char *text, size_t len, uint64_t hash)
{
    table_reserve(t);
    word *w = table_find(t, text, len, hash);
    if (!w->text) {
        *w = (word){or_die(strndup(text, len)), hash, 0};
        t->used++;
    }
    w->count++;
}

/* Counts the words of a text, which it makes lower case in place, and gives their number. */
static uint64_t table_count(table *t, char *text, size_t len)
{
    uint64_t words = 0;
    for (char *p = text, *end = p + len; p < end; p++) {
        char *start = p;
        uint64_t hash = 14695981039346656037u; /* FNV-1a */
        for (; p < end && is_letter(*p); p++) {
            *p |= 0x20; /* lower case */
            hash = (hash ^ (unsigned char)*p) * 1099511628211u;
        }
        if (p > start) {
            table_add(t, start, (size_t)(p - start), hash);
            words++;
        }
    }
    return words;
}

/* Moves what is in `from` into `to`. */
static void table_merge(table *to, table *from)
{
    for (size_t i = 0; i < from->size; i++) {
        word *w = &from->slots[i];
        if (!w->text)
            continue;
        table_reserve(to);
        word *sum = table_find(to, w->text, strlen(w->text), w->hash);
        if (sum->text) {
            sum->count += w->count;
            free(w->text);
        } else {
            *sum = *w;
            to->used++;
        }
    }
    free(from->slots);
    *from = (table){0};
}

/* The most frequent first, words that are equally frequent by their letters. */
static int by_count(const void *left, const void *right)
{
    const word *a = left, *b = right;
    return a->count != b->count ? (a->count < b->count) - (a->count > b->count)
                                : strcmp(a->text, b->text);
}

/* Sorts the words to the front; the table is a plain array of `used` words after that. */
static void table_sort(table *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->size; i++)
        if (t->slots[i].text)
            t->slots[n++] = t->slots[i];
    if (n > 0)
        qsort(t->slots, n, sizeof *t->slots, by_count);
}

static void table_free(table *sorted)
{
    for (size_t i = 0; i < sorted->used; i++)
        free(sorted->slots[i].text);
    free(sorted->slots);
}

#endif
