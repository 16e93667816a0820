/* System calls, errno, and copying what a program points to. */
#include "base.h"

int *errno_here(void)
{
    return __errno_location();
}

/* The number of the system call is the first argument; its own sixth argument is on the stack. */
__asm__(".text\n"
        ".hidden raw_syscall\n"
        ".globl raw_syscall\n"
        ".type raw_syscall, @function\n"
        "raw_syscall:\n"
        "    .cfi_startproc\n"
        "    mov %rdi, %rax\n"
        "    mov %rsi, %rdi\n"
        "    mov %rdx, %rsi\n"
        "    mov %rcx, %rdx\n"
        "    mov %r8, %r10\n"
        "    mov %r9, %r8\n"
        "    mov 8(%rsp), %r9\n"
        "    syscall\n"
        "    cmp $-4095, %rax\n"
        "    jae 1f\n"
        "    ret\n"
        "1:  mov %eax, %edi\n"
        "    jmp fail_syscall\n"
        "    .cfi_endproc\n"
        ".size raw_syscall, . - raw_syscall\n");

__attribute__((used)) static long fail_syscall(int result)
{
    return failed(-result);
}

bool copy_in_several(const struct iovec *to, const struct iovec *from, int n)
{
    ssize_t all = 0;
    for (int i = 0; i < n; i++)
        all += (ssize_t)to[i].iov_len;
    ssize_t done = process_vm_readv(getpid(), to, (unsigned long)n, from, (unsigned long)n, 0);
    if (done >= 0 || errno == EFAULT)
        return done == all;
    for (int i = 0; i < n; i++) /* a filter of system calls refuses this one */
        memcpy(to[i].iov_base, from[i].iov_base, to[i].iov_len);
    return true;
}

bool copy_in(void *to, const void *from, size_t n)
{
    return copy_in_several(&(struct iovec){to, n}, &(struct iovec){(void *)from, n}, 1);
}
