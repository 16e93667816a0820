/* How late things were: for programs that have a report() of their own. */
#ifndef LATE_H
#define LATE_H

#include <stdint.h>
#include <stdlib.h>

void report(const char *figure, double value, const char *unit);

static inline int smaller_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The median and the 99th percentile, in units of unit_ns. */
static inline void report_late(int64_t *late, int64_t n, const char *p50, const char *p99, double unit_ns, const char *unit)
{
    qsort(late, (size_t)n, sizeof *late, smaller_first);
    report(p50, (double)late[n / 2] / unit_ns, unit);
    report(p99, (double)late[n * 99 / 100] / unit_ns, unit);
}

#endif
