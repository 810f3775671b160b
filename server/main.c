#include "commands/quire_main.h"

int main(int argc, char **argv) { return quire_main(argc, argv); }
