/*
 * Compiles if the structs and constants of gosched.h are as layouts.h says: as C11, and as C++11, by any compiler for a
 * CPU of 64 bits. It needs neither the library nor a C library's headers for the CPU, apart from those that gosched.h
 * includes.
 */
#include <gosched.h>

#ifdef __cplusplus
#define ASSERT(holds, text) static_assert(holds, text)
#define ALIGNMENT(type) alignof(type)
#else
#define ASSERT(holds, text) _Static_assert(holds, text)
#define ALIGNMENT(type) _Alignof(type)
#endif

#define STRUCT(name, size, alignment) \
    ASSERT(sizeof(name) == size, #name ": its size"); \
    ASSERT(ALIGNMENT(name) == alignment, #name ": its alignment");
#define FIELD(name, field, offset, size) \
    ASSERT(offsetof(name, field) == offset, #name ": where " #field " is"); \
    ASSERT(sizeof(((name *)0)->field) == size, #name ": the size of " #field);
#define VALUE(name, value) ASSERT(name == value, #name);

#include "layouts.h"
