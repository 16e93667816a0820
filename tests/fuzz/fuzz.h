/*
 * What the harnesses share: the input's bytes one after the other, and failures, which libFuzzer sees as crashes.
 * FUZZ_SAY=1 prints what a harness does.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <errno.h>
#include <gosched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const uint8_t *input_at, *input_end;

static inline void input_begin(const uint8_t *data, size_t n)
{
    input_at = data;
    input_end = data + n;
}

static inline size_t input_left(void)
{
    return (size_t)(input_end - input_at);
}

/* The next byte; 0 behind the end. */
static inline int input_byte(void)
{
    return input_at < input_end ? *input_at++ : 0;
}

__attribute__((format(printf, 1, 2))) static inline void fuzz_say(const char *format, ...)
{
    static int says = -1;
    if (says < 0)
        says = getenv("FUZZ_SAY") != NULL;
    if (!says)
        return;
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

#define FAIL(...) \
    do { \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
        fprintf(stderr, __VA_ARGS__); \
        fputc('\n', stderr); \
        abort(); \
    } while (0)

#define CHECK(holds) \
    do { \
        if (!(holds)) \
            FAIL("not so: %s", #holds); \
    } while (0)

#endif
