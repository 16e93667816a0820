/* In the child of a goroutine that forks, the child's thread uses that goroutine's stack, not the thread's own. */
#include "check.h"

static void count(void *n)
{
    ADD(*(int *)n, 1);
}

static void check_exit(pid_t pid)
{
    int status;
    CHECK(pid > 0);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

static void *fork_and_return(void *pid)
{
    *(pid_t *)pid = fork();
    return NULL;
}

static bool others_sleep(void)
{
    DIR *dir = opendir("/proc/self/task");
    struct dirent *e;
    bool all = true;
    CHECK(dir != NULL);
    while ((e = readdir(dir)) != NULL) {
        pid_t tid = atoi(e->d_name);
        char state = tid == 0 || tid == thread_id() ? 'S' : thread_state(tid);
        all = all && (state == 'S' || state == 0);
    }
    closedir(dir);
    return all;
}

/*
 * Forks on the goroutine's own stack, or within gs_blocking. AddressSanitizer's heap has locks that a thread takes when
 * it begins, and that nothing holds across a fork: the child would wait for them for ever. So no thread begins then.
 */
static pid_t fork_here(bool in_blocking)
{
    pid_t pid;
    int seen = 0;
    while (seen < 5)
        seen = others_sleep() ? seen + 1 : 0;
    if (!in_blocking)
        return fork();
    (void)gs_blocking(fork_and_return, &pid);
    return pid;
}

static bool yes = true, no = false;

static void see_self(const gs_g_info *info, void *found)
{
    if (info->stack_lo <= found && found < info->stack_hi)
        *(int *)found = 1;
}

static void fork_and_attach(void *in_blocking)
{
    pid_t pid = fork_here(*(bool *)in_blocking);
    if (pid == 0) {
        int found = 0;
        CHECK_EQ(gs_attach(0), 0);
        CHECK_EQ(gs_stop_the_world(), 0);
        CHECK_EQ(gs_foreach_g(see_self, &found), 0);
        CHECK_EQ(gs_start_the_world(), 0);
        CHECK_EQ(found, 1);
        CHECK_EQ(gs_detach(), 0);
        _exit(0);
    }
    check_exit(pid);
}

TEST(the_child_shows_its_stack_once_it_is_attached)
{
    if (gs_attach(0) == -ENOSYS)
        SKIP("a sanitizer watches the stacks");
    CHECK_EQ(gs_detach(), 0);
    CHECK_EQ(gs_run(fork_and_attach, &no), 0);
    join(go_ref(fork_and_attach, &no));
    join(go_ref(fork_and_attach, &yes));
}

static void fork_and_run(void *in_blocking)
{
    pid_t pid = fork_here(*(bool *)in_blocking);
    if (pid == 0) {
        int n = 0;
        CHECK_EQ(gs_run(count, &n), 0);
        CHECK_EQ(n, 1);
        _exit(0);
    }
    check_exit(pid);
}

CHILD(fork_and_run_in_the_child)
{
    CHECK_EQ(gs_run(fork_and_run, &no), 0);
    join(go_ref(fork_and_run, &no));
    join(go_ref(fork_and_run, &yes));
}

/* AddressSanitizer writes a warning where it takes another stack for the thread's. */
TEST(the_child_runs_goroutines_and_a_sanitizer_has_no_complaint)
{
    struct outcome out;
    run_child("fork_and_run_in_the_child", &out);
    if (out.status != 0 || strstr(out.text, "ASan") || strstr(out.text, "AddressSanitizer"))
        failed(__FILE__, __LINE__, "the outcome of the child", out.text);
}
