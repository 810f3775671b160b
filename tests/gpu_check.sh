#!/usr/bin/env bash
# Builds the CUDA backend, its tests and its benchmark with nvcc and a C compiler alone (no CMake, no package), and on the
# GPU at hand runs the tests, the benchmark (kernels, then whole steps), the same shapes through PyTorch where that is installed, and a small set under
# compute-sanitizer. After every piece it writes the report, docs/gpu/DEVICE-DATE.{json,md}, so that what is done stays
# where the run is stopped.
#
#   tests/gpu_check.sh                  everything, unattended; `./dev gpu-check` is this
#     --only PARTS     of tests,kernels,steps,torch,sanitizer; what other parts gave earlier, from the same sources, stays in
#                      the report (build/gpu/pieces holds it: copied along, another machine goes on from there)
#     --seconds N      starts no piece that could end later: for machines that are lent by the minute
#     --no-build       with the programs of the run before
#   tests/gpu_check.sh --build-only     compiles and links, for sm_90a; needs no GPU
#   tests/gpu_check.sh --emulated       the same programs on the emulator, with g++ in place of nvcc, tiny sizes and few tests:
#                                       shows that they build and run. Its report stays in the build folder.
#
# Exit code 0: all passed; 1: something failed; 3: nothing failed, but time ran out: `--only sanitizer` goes on from there.
# PYTHON (python3) is asked for PyTorch and for the NCCL that comes with it. COMPUTE_SANITIZER names another one.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD mode='' parts=tests,kernels,steps,torch,sanitizer some='' build=1 limit=86400 jobs=$(nproc) python=${PYTHON:-python3}
say() { printf '== %s\n' "$*" >&2; }
die() { printf 'gpu-check: %s\n' "$*" >&2; exit 2; }
while [ $# -gt 0 ]; do
    case $1 in
    --build-only | --emulated) mode=$1 ;;
    --no-build) build='' ;;
    --only | --seconds)
        [ $# -ge 2 ] || die "$1 wants a value"
        if [ "$1" = --only ]; then parts=$2 some=1; else limit=$2; fi
        shift ;;
    *) die "unknown flag '$1': see the head of tests/gpu_check.sh" ;;
    esac
    shift
done
for part in ${parts//,/ }; do
    case $part in
    tests | kernels | steps | torch | sanitizer) ;;
    *) die "--only: of tests, kernels, steps, torch, sanitizer, found '$part'" ;;
    esac
