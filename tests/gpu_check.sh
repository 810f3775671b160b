#!/usr/bin/env bash
# Builds the CUDA backend, its tests and its benchmark with nvcc and a C compiler alone (no CMake, no package), runs the
# tests on the GPU at hand, a small set under compute-sanitizer, and writes a report: docs/gpu/DEVICE-DATE.{json,md}.
#
#   tests/gpu_check.sh                runs unattended; `./dev gpu-check` is this
#   tests/gpu_check.sh --build-only   compiles and links, for sm_90a; needs no GPU
#   tests/gpu_check.sh --emulated     the same programs on the emulator, with g++ in place of nvcc and tiny sizes: shows that
#                                     tests, benchmark and report run. Its report stays in the build folder.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD mode=${1:-} out=build/gpu jobs=$(nproc)
[ "$mode" = --emulated ] && out=build/gpu-emulated
mkdir -p "$out"
say() { printf '== %s\n' "$*" >&2; }
die() { printf 'gpu-check: %s\n' "$*" >&2; exit 1; }

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
if [ "$mode" != --emulated ]; then
    [ -n "$nvcc" ] || die "there is no nvcc: install the CUDA toolkit, or put it on PATH"
    cuda_lib=$(dirname "$(dirname "$(readlink -f "$nvcc")")")/lib64
fi
if [ -z "$mode" ]; then
    command -v nvidia-smi >/dev/null && nvidia-smi -L >&2 || die "nvidia-smi finds no GPU; --build-only needs none"
fi

includes=(-Iinclude -Ikernels -Ikernels/ref -Ikernels/cpu -Ikernels/cuda -Iengine -Itests -Itests/ops -Itests/emu) # not tests/bench: it has a limits.h
cflags=(-std=gnu17 -O2 -D_GNU_SOURCE -ffp-contract=off -fno-math-errno -pthread "${includes[@]}"
        -DQUIRE_SOURCE_DIR="\"$root\"" -DQUIRE_BINARY_DIR="\"$root/$out\"")
kernels=(rows qkv gemm pack attn_decode attn_prefill sample ranks)
tests=(rows gemm attention sample forward ranks model)

