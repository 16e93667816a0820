/* Python 3.14. */
#include "since_3.14.h"