done
out=build/gpu
[ "$mode" = --emulated ] && out=build/gpu-emulated
pieces=$out/pieces
mkdir -p "$pieces"
has_part() { case ,$parts, in *",$1,"*) ;; *) return 1 ;; esac; }

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
nccl='' sanitizer=${COMPUTE_SANITIZER:-}
if [ "$mode" != --emulated ]; then
    [ -n "$nvcc" ] || die "there is no nvcc: install the CUDA toolkit, or put it on PATH"
    # Asked, not guessed from its path: what is on PATH may be a wrapper.
    toolkit=$("$nvcc" --dryrun -x cu -c /dev/null -o /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p')
    [ -n "$toolkit" ] || toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
    cuda_lib=
    for dir in "$toolkit"/lib64 "$toolkit"/targets/*/lib "$toolkit"/lib; do
        if [ -z "$cuda_lib" ] && ls "$dir"/libcublasLt.so* >/dev/null 2>&1; then cuda_lib=$(cd "$dir" && pwd); fi
    done
    [ -n "$cuda_lib" ] || die "there is no libcublasLt.so under $toolkit (nvcc: $nvcc)"
    sanitizer=${sanitizer:-$(command -v compute-sanitizer || ls "$toolkit/bin/compute-sanitizer" 2>/dev/null || true)}
    # PyTorch's wheels bring an NCCL that is on no path. The system's goes first.
    if ldconfig -p 2>/dev/null | grep -q 'libnccl\.so\.2'; then
        nccl="the system's"
    else
        nccl_dir=$("$python" -c '
import importlib.util, pathlib
spec = importlib.util.find_spec("nvidia")
found = [p for d in (spec.submodule_search_locations if spec else []) for p in pathlib.Path(d).rglob("libnccl.so.2")]
print(found[0].parent.parent if found else "")' 2>/dev/null || true)
        if [ -n "$nccl_dir" ]; then
            nccl=$nccl_dir
            export LD_LIBRARY_PATH=$nccl_dir/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
            if [ -e "$nccl_dir/include/nccl.h" ]; then export CPATH=$nccl_dir/include${CPATH:+:$CPATH}; fi
        fi
    fi
fi
if [ -z "$mode" ]; then
    command -v nvidia-smi >/dev/null && nvidia-smi -L >&2 || die "nvidia-smi finds no GPU; --build-only needs none"
fi

includes=(-Ibase -Iinclude -Ikernels -Ikernels/cuda -Ikernels/ref -Ikernels/cpu -Iengine -Itests -Itests/ops -Itests/emu) # not tests/bench: it has a limits.h
optimise=-O2
[ "$mode" = --emulated ] && optimise=-O0 # here compiling takes longer than running
cflags=(-std=gnu17 "$optimise" -D_GNU_SOURCE -ffp-contract=off -fno-math-errno -pthread "${includes[@]}"
        -DQUIRE_SOURCE_DIR="\"$root\"" -DQUIRE_BINARY_DIR="\"$root/$out\"")
kernels=(rows qkv gemm gemm_staged pack attn_decode attn_prefill attn_wgmma sample ranks)
tests=(intrinsics rows gemm attention sample forward steps ranks model)
bench=(bench_cuda bench_cuda_kernels bench_cuda_steps)

# Objects, each with its command on a line; then all of them, a few at a time.
commands=$out/commands
objects=()
compile() { # OBJECT COMMAND…
    local object=$1
    shift
    printf '%q ' "$@" -o "$out/$object" >>"$commands"
    printf '\n' >>"$commands"
}
simd() { # what kernels/CMakeLists.txt gives these files
    case $1 in
    */avx2.c) echo -mavx2 -mfma -mf16c ;;
    */avxvnni.c) echo -mavx2 -mfma -mf16c -mavxvnni ;;
    */avx512*.c) echo -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512bf16 ;;
    */amx.c) echo "$(simd cpu/avx512.c)" -mamx-tile -mamx-int8 -mamx-bf16 ;;
    */neon.c) echo -fno-schedule-insns ;;
    */dotprod.c) echo -fno-schedule-insns -march=armv8.2-a+dotprod ;;
    */i8mm.c) echo -fno-schedule-insns -march=armv8.2-a+dotprod+i8mm+bf16 ;;
    esac
}
build_all() {
    local source name t device host runtime link arch=(-arch=native)
    : >"$commands"
    for source in base/*.c kernels/*.c kernels/ref/*.c kernels/cpu/*.c engine/*.c engine/models/*.c engine/models/hf/*.c engine/text/*.c engine/text/jinja/*.c engine/ranks/*.c scheduler/{drafter,request}.c kernels/cuda/{backend,inspect,kv,memory,multiply,peers,phases,step,weight,work}.c; do
        case $source:$(uname -m) in
        */avx*.c:x86_64 | */amx.c:x86_64 | */neon.c:aarch64 | */dotprod.c:aarch64 | */i8mm.c:aarch64) ;;
        */avx*.c:* | */amx.c:* | */neon.c:* | */dotprod.c:* | */i8mm.c:*) continue ;;
        esac
        name=${source//\//_}.o
        # shellcheck disable=SC2046
        compile "$name" "${CC:-cc}" "${cflags[@]}" $(simd "$source") -c "$source"
        objects+=("$out/$name")
    done
    # Nobody compares them here: no processes meet.
    printf '#include "build_id.h"\nconst char build_version[] = "0", build_id[] = "gpu-check";\n' >"$out/build_id.c"
    compile build_id.o "${CC:-cc}" "${cflags[@]}" -c "$out/build_id.c"
    objects+=("$out/build_id.o")
    for t in "${tests[@]:1}"; do
        compile "test_$t.o" "${CC:-cc}" "${cflags[@]}" -c "tests/emu/test_emu_$t.c"
    done
    for t in "${bench[@]}"; do
        compile "$t.o" "${CC:-cc}" "${cflags[@]}" -c "tests/bench/$t.c"
    done
    if [ "$mode" = --emulated ]; then
        host=("${CXX:-g++}" -std=c++17 "$optimise" -ffp-contract=off -Wno-unknown-pragmas "${includes[@]}" -Ikernels/cuda/emu -x c++)
        device=("${host[@]}")
        runtime=(kernels/cuda/emu/{emu,wgmma,rt_emu,nccl_emu}.cpp)
        link=("${CXX:-g++}" -pthread -lm -ldl)
    else
        # On Hopper for sm_90a, as the module has it: native would be sm_90, which has no wgmma.
        if [ "$mode" = --build-only ] ||
            [ "$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1)" = 9.0 ]; then
            arch=(-gencode=arch=compute_90a,code=sm_90a -DQUIRE_SM90A)
        fi
        device=("$nvcc" -std=c++17 -O3 -ftz=true "${arch[@]}" -lineinfo "${includes[@]}" -x cu)
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
    compile test_intrinsics.o "${device[@]}" -c tests/emu/test_emu_intrinsics.cu

    say "compiling $(wc -l <"$commands") files"
    xargs -P "$jobs" -d '\n' -I{} sh -c '{} || { echo "failed: {}" >&2; exit 255; }' <"$commands"
    say "linking"
    for t in "${tests[@]}"; do
        "${link[0]}" -o "$out/test_$t" "$out/test_$t.o" "${objects[@]}" "${link[@]:1}"
    done
    local bench_objects=("${bench[@]/#/$out/}")
    "${link[0]}" -o "$out/bench_cuda" "${bench_objects[@]/%/.o}" "$out/stream.o" "${objects[@]}" "${link[@]:1}"
}
if [ -n "$build" ]; then
    build_all
