/* Times: deadlines on CLOCK_MONOTONIC in ns, as libgosched's. */

#ifndef GOSCHED_PRELOAD_TIMES_H
#define GOSCHED_PRELOAD_TIMES_H

#include "base.h"

#include <time.h>

#define NS_PER_S INT64_C(1000000000)
static inline bool is_time(const struct timespec *t)
{
    return t->tv_sec >= 0 && (uint64_t)t->tv_nsec < (uint64_t)NS_PER_S;
}
/* The time in ns, or the largest number if the time is longer. */
static inline int64_t ns_of(const struct timespec *t)
{
    return t->tv_sec >= INT64_MAX / NS_PER_S ? INT64_MAX : t->tv_sec * NS_PER_S + t->tv_nsec;
}
/* The deadline `ns` nanoseconds from now. */
gs_deadline after(int64_t ns);
/* The deadline for an absolute time on a clock; for CLOCK_REALTIME by its current setting. */
gs_deadline deadline_on(clockid_t clock, const struct timespec *t);
/* The time left until the deadline. */
struct timespec time_left(gs_deadline deadline);

#endif
