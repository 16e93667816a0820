/* Times: see times.h. */
#include "times.h"

gs_deadline after(int64_t ns)
{
    int64_t now = gs_now(), end;
    if (ns < 0 || __builtin_add_overflow(now, ns, &end))
        return GS_FOREVER;
    return end > 0 ? end : 1;
}

gs_deadline deadline_on(clockid_t clock, const struct timespec *t)
{
    struct timespec now;
    int64_t left;
    if (clock_gettime(clock, &now) != 0)
        return GS_FOREVER;
    if (t->tv_sec < 0)
        return 1; /* long ago */
    left = ns_of(t) == INT64_MAX ? INT64_MAX : ns_of(t) - ns_of(&now);
    return left <= 0 ? 1 : after(left);
}

struct timespec time_left(gs_deadline deadline)
{
    int64_t left = deadline == GS_FOREVER ? INT64_MAX : deadline - gs_now();
    if (left < 0)
        left = 0;
    return (struct timespec){.tv_sec = left / NS_PER_S, .tv_nsec = left % NS_PER_S};
}
