/* Python 3.13. */
#include "since_3.13.h"
#include "c_recursion.h"