# Objects, each with its command on a line; then all of them, a few at a time.
commands=$out/commands
: >"$commands"
objects=()
compile() { # OBJECT COMMAND…
    local object=$1
    shift
    printf '%q ' "$@" -o "$out/$object" >>"$commands"
    printf '\n' >>"$commands"
}
simd() { # what kernels/CMakeLists.txt gives these files
    [ "$(uname -m)" = x86_64 ] || return 0
    case $1 in
    */avx2.c) echo -mavx2 -mfma -mf16c ;;
    */avxvnni.c) echo -mavx2 -mfma -mf16c -mavxvnni ;;
    */avx512.c) echo -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512bf16 ;;
    esac
}
for source in base/*.c kernels/*.c kernels/ref/*.c kernels/cpu/*.c engine/*.c kernels/cuda/{backend,group,memory,weight,multiply,plan}.c; do
    case $source:$(uname -m) in */avx*.c:x86_64) ;; */avx*.c:*) continue ;; esac
    object=${source//\//_}.o
    # shellcheck disable=SC2046
    compile "$object" "${CC:-cc}" "${cflags[@]}" $(simd "$source") -c "$source"
    objects+=("$out/$object")
done
for t in "${tests[@]}"; do
    compile "test_$t.o" "${CC:-cc}" "${cflags[@]}" -c "tests/emu/test_emu_$t.c"
done
compile bench.o "${CC:-cc}" "${cflags[@]}" -c tests/bench/bench_cuda.c
if [ "$mode" = --emulated ]; then
    host=("${CXX:-g++}" -std=c++17 -O2 -ffp-contract=off -Wno-unknown-pragmas "${includes[@]}" -Ikernels/cuda/emu -x c++)
    device=("${host[@]}")
    runtime=(kernels/cuda/emu/{emu,rt_emu,nccl_emu}.cpp)
    link=("${CXX:-g++}" -pthread -lm -ldl)
else
    arch=native
    [ "$mode" = --build-only ] && arch=sm_90a
    device=("$nvcc" -std=c++17 -O3 -ftz=true -arch="$arch" -lineinfo "${includes[@]}" -x cu)
    runtime=(kernels/cuda/rt_cuda.cu kernels/cuda/rt_nccl.cu)
    link=("$nvcc" -cudart static -L"$cuda_lib" -Xlinker "-rpath=$cuda_lib" -lcublasLt -lpthread -lm -ldl)
fi
for source in "${kernels[@]/#/kernels/cuda/}"; do
    compile "cuda_${source##*/}.o" "${device[@]}" -c "$source.cu"
    objects+=("$out/cuda_${source##*/}.o")
done
for source in "${runtime[@]}"; do
    name=${source##*/}
    compile "rt_${name%.*}.o" "${device[@]}" -c "$source"
    objects+=("$out/rt_${name%.*}.o")
done
compile stream.o "${device[@]}" -c tests/bench/stream.cu
compile test_words.o "${device[@]}" -c tests/emu/test_emu_words.cu

say "compiling $(wc -l <"$commands") files"
xargs -P "$jobs" -d '\n' -I{} sh -c '{} || { echo "failed: {}" >&2; exit 255; }' <"$commands"
say "linking"
for t in words "${tests[@]}"; do
    "${link[0]}" -o "$out/test_$t" "$out/test_$t.o" "${objects[@]}" "${link[@]:1}"
done
"${link[0]}" -o "$out/bench_cuda" "$out/bench.o" "$out/stream.o" "${objects[@]}" "${link[@]:1}"
[ "$mode" = --build-only ] && { say "built in $out"; exit 0; }

notes=() failed=0
for t in words "${tests[@]}"; do
    say "test $t"
    if "$out/test_$t" >"$out/test_$t.log" 2>&1; then
        notes+=(--note "test $t: $(tail -1 "$out/test_$t.log")")
    else
        cat "$out/test_$t.log" >&2
        notes+=(--note "test $t: FAILED")
        failed=1
    fi
done

if [ -z "$mode" ]; then
    sanitizer=$(command -v compute-sanitizer || ls "$(dirname "$nvcc")/compute-sanitizer" 2>/dev/null || true)
    # forward under memcheck alone: it has cuBLASLt's kernels, which are not ours to check for races. initcheck is left out:
    # tests poison memory on purpose.
    for tool in memcheck racecheck synccheck; do
        for t in words rows gemm attention sample ranks forward; do
            [ "$tool:$t" = racecheck:forward ] || [ "$tool:$t" = synccheck:forward ] && continue
            [ -n "$sanitizer" ] || { notes+=(--note "compute-sanitizer: not installed"); break 2; }
            say "compute-sanitizer $tool, test $t"
            if timeout 900 "$sanitizer" --tool "$tool" --error-exitcode 9 "$out/test_$t" >"$out/$tool-$t.log" 2>&1; then
                notes+=(--note "compute-sanitizer $tool, test $t: no errors")
            else
                tail -20 "$out/$tool-$t.log" >&2
                notes+=(--note "compute-sanitizer $tool, test $t: FAILED")
                failed=1
            fi
        done
    done
fi

say "benchmark"
if [ "$mode" = --emulated ]; then
    "$out/bench_cuda" "$out/report" --tiny "${notes[@]}"
    report=$out/report
else
    mkdir -p docs/gpu
    name=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1 | tr -cs 'A-Za-z0-9\n' '-')
    report=docs/gpu/${name%-}-$(date -u +%Y-%m-%d)
    notes+=(--note "driver $(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1), $("$nvcc" --version | tail -2 | head -1)")
    "$out/bench_cuda" "$report" "${notes[@]}"
fi
say "report: $report.md, $report.json"
exit $failed
