#!/bin/sh
# A program writes the lines of a file, and ends well.
# usage: readme_program.sh FILE PROGRAM...
set -eu
file=$1
shift
found=$("$@")
[ "$found" = "$(cat "$file")" ] || { printf '%s\n' "$found" | diff "$file" -; }
