// Everything after main(): from the command line to a command, and its exit code.
#pragma once

int quire_main(int argc, char **argv);
