// Results side by side.
#pragma once

// The command `compare A.json B.json… [--html FILE]`: prints a table, or writes the page. Its exit code.
int compare_main(int argc, char **argv);
