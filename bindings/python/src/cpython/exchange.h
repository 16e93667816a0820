/* Exchanges two values. */
#ifndef GOSCHED_EXCHANGE_H
#define GOSCHED_EXCHANGE_H

#define EXCHANGE(type, a, b) \
    do {                     \
        type a_ = (a);       \
        (a) = (b);           \
        (b) = a_;            \
    } while (0)

#endif
