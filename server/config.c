#include "status.h"
