/* What a walk over the frames of a goroutine that runs Python code needs of each frame. The goroutine may be running: all
   of its memory is read by a function that fails if there is none. */
#ifndef GOSCHED_PLACE_H
#define GOSCHED_PLACE_H

/* Copies size bytes from `from`. 0, or -1: they can't be read. */
typedef int cpython_reader(void *to, const void *from, size_t size);

/* Where a frame is. */
struct cpython_place {
    const void *previous; /* the caller's frame; NULL: none */
    const void *code;     /* a code object, or another object if the frame is hidden */
    int lasti;            /* the index of the instruction, in bytes */
    int is_hidden;        /* whether it is no call of a Python function */
};

#endif