else
    [ -x "$out/bench_cuda" ] || die "--no-build, but $out has no bench_cuda"
fi
[ "$mode" = --build-only ] && { say "built in $out"; exit 0; }

# ---- the report: pieces, put together anew whenever one is done. A note is a line of pieces/notes.

sources=$(cat tests/gpu_check.sh tests/harness.h tests/{emu,ops,bench}/*.* kernels/*.* kernels/{ref,cpu,cuda,cuda/emu}/*.* engine/*.* scheduler/{drafter,request}.c |
          cksum | cut -d ' ' -f 1)
if [ -z "$some" ] || [ "$(cat "$pieces/sources" 2>/dev/null)" != "$sources" ]; then
    rm -rf "$pieces"
    mkdir -p "$pieces"
    echo "$sources" >"$pieces/sources"
fi
touch "$pieces/notes"
if [ "$mode" = --emulated ]; then
    name=emulated report=$out/report
else
    mkdir -p docs/gpu
    name=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)
    report=docs/gpu/$(printf '%s' "$name" | tr -cs 'A-Za-z0-9' '-')-$(date -u +%Y-%m-%d)
fi
failed='' left=''

json_string() { printf '%s' "$1" | tr -d '\000-\037' | sed 's/\\/\\\\/g; s/"/\\"/g; s/^/"/; s/$/"/'; }
write_report() {
    local line separator='' part
    {
        printf '# %s, %s\n\n' "$name" "$(date -u +%Y-%m-%d)"
        if [ "$mode" = --emulated ]; then printf '**Emulated: these numbers mean nothing.** They show that the programs run.\n\n'; fi
        while IFS= read -r line; do printf -- '- %s\n' "$line"; done <"$pieces/notes"
        for part in kernels steps torch; do
            if [ -e "$pieces/$part.md" ]; then printf '\n'; cat "$pieces/$part.md"; fi
        done
    } >"$report.md"
    {
        printf '{\n"device": %s,\n"date": "%s",\n"notes": [' "$(json_string "$name")" "$(date -u +%Y-%m-%d)"
        while IFS= read -r line; do
            printf '%s\n  %s' "$separator" "$(json_string "$line")"
            separator=,
        done <"$pieces/notes"
        printf '\n]'
        for part in kernels steps torch; do
            printf ',\n"%s": ' "$part"
            cat "$pieces/$part.json" 2>/dev/null || printf null
        done
        printf '\n}\n'
    } >"$report.json"
}
# note KEY TEXT: takes the place of an earlier note of the same key
note() {
    { grep -v "^$1: " "$pieces/notes" || true; } >"$pieces/notes.new"
    printf '%s: %s\n' "$1" "$2" >>"$pieces/notes.new"
    mv "$pieces/notes.new" "$pieces/notes"
    write_report
}
noted() { grep -q "^$1: $2" "$pieces/notes"; }

# run KEY SECONDS COMMAND…: what it prints goes to $out/KEY.log (spaces become dashes). Fails where it fails, is stopped after
# SECONDS, or cannot begin because fewer than a minute is left of --seconds; then it has said so in a note.
run() {
    local key=$1 most=$2 log=$out/${1// /-}.log rc=0 rest=$((limit - SECONDS))
    shift 2
    if [ $rest -lt 60 ]; then
        left="$left $key,"
        return 1
    fi
    [ $rest -lt "$most" ] && most=$rest
    say "$key"
    timeout -k 5 "$most" "$@" >"$log" 2>&1 || rc=$?
    if [ $rc -eq 124 ] || [ $rc -eq 137 ]; then
        note "$key" "NOT FINISHED in $most s"
        if [ "$most" -eq $rest ]; then left="$left $key,"; else failed=1; fi
    elif [ $rc -ne 0 ]; then
        tail -30 "$log" >&2
        note "$key" "FAILED ($(tail -1 "$log"))"
        failed=1
    fi
    return $rc
}

note commit "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)$([ -z "$(git status --porcelain 2>/dev/null | grep -v docs/gpu || true)" ] || echo ', with changes')"
if [ -z "$mode" ]; then
    note driver "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1), $("$nvcc" --version | tail -2 | head -1)"
    note NCCL "${nccl:-not found: its sums are not tested}"
fi

# What takes long and adds little where each launch does; and what the same emulator, better compiled, runs in ctest anyway.
few=QUIRE_LEAVE_OUT=test_types,test_many_rows,test_exact,test_exact_company,test_wide_steps,test_random_rows,test_far_blocks
fewer=$few,test_wide_prefill,test_window_pages,test_misuse,test_attention_paths,test_company,test_more_buckets,test_launches,test_embedded,test_made_files
if has_part tests; then
    for t in "${tests[@]}"; do
        environment=()
        [ "$mode" = --emulated ] && environment=("$fewer")
        run "test $t" 600 env "${environment[@]}" "$out/test_$t" && note "test $t" "$(tail -1 "$out/test-$t.log")"
    done
fi

tiny=()
[ "$mode" = --emulated ] && tiny=(--tiny)
for part in kernels steps; do
    has_part $part || continue
    if run "benchmark of $part" 900 "$out/bench_cuda" "$pieces/new" --only $part "${tiny[@]}"; then
        mv "$pieces/new.json" "$pieces/$part.json"
        mv "$pieces/new.md" "$pieces/$part.md"
        note "benchmark of $part" "done"
    elif [ -e "$pieces/new.md" ]; then # how far it came
        mv "$pieces/new.md" "$pieces/$part.md"
        rm -f "$pieces/new.json"
        write_report
    fi
done

if has_part torch; then
    need='import torch, transformers; assert torch.cuda.is_available()'
    [ "$mode" = --emulated ] && need='import torch, transformers'
    if ! "$python" -c "$need" 2>/dev/null; then
        note PyTorch "not compared: $python has no torch with a GPU and transformers (PYTHON names another)"
    elif run PyTorch 600 "$python" tests/bench/torch_same.py "$pieces/new" "${tiny[@]}"; then
        mv "$pieces/new.json" "$pieces/torch.json"
        mv "$pieces/new.md" "$pieces/torch.md"
        note PyTorch "done"
    fi
fi

# Piece by piece; what has passed is not run again. forward and steps under memcheck alone: cuBLASLt's kernels are not ours
# to check for races. initcheck is left out: tests poison memory on purpose.
if has_part sanitizer && [ -z "$sanitizer" ]; then
    [ "$mode" = --emulated ] || note compute-sanitizer "not installed"
elif has_part sanitizer; then
    for tool in memcheck racecheck synccheck; do
        for t in "${tests[@]}"; do
            case $tool:$t in *:model | racecheck:forward | synccheck:forward | racecheck:steps | synccheck:steps) continue ;; esac
            key="$tool of test $t"
            noted "$key" "no errors" && continue
            run "$key" 300 env "$few" "$sanitizer" --tool $tool --error-exitcode 9 "$out/test_$t" && note "$key" "no errors"
        done
    done
fi

say "report: $report.md, $report.json"
[ -z "$failed" ] || exit 1
if [ -n "$left" ]; then
    say "time ran out before:${left%,}"
    exit 3
fi
