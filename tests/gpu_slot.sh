#!/usr/bin/env bash
# What a GPU is borrowed for, in commands of less than ten minutes, with everything brought along: the machine needs a
# driver, cuBLASLt and, for what is compared, Python with PyTorch; no package, no network, no compiler.
#
#   tests/gpu_slot.sh build    --out DIR  where CMake and nvcc are, without a GPU: DIR/quire-gpu.tar.xz, which unpacks to bundle/:
#                                         tests, benchmark, server and module, and the libraries that a bare machine lacks
#   bundle/gpu_slot.sh right   --out DIR  there: every test of the backend, models of real shapes, compute-sanitizer
#   bundle/gpu_slot.sh fast    --out DIR  kernels and steps beside PyTorch's, clocks, ncu
#   bundle/gpu_slot.sh serves  --out DIR  an 8B file made there, served to clients; a device that fails; too little memory
#   tests/gpu_slot.sh all      --out DIR  all of these, on a machine that has both
#   tests/gpu_slot.sh rehearse --out DIR  all of these on the emulator, at tiny sizes, whose numbers mean nothing
#
#     --arch A        GPU architectures to build for (90a)
#     --seconds N     for the whole command (540): a piece gets what is left of it at most, or is not started
#     --only WORDS    the pieces whose names have one of these words, with commas between; into another DIR, as a page takes
#                     the place of the one before
#     --emulated      build: with the emulator in place of the device. A bundle remembers what it is
#     --from BUILD    build: of this build folder, as it is, in place of building
#     --peers DIR     serves: llama-server under DIR takes turns with us
#
# right, fast and serves leave DIR/NAME.md and DIR/NAME.tar.gz (logs, JSON) and renew both after every piece, so that a
# command that is stopped keeps what it had. Exit code 0: all that could run has passed; 1: something failed; 2: usage; 3:
# nothing failed, but something was cut or not started for want of time.
# PYTHON (python3) is the one with PyTorch. COMPUTE_SANITIZER and NCU name other ones.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
command=${1:-} out='' arch=90a limit=540 only='' emulated='' from='' peers='' python=${PYTHON:-python3}
say() { printf '== %s\n' "$*" >&2; }
die() { printf 'gpu_slot.sh: %s\n' "$*" >&2; exit 2; }
[ $# -eq 0 ] || shift
while [ $# -gt 0 ]; do
    case $1 in
    --emulated) emulated=1 ;;
    --out | --arch | --seconds | --only | --from | --peers)
        [ $# -ge 2 ] || die "$1 wants a value"
        case $1 in --out) out=$2 ;; --arch) arch=$2 ;; --seconds) limit=$2 ;; --only) only=$2 ;; --from) from=$2 ;; --peers) peers=$2 ;; esac
        shift ;;
    *) die "unknown flag '$1': see the head of tests/gpu_slot.sh" ;;
    esac
    shift
done
case $command in build | right | fast | serves | all | rehearse) ;; *) die "build, right, fast, serves, all or rehearse, found '$command'" ;; esac
[ -n "$out" ] || die "--out DIR is missing"
mkdir -p "$out"
out=$(cd "$out" && pwd)

# ---- the bundle

tests=(intrinsics rows gemm experts attention sample forward steps peers model real_shapes)
scripts=(bench/{serving,models,torch_same,torch_kernels,gpu_faults}.py
         tools/{make_gguf,make_vocab_gguf,gguf_file,gguf_quants,folder_quants}.py)
