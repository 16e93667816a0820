/* The functions that would be called without this library: mostly libc's. */

#ifndef GOSCHED_PRELOAD_REAL_H
#define GOSCHED_PRELOAD_REAL_H

#include "base.h"

#include <aio.h>
#include <fcntl.h>
#include <link.h>
#include <mqueue.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <threads.h>
#include <time.h>
#include <wchar.h>
#undef fread_unlocked
#undef fwrite_unlocked

struct real {
#define F(result, name, params, args) result(*name) params;
#define R F
#define V F
#include "functions.h"
#undef F
#undef R
#undef V
};
extern struct real real;
/* Finds libc's functions, if they haven't been found yet. */
void find_all(void);
/* The default version of a function that an object defines, or NULL. Calls no dlsym, and so no malloc. */
void *defined_in(const struct dl_phdr_info *object, const char *name);

#endif
