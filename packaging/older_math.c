// glibc 2.29 has these functions in a new version, which leaves out SVID's errors and gives the same numbers; every glibc has the old one.
// packaging/portable.cmake has the linker take these in their place, in the program and in the archives alike.
#ifdef __x86_64__
#define OLDER "@GLIBC_2.2.5"
#else
#define OLDER "@GLIBC_2.17"
#endif

__asm__(".symver older_exp, exp" OLDER "\n.symver older_log, log" OLDER "\n.symver older_pow, pow" OLDER);
double older_exp(double x);
double older_log(double x);
double older_pow(double x, double y);
double __wrap_exp(double x);
double __wrap_log(double x);
double __wrap_pow(double x, double y);

double __wrap_exp(double x) { return older_exp(x); }
double __wrap_log(double x) { return older_log(x); }
double __wrap_pow(double x, double y) { return older_pow(x, y); }
