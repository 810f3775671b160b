#include "commands/commands.h"

int main(int argc, char **argv) { return quire_main(argc, argv); }
