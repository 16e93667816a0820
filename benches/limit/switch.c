#include "switch.h"

#include <stdint.h>

/* Both end in a jump and not in a return: the processor would expect the caller of this switch, not of the other. */
#if defined __x86_64__

__asm__(".text\n"
        ".globl switch_to\n"
        ".type switch_to, @function\n"
        "switch_to:\n"
        "    push %rbp\n"
        "    push %rbx\n"
        "    push %r12\n"
        "    push %r13\n"
        "    push %r14\n"
        "    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n"
        "    pop %r14\n"
        "    pop %r13\n"
        "    pop %r12\n"
        "    pop %rbx\n"
        "    pop %rbp\n"
        "    pop %rcx\n"
        "    jmp *%rcx\n"
        ".size switch_to, . - switch_to\n"
        ".globl switch_first\n"
        ".hidden switch_first\n"
        "switch_first:\n"
        "    mov %rbx, %rdi\n"
        "    call *%rbp\n"
        "    ud2\n");

enum { WORDS = 7, FUNCTION = 5, ARGUMENT = 4, START = 6 };

#elif defined __aarch64__

__asm__(".text\n"
        ".globl switch_to\n"
        ".type switch_to, %function\n"
        "switch_to:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    br x30\n"
        ".size switch_to, . - switch_to\n"
        ".globl switch_first\n"
        ".hidden switch_first\n"
        "switch_first:\n"
        "    mov x0, x19\n"
        "    blr x20\n"
        "    brk #0\n");

enum { WORDS = 20, FUNCTION = 1, ARGUMENT = 0, START = 11 };

#else
#error "no switch for this processor"
#endif

extern char switch_first[] __attribute__((visibility("hidden")));

void *switch_prepare(void *top, void (*f)(void *arg), void *arg)
{
    uintptr_t *frame = (uintptr_t *)((uintptr_t)top & ~(uintptr_t)15) - WORDS;

    for (int i = 0; i < WORDS; i++)
        frame[i] = 0;
    frame[FUNCTION] = (uintptr_t)f;
    frame[ARGUMENT] = (uintptr_t)arg;
    frame[START] = (uintptr_t)switch_first;
    return frame;
}
