/* gs_attach where AddressSanitizer watches the stacks: it is refused. */
#include "check.h"

/* Also as the first call of the library, which starts the runtime. */
TEST(a_thread_is_not_attached_under_the_sanitizer)
{
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(gs_attach(0), -ENOSYS);
        CHECK(gs_self() == NULL);
        CHECK_EQ(gs_detach(), -EPERM);
    }
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_attach(GS_SPAWN_NOSIGNAL), -ENOSYS);
}
