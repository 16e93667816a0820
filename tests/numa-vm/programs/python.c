/*
 * Code in Python has the CPUs of its process in goroutines, in calls of `blocking` and in what these start, while other
 * threads of the library are bound to nodes.
 * uses: python
 */
#include "lab.h"

TEST(python_code_and_what_it_starts_may_run_on_all_cpus)
{
    must_run("python3 /lab/python/affinity.py");
}

TEST(so_it_may_under_patch_all)
{
    must_run("python3 -m gosched /lab/python/affinity.py");
}

TEST(it_keeps_a_mask_that_the_process_was_given)
{
    must_run("taskset 0x36 python3 /lab/python/affinity.py"); /* parts of three nodes */
}