build() {
    local root=${here%/tests} b=$out/bundle t device jobs level=6
    jobs=$(nproc)
    if [ -n "$emulated" ]; then
        if [ -z "$from" ]; then
            from=$root/build/release
            cmake -S "$root" --preset release >&2
            cmake --build "$from" -j "$jobs" --target "${tests[@]/#/test_emu_}" bench_cuda quire quire-bench quire-cuda-emulated fault-backend >&2
        fi
        device=$from/kernels/cuda/quire-cuda-emulated.so
        level=0
    else
        if [ -z "$from" ]; then
            from=$root/build/gpu
            cmake -S "$root" -B "$from" -G Ninja -DCMAKE_BUILD_TYPE=Release -DQUIRE_CUDA=ON "-DQUIRE_CUDA_ARCHS=$arch" \
                '-DCMAKE_BUILD_RPATH=$ORIGIN/../lib' -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags >&2
            NVCC_APPEND_FLAGS=-lineinfo cmake --build "$from" -j "$jobs" --target gpu_programs quire quire-bench quire-cuda fault-backend >&2
        fi
        device=$from/kernels/cuda/quire-cuda.so
    fi
    rm -rf "$b"
    mkdir -p "$b"/{bin,lib/quire,models,tests/bench,tests/tools}
    for t in "${tests[@]/#/test_}" bench_cuda; do
        if [ -n "$emulated" ]; then cp "$from/tests/${t/test_/test_emu_}" "$b/bin/$t"; else cp "$from/gpu/gpu_$t" "$b/bin/$t"; fi
    done
    cp "$from"/{quire,quire-bench} "$b/bin/"
    cp "$device" "$b/lib/quire/quire-cuda.so"
    cp "$from/tests/fault-backend.so" "$b/lib/quire/"
    strip "$b"/bin/*
    cp "$root/tests/gpu_slot.sh" "$b/"
    cp "$root/models/quire-tiny.gguf" "$b/models/"
    for t in "${scripts[@]}"; do cp "$root/tests/$t" "$b/tests/$t"; done
    # What Debian's packages gave, and what it needs in turn; not the C and C++ libraries, not CUDA's.
    ldd "$b"/bin/* | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u |
        grep -Ev '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s|cuda)\.so[.0-9]*)$' |
        while read -r t; do cp -L "$t" "$b/lib/"; done
    {
        printf 'commit %s, ' "$(git -C "$root" describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)"
        if [ -n "$emulated" ]; then echo emulated; else echo "built for sm_$arch"; fi
    } >"$b/about"
    tar -C "$out" -c bundle | xz "-T$jobs" -$level >"$out/quire-gpu.tar.xz"
    say "$out/quire-gpu.tar.xz: $(($(stat -c %s "$out/quire-gpu.tar.xz") >> 20)) MiB"
}

# ---- pieces: each is limited by itself, and leaves a line of status and a log, whatever becomes of it

work='' page='' count=0

write_page() {
    local new=$out/.$command.$BASHPID f name state rest # beside what it replaces: a kill leaves the old one or the new one
    {
        printf '# %s: %s, %s\n\n%s.' "$command" "$gpu" "$(date -u +%Y-%m-%d)" "$(cat "$bundle/about")"
        [ -z "$emulated" ] || printf ' **Emulated: these numbers mean nothing.** They show that the programs run.'
        printf '\n\n| piece | what became of it | s | its last words |\n|---|---|--:|---|\n'
        for f in "$work"/status/*; do
            [ -e "$f" ] || continue
            IFS=$'\t' read -r name state rest <"$f" || true
            printf '| %s | %s | %s |\n' "$name" "$state" "$rest"
        done
        for f in "$work"/*.md; do
            if [ -e "$f" ]; then printf '\n' && cat "$f"; fi
        done
    } >"$new"
    mv "$new" "$page"
    # Logs may grow while they are read.
    tar -C "$(dirname "$work")" -czf "$new" --warning=no-file-changed --exclude '*.gguf' "$(basename "$work")" || true
    mv "$new" "$out/$command.tar.gz"
}

status() { # NAME STATE SECONDS TEXT
    printf '%s\t%s\t%s | %s\n' "$1" "$2" "$3" "$(printf '%s' "$4" | tr -d '\000-\037' | tr '|' '/' | cut -c 1-140)" >"$work/status/$number"
    write_page
}

# piece SECONDS NAME COMMAND…: exit code 77 of the command: it cannot run here, and its last line says why.
piece() {
    local most=$1 name=$2 log began=$SECONDS rc=0 rest=$((limit - SECONDS)) number
    shift 2
    number=$(printf %03d "$count")
    log=$work/$number-${name//[ \/]/-}.log
    if [ "$rest" -lt 5 ]; then
        status "$name" 'skipped because no time was left' 0 ''
        return
    fi
    [ "$rest" -lt "$most" ] && most=$rest
    status "$name" 'began, and the command ended first' '' ''
    say "$name"
    timeout -k 5 "$most" "$@" >"$log" 2>&1 || rc=$?
    case $rc in
    0) status "$name" ran $((SECONDS - began)) "$(grep -v '^|' "$log" | tail -n 1)" ;; # a table goes below
    77) status "$name" "skipped because $(tail -n 1 "$log")" 0 '' ;;
    124 | 137) # stopped by the limit, or, where that is not over, killed by another
        if [ $((SECONDS - began)) -ge "$most" ]; then
            status "$name" "**cut at $most s**" "$most" "$(tail -n 1 "$log")"
        else
            status "$name" "**FAILED** (killed)" $((SECONDS - began)) "$(tail -n 1 "$log")"
        fi ;;
    *) status "$name" "**FAILED** (exit code $rc)" $((SECONDS - began)) "$(tail -n 1 "$log")" ;;
    esac
}

wanted() {
    local word IFS=,
    [ -n "$only" ] || return 0
    for word in $only; do case $1 in *"$word"*) return 0 ;; esac; done
    return 1
}
run() { # one after another
    wanted "$2" || return 0
    count=$((count + 1))
    piece "$@"
}
start() { # up to four at a time; finish waits for all
    wanted "$2" || return 0
    count=$((count + 1))
    while [ "$(jobs -rp | wc -l)" -ge 4 ]; do wait -n || true; done
    piece "$@" &
}
finish() { wait; }
skip() { # NAME WHY
    wanted "$1" || return 0
    count=$((count + 1))
    local number
    number=$(printf %03d "$count")
    status "$1" "skipped because $2" 0 ''
}

# Whether $1 of Python's modules are there, with a GPU (on the emulator: at all).
has_torch() {
    local need='import torch, transformers'
    [ -n "$emulated" ] || need="$need; assert torch.cuda.is_available()"
    "$python" -c "$need" 2>/dev/null
}

find_cuda() { # cuBLASLt and NCCL: the toolkit's or the system's, else those of PyTorch's wheels
    local name found
    for name in $(grep -aso 'libcublasLt\.so\.[0-9]*' lib/quire/quire-cuda.so | head -n 1) libnccl.so.2; do
        if ldconfig -p 2>/dev/null | grep -qF "$name" || [ -e "/usr/local/cuda/lib64/$name" ]; then continue; fi
        found=$("$python" -c '
import importlib.util, pathlib, sys
spec = importlib.util.find_spec("nvidia")
found = [p for d in (spec.submodule_search_locations if spec else []) for p in pathlib.Path(d).rglob(sys.argv[1])]
print(found[0].parent if found else "")' "$name" 2>/dev/null || true)
        if [ -n "$found" ]; then export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$found; fi
    done
    if [ -e /usr/local/cuda/lib64 ]; then export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64; fi
}
tool() { command -v "$1" || ls "/usr/local/cuda/bin/$1" 2>/dev/null || true; }

# ---- right

right() {
    local t check sanitizer=${COMPUTE_SANITIZER:-$(tool compute-sanitizer)} few fewer threads environment=()
    threads=$(($(nproc) / 4 > 0 ? $(nproc) / 4 : 1))
    # What takes long and adds little where each launch does; and what the same emulator runs in ctest anyway.
    few=test_types,test_many_rows,test_exact,test_exact_company,test_wide_steps,test_random_rows,test_far_blocks
    fewer=$few,test_wide_prefill,test_window_pages,test_misuse,test_attention_paths,test_company,test_more_buckets,test_launches,test_embedded
    fewer=$fewer,test_near,test_graphs_of_specs
    [ -z "$emulated" ] || environment=("QUIRE_LEAVE_OUT=$fewer")
    for t in "${tests[@]}"; do
        [ "$t" = real_shapes ] || run 60 "test $t" env "${environment[@]}" "bin/test_$t"
    done
    for t in 8b 70b 32b half_b; do
        if [ -n "$emulated" ] && [ $t != 8b ]; then continue; fi
        start 150 "real shapes $t" env "QUIRE_RUN=test_$t" "QUIRE_THREADS=$threads" bin/test_real_shapes
    done
    finish
    # The kernels of wgmma are off unless asked for. A row has the same bits in every batch if theirs do not depend on N.
    run 90 "real shapes 8b, wgmma" env QUIRE_RUN=test_8b "QUIRE_THREADS=$(nproc)" QUIRE_CUDA_WGMMA=1 bin/test_real_shapes
    # forward and steps under memcheck alone: cuBLASLt's kernels are not ours to check for races. initcheck is left out: tests
    # poison memory on purpose.
    for check in memcheck racecheck synccheck; do
        for t in intrinsics gemm attention rows sample peers forward steps; do
            case $check:$t in racecheck:forward | synccheck:forward | racecheck:steps | synccheck:steps) continue ;; esac
            if [ -z "$sanitizer" ]; then
                skip "$check of test $t" 'there is no compute-sanitizer'
            else
                start 150 "$check of test $t" env "QUIRE_LEAVE_OUT=$few" "$sanitizer" --tool $check --error-exitcode 9 "bin/test_$t"
            fi
        done
    done
    finish
}

# ---- fast

metrics=sm__throughput.avg.pct_of_peak_sustained_elapsed,dram__throughput.avg.pct_of_peak_sustained_elapsed
metrics=$metrics,lts__t_sector_hit_rate.pct,lts__throughput.avg.pct_of_peak_sustained_elapsed,l1tex__t_sector_hit_rate.pct
metrics=$metrics,sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active,sm__warps_active.avg.pct_of_peak_sustained_active
metrics=$metrics,smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio,gpu__time_duration.sum
metrics=$metrics,smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio,smsp__issue_active.avg.pct_of_peak_sustained_active
metrics=$metrics,l1tex__data_bank_conflicts_pipe_lsu.sum

fast() {
    local tiny=() i part ncu=${NCU:-$(tool ncu)} torch=''
    [ -z "$emulated" ] || tiny=(--tiny)
    ! has_torch || torch=1
    for i in 1 2; do # in turns: a clock that changes shows
        run 60 "gemm, round $i" bin/bench_cuda "$work/gemm-$i" --only gemm "${tiny[@]}"
        if [ -n "$torch" ]; then
            run 60 "gemm of PyTorch, round $i" "$python" tests/bench/torch_kernels.py "$work/gemm-torch-$i" --only gemm --beside "$work/gemm-$i.json" "${tiny[@]}"
        fi
    done
    run 60 attention bin/bench_cuda "$work/attention" --only attention "${tiny[@]}"
    if [ -n "$torch" ]; then
        run 40 "attention of PyTorch" "$python" tests/bench/torch_kernels.py "$work/attention-torch" --only attention --beside "$work/attention.json" "${tiny[@]}"
    fi
    run 45 "other kernels" bin/bench_cuda "$work/other" --only other "${tiny[@]}"
    run 200 steps bin/bench_cuda "$work/steps" --only steps "${tiny[@]}"
    if [ -z "$ncu" ]; then
        skip ncu 'there is no ncu'
    else
        run 90 ncu "$ncu" --clock-control none --csv --kernel-name 'regex:^(gemm|decode|combine|prefill|sample)' --metrics "$metrics" --log-file "$work/ncu.csv" bin/bench_cuda "$work/profile" --only profile "${tiny[@]}"
    fi
    if [ -n "$torch" ]; then
        run 120 "steps of PyTorch" "$python" tests/bench/torch_same.py "$work/steps-torch" "${tiny[@]}"
    else
        skip "PyTorch" "$python has no torch with a GPU and transformers (PYTHON names another)"
    fi
}

# ---- serves

serves() {
    local file=$work/8b.gguf n shape=(--preset llama-8b --type q8_0 --repeated) clients=(1 16 64 256) lengths=(--prompt 512 --output 256)
    local flags="--device cuda" peer=()
    if [ -n "$emulated" ]; then
        shape=(--layers 1 --hidden 64 --heads 2 --kv-heads 1 --ffn 64 --vocab 512 --context 256 --type q8_0 --repeated)
        clients=(1 2) lengths=(--prompt 12 --output 4 --vocab 400)
        flags="$flags --num-gpu-blocks-override 64"
    fi
    [ -z "$peers" ] || peer=(--peers "$peers" --rounds 2)
    run 120 "file of 8B" "$python" tests/tools/make_gguf.py "$file" "${shape[@]}"
    for n in "${clients[@]}"; do
        run 90 "clients: $n" "$python" tests/bench/serving.py --build bin --files "$file" --clients "$n" --sharers 0 --limit-passes 0 \
            "${lengths[@]}" --quire-flags "$flags" "${peer[@]}" --json "$work/$n-clients.json"
        grep -hs '^|' "$work/"*"-clients:-$n.log" >"$work/$n-clients.md" || rm "$work/$n-clients.md"
    done
    run 90 "device that fails" "$python" tests/bench/gpu_faults.py fault "$file"
    run 90 "too little memory" "$python" tests/bench/gpu_faults.py memory "$file"
}

# ---- one command

measure() {
    bundle=$here
    [ -x "$bundle/bin/bench_cuda" ] || bundle=$out/bundle
    [ -x "$bundle/bin/bench_cuda" ] || die "no bundle: $0 build makes it"
    emulated=$(grep -o emulated "$bundle/about" || true)
    page=$out/$command.md
    work=$(mktemp -d)/$command
    mkdir -p "$work/status"
    cd "$bundle"
    gpu=emulator
    local clocks=''
    if [ -z "$emulated" ]; then
        command -v nvidia-smi >/dev/null || die "there is no nvidia-smi"
        gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
        find_cuda
        nvidia-smi -q >"$work/nvidia-smi.txt"
        nvidia-smi --query-gpu=driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit,compute_cap --format=csv >"$work/gpu.csv"
        nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu,clocks_throttle_reasons.active \
            --format=csv,noheader,nounits -l 1 >"$work/clocks.csv" &
        clocks=$!
        disown "$clocks" # finish waits for pieces alone
    fi
    lscpu >"$work/lscpu.txt" || true
    trap 'write_page' EXIT
    $command
    [ -z "$clocks" ] || { kill "$clocks" && summarise_clocks; } || true
    [ "$count" -eq 0 ] || write_page
    trap - EXIT
    rm -rf "$(dirname "$work")"
    [ "$count" -gt 0 ] || die "no piece of $command has one of the words '$only'"
    say "$page"
    if grep -q '^|.*| \*\*FAILED' "$page"; then return 1; fi
    if grep -qE '^\|.*\| (\*\*cut|skipped because no time)' "$page"; then return 3; fi
}
summarise_clocks() {
    sort -t , -k 2 -n "$work/clocks.csv" | awk -F ', *' '
        { sm[NR] = $2; if ($4 > power) power = $4; if ($5 > hot) hot = $5; reasons[$7]++ }
        END { printf "## Clocks\n\n%d samples, one a second: SM %s to %s MHz, median %s; at most %s W, %s °C. Throttle reasons (samples):", NR, sm[1], sm[NR], sm[int((NR + 1) / 2)], power, hot
              for (r in reasons) printf " %s (%d)", r, reasons[r]; print "." }' >"$work/zz-clocks.md"
    { printf '\n'; cat "$work/gpu.csv"; } >>"$work/zz-clocks.md"
}

case $command in
build) build ;;
right | fast | serves) measure ;;
all | rehearse)
    more=(--out "$out" --seconds "$limit") given=()
    [ -z "$only" ] || more+=(--only "$only")
    [ "$command" = all ] || given=(--emulated)
    [ -z "$from" ] || given+=(--from "$from")
    "$0" build --out "$out" --arch "$arch" "${given[@]}"
    # As it arrives on another machine.
    rm -rf "$out/bundle"
    tar -C "$out" -xf "$out/quire-gpu.tar.xz"
    worst=2 # --only may name no piece of a part
    for part in right fast serves; do
        rc=0
        "$out/bundle/gpu_slot.sh" $part "${more[@]}" || rc=$?
        case $rc:$worst in 1:* | 3:[02] | 0:2) worst=$rc ;; esac
    done
    exit "$worst"
    ;;
esac
