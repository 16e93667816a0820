/* Python 3.15: as 3.14. Its states begin with a frame of their own, which the interpreter owns. */
#include "since_3.14.h"
