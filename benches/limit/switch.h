/* A context switch by hand, with nothing that can be left out: it saves the registers that a function must keep. */
#ifndef SWITCH_H
#define SWITCH_H

/* A context at rest is its stack pointer. Stores the running one in *save and goes on with `to`. */
void switch_to(void **save, void *to);

/* A context that calls f(arg) on the stack that ends at top. f must not return. */
void *switch_prepare(void *top, void (*f)(void *arg), void *arg);

#endif
