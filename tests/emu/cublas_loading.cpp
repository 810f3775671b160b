// The code that loads cuBLASLt (rt_cublas.h), compiled by the host's compiler with the toolkit's header: prints
// what it says of the library that LD_LIBRARY_PATH names.
#include "rt_cublas.h"

int main() {
    pthread_once(&lt_once, lt_load);
    printf("%s\n", lt.problem[0] ? lt.problem : "it is there");
}
