/* What hwloc wants and the wheel's libgosched.so.1 can do without; see build.rs. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdio.h>

/* libudev tells hwloc the vendors of disks. A library without it is a case that hwloc provides for:
   udev_new fails, and nothing else is called. */
void *udev_new(void) { return NULL; }
void *udev_unref(void *udev) { (void)udev; return NULL; }
void *udev_device_unref(void *device) { (void)device; return NULL; }

void *udev_device_new_from_subsystem_sysname(void *udev, const char *subsystem, const char *name)
{
    (void)udev, (void)subsystem, (void)name;
    return NULL;
}

const char *udev_device_get_property_value(void *device, const char *key)
{
    (void)device, (void)key;
    return NULL;
}

/* libc's data under the names that build.rs gives them within hwloc. */
__attribute__((visibility("hidden"))) FILE *gosched_stderr;
__attribute__((visibility("hidden"))) FILE *gosched_stdout;
__attribute__((visibility("hidden"))) char *gosched_program_invocation_name;

__attribute__((constructor)) static void take_data(void)
{
    gosched_stderr = stderr;
    gosched_stdout = stdout;
    gosched_program_invocation_name = program_invocation_name;
}
