/* Python 3.10: as 3.9, but for the table of lines and the unit of places in code. */
#define CPYTHON_LINES_OF co_linetable
#define BYTES_OF_LASTI 2
#include "3.9.h"
