#!/bin/sh
# usage: run.sh [--all] MPIRUN PROCESSES PROGRAM …: one machine, any user, more processes than CPUs, no network.
# --all: passes when every process says ", 0 failures", whatever mpirun thinks of how they ended.
set -eu
all=
[ "$1" != --all ] || { all=1; shift; }
mpirun=$1 processes=$2
shift 2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # mpirun refuses root without both
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo OMPI_MCA_mpi_yield_when_idle=1
# MPI does not free all it has, and unloads its modules, so that leaks of theirs have no name to suppress; ours are
# looked for in tests/unit.
export ASAN_OPTIONS="detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
[ -n "$all" ] || exec "$mpirun" -np "$processes" "$@"
QUIRE_MPI_FOLDER=$(mktemp -d) # where processes can wait for each other when MPI no longer does
export QUIRE_MPI_FOLDER
trap 'rm -rf "$QUIRE_MPI_FOLDER"' EXIT
log=$QUIRE_MPI_FOLDER/log
"$mpirun" -np "$processes" "$@" >"$log" 2>&1 || true
cat "$log"
grep -q "^skipped: " "$log" && exit 77
[ "$(grep -c ', 0 failures$' "$log")" -eq "$processes" ]
