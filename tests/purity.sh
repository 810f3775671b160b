#!/bin/sh
# kv and sched are pure: what they may call is this list and each other, no clock, file, thread, log or random source.
# usage: purity.sh libkv.a libsched.a
set -eu
allowed='^(malloc|calloc|realloc|free|memcpy|memmove|memset|memcmp|bcmp|vsnprintf|__vsnprintf_chk|check_failed|__stack_chk_fail|_GLOBAL_OFFSET_TABLE_|__mem(cpy|set|move)_chk|__(asan|ubsan|tsan|lsan|sanitizer|gcov)_.*|kv_.*|request_.*|drafter_.*|token_counts_.*|sched_.*)$'
bad=$(nm -u "$@" | awk '$1 == "U" {print $2}' | sort -u | grep -vE "$allowed" || true)
if [ -n "$bad" ]; then
    echo "impure calls in $*:" $bad
    echo "0 passed, 1 failed"
    exit 1
fi
echo "1 passed, 0 failed"
