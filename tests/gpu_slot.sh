#!/usr/bin/env bash
# Tests and measures on a borrowed GPU, a quarter of an hour in all, with everything brought along: the machine needs a driver,
# cuBLASLt and, for what is compared, Python with PyTorch; no package, no network, no compiler.
#
#   tests/gpu_slot.sh build --out DIR    where CMake and nvcc are, without a GPU: DIR/quire-gpu.tar.xz, which unpacks to bundle/:
#                                        tests and benchmark as one program, server and module, libraries that a bare machine
#                                        lacks. With the tree's tracked files it has less than 64 MiB
#   bundle/gpu_slot.sh one --out DIR     there, 335 s: whether it runs, is right, is fast, serves; most telling first
#   bundle/gpu_slot.sh two --out DIR     there, 240 s: what `one` leaves to ask (docs/gpu/README.md): WHAT='ncu torch' names it
#   tests/gpu_slot.sh all --out DIR      all of these, on a machine that has both
#   tests/gpu_slot.sh rehearse --out DIR all of these on the emulator, at tiny sizes, whose numbers mean nothing
#
#     --arch A        GPU architectures to build for (90a)
#     --seconds N     for the whole command: a piece is cut then at the latest, or not started
#     --only WORDS    the pieces whose names have one of these words, with commas between; into another DIR, as a page takes
#                     the place of the one before
#     --emulated      build: with the emulator in place of the device. A bundle remembers what it is
#     --from BUILD    build: of this build folder, as it is, in place of building
#
# WHAT, with spaces between, each with its share of the time: ncu, torch (PyTorch's steps), wgmma (steps with it), rest (the
# tests that `one` leaves out), shapes (of 70B, 32B, 0.5B), graphs (steps and forward without graphs, without overlap), faults (a
# device that fails; too little memory), memcheck-TEST, racecheck-TEST, synccheck-TEST.
#
# one and two print the page at the end, 11,000 characters of it, leave DIR/NAME.md and DIR/NAME.tar.gz (logs, JSON), and renew
# both after every piece, so that a command that is stopped keeps what it had. Exit code 0: all that could run has passed; 1:
# something failed; 2: usage; 3: nothing failed, but something was cut or not started for want of time.
# PYTHON (python3) is the one with PyTorch. COMPUTE_SANITIZER and NCU name other ones.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
command=${1:-} out='' arch=90a limit='' only='' emulated='' from='' python=${PYTHON:-python3}
say() { printf '== %s\n' "$*" >&2; }
die() { printf 'gpu_slot.sh: %s\n' "$*" >&2; exit 2; }
[ $# -eq 0 ] || shift
while [ $# -gt 0 ]; do
    case $1 in
    --emulated) emulated=1 ;;
    --out | --arch | --seconds | --only | --from)
        [ $# -ge 2 ] || die "$1 wants a value"
        case $1 in --out) out=$2 ;; --arch) arch=$2 ;; --seconds) limit=$2 ;; --only) only=$2 ;; --from) from=$2 ;; esac
        shift ;;
    *) die "unknown flag '$1': see the head of tests/gpu_slot.sh" ;;
    esac
    shift
done
case $command in build | one | two | all | rehearse) ;; *) die "build, one, two, all or rehearse, found '$command'" ;; esac
[ -n "$out" ] || die "--out DIR is missing"
mkdir -p "$out"
out=$(cd "$out" && pwd)

# ---- the bundle

tests=(intrinsics gemm attention rows sample forward lora steps experts model peers processes real_shapes)
scripts=(bench/{serving,models,torch_same,torch_kernels,gpu_faults}.py
         tools/{make_gguf,make_vocab_gguf,gguf_file,gguf_quants,folder_quants}.py)
build() {
    local root=${here%/tests} b t device programs size tracked
    b=$(mktemp -d)/bundle
    if [ -n "$emulated" ]; then
        if [ -z "$from" ]; then
            from=$root/build/release
            cmake -S "$root" --preset release >&2
            cmake --build "$from" --target emulated_gpu_tests quire quire-bench quire-cuda-emulated fault-backend >&2
        fi
        device=$from/kernels/cuda/quire-cuda-emulated.so programs=$from/tests/emulated_gpu_tests
    else
        if [ -z "$from" ]; then
            from=$root/build/gpu
            cmake -S "$root" -B "$from" -G Ninja -DCMAKE_BUILD_TYPE=Release -DQUIRE_CUDA=ON "-DQUIRE_CUDA_ARCHS=$arch" \
                '-DCMAKE_BUILD_RPATH=$ORIGIN/../lib' -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags >&2
            NVCC_APPEND_FLAGS=-lineinfo cmake --build "$from" -j "$(nproc)" --target gpu_tests quire quire-bench quire-cuda fault-backend >&2
        fi
        device=$from/kernels/cuda/quire-cuda.so programs=$from/gpu/gpu_tests
    fi
    mkdir -p "$b"/{bin,lib/quire,models,tests/bench,tests/tools}
    cp "$programs" "$b/bin/gpu_tests"
    cp "$from"/{quire,quire-bench} "$b/bin/"
    strip "$b"/bin/*
    for t in "${tests[@]/#/test_}" bench_cuda; do ln -s gpu_tests "$b/bin/$t"; done
    cp "$device" "$b/lib/quire/quire-cuda.so"
    cp "$from/tests/fault-backend.so" "$b/lib/quire/"
    cp "$root/tests/gpu_slot.sh" "$b/"
    cp "$root/models/quire-tiny.gguf" "$b/models/"
    for t in "${scripts[@]}"; do cp "$root/tests/$t" "$b/tests/$t"; done
    # Copies the libraries of Debian's packages that the programs need, and theirs in turn; not the C and C++ libraries, not CUDA's.
    ldd "$b"/bin/* | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u |
        grep -Ev '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s|cuda)\.so[.0-9]*)$' |
        while read -r t; do cp -L "$t" "$b/lib/"; done
    {
        printf 'commit %s, ' "$(git -C "$root" describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)"
        if [ -n "$emulated" ]; then echo emulated; else echo "built for sm_$arch"; fi
    } >"$b/about"
    # Test program and module hold the same kernels: a window wide enough finds them again, in one thread alone.
    tar -C "${b%/bundle}" -c bundle | xz -T1 --lzma2=preset=1,dict=96MiB >"$out/quire-gpu.tar.xz"
    rm -rf "${b%/bundle}"
    size=$(stat -c %s "$out/quire-gpu.tar.xz")
    tracked=$(cd "$root" && git ls-files -z 2>/dev/null | du -cb --files0-from=- 2>/dev/null | tail -n 1 | cut -f 1)
    say "$out/quire-gpu.tar.xz: $((size >> 20)) MiB; with the tree's tracked files $(((size + tracked) >> 20)) MiB"
    [ "$size" -le $((40 << 20)) ] && [ $((size + tracked)) -lt $((64 << 20)) ] || die "that is too large to be sent: 40 MiB, 64 MiB"
}

# ---- pieces: each ends at its own second of the command, and leaves a line of status and a log, whatever becomes of it

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
            if [ -e "$f" ]; then printf '\n' && head -n "$table" "$f"; fi
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

# piece UNTIL NAME COMMAND…: exit code 77 of the command: it cannot run here, and its last line says why.
piece() {
    local until=$1 name=$2 log began=$SECONDS rc=0 most number
    shift 2
    number=$(printf %03d "$count")
    log=$work/$number-${name//[ \/]/-}.log
    most=$(((until < limit ? until : limit) - SECONDS))
    if [ "$most" -lt 3 ]; then
        status "$name" 'skipped because no time was left' 0 ''
        return
    fi
    status "$name" 'began, and the command ended first' '' ''
    say "$SECONDS s: $name"
    timeout -k 3 "$most" "$@" >"$log" 2>&1 || rc=$?
    case $rc in
    0) status "$name" ran $((SECONDS - began)) "$(grep -v '^|' "$log" | tail -n 1)" ;; # a table goes below
    77) status "$name" "skipped because $(tail -n 1 "$log")" 0 '' ;;
    124 | 137) # stopped by the limit, or, where that is not over, killed by another
        if [ $((SECONDS - began)) -ge "$most" ]; then
            status "$name" "**cut at $most s**" "$most" "$(tail -n 1 "$log")"
        else
            status "$name" "**FAILED** (killed)" $((SECONDS - began)) "$(tail -n 1 "$log")"
        fi ;;
    *) status "$name" "**FAILED** (exit code $rc)" $((SECONDS - began)) "$(last_words "$log")" ;;
    esac
}
last_words() { # the first that a test says has failed, else the end
    grep -m 1 -B 1 '^\[ FAILED \]' "$1" | tr '\n' ' ' | grep . || tail -n 1 "$1"
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
start() { # side by side; `finish` waits for those that began since the last one
    wanted "$2" || return 0
    count=$((count + 1))
    piece "$@" &
    started="$started $!"
}
started=''
finish() {
    # shellcheck disable=SC2086 # several words; without one it would wait for the clocks, too
    [ -z "$started" ] || wait $started || true
    started=''
}
skip() { # NAME WHY
    wanted "$1" || return 0
    count=$((count + 1))
    local number
    number=$(printf %03d "$count")
    status "$1" "skipped because $2" 0 ''
}

has_module() { "$python" -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))' "$@" 2>/dev/null; }

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

# Tests that take long and add little there; ctest runs all of them on the emulator.
few=test_types,test_many_rows,test_exact,test_exact_company,test_wide_steps,test_random_rows,test_far_blocks
fewer=$few,test_wide_prefill,test_window_pages,test_misuse,test_attention_paths,test_company,test_more_buckets,test_launches,test_embedded
fewer=$fewer,test_near,test_graphs_of_specs

environment() { # where we are, while the file and PyTorch come from the disk
    local missing
    { nproc; free -g; df -h "$work"; ldd --version | head -n 1; echo "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}"; } || true
    missing=$(ldd bin/gpu_tests bin/quire lib/quire/quire-cuda.so 2>/dev/null | grep -c 'not found' || true)
    ldd bin/gpu_tests bin/quire lib/quire/quire-cuda.so
    [ -n "$emulated" ] || nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.max.sm,power.limit --format=csv,noheader
    echo "$missing libraries missing"
    [ "$missing" -eq 0 ]
}
same_words() {
    local d n=60
    [ -z "$emulated" ] || n=6
    for d in cpu cuda; do
        bin/quire generate models/quire-tiny.gguf --raw --device $d --temperature 0 -n $n -p 'Once upon a time' >"$work/$d.txt"
    done
    cmp "$work/cpu.txt" "$work/cuda.txt" && echo "the same $n tokens on both"
}

# ---- one: docs/gpu/README.md says what follows from it

one() {
    local t file=$work/8b.gguf tiny=() threads shape=(--preset llama-8b --type q8_0) leave=$few
    local clients=1,16,64,256 lengths=(--prompt 512 --output 256) flags='--device cuda'
    threads=$(($(nproc) / 2 > 0 ? $(nproc) / 2 : 1))
    if [ -n "$emulated" ]; then
        tiny=(--tiny) leave=$fewer clients=1,2 lengths=(--prompt 12 --output 4 --vocab 400) flags="$flags --num-gpu-blocks-override 64"
        shape=(--layers 1 --hidden 64 --heads 2 --kv-heads 1 --ffn 64 --vocab 512 --context 256 --type q8_0)
    fi
    "$python" tests/tools/make_gguf.py "$file" "${shape[@]}" >"$work/file.log" 2>&1 &
    local making=$!
    [ -n "$emulated" ] || { "$python" -c 'import torch' >/dev/null 2>&1 & } # into the page cache
    run 8 environment bash -c environment
    run 25 "test intrinsics" bin/test_intrinsics
    run 40 words bash -ec same_words
    for t in gemm attention rows sample forward lora steps experts model peers; do
        start 95 "test $t" env "QUIRE_LEAVE_OUT=$leave" "bin/test_$t"
    done
    start 95 "two processes on one device" timeout 20 bin/test_processes
    finish
    start 175 "real shapes 8b" env QUIRE_RUN=test_8b "QUIRE_THREADS=$threads" bin/test_real_shapes # mostly the CPUs'
    run 175 steps bin/bench_cuda "$work/1-steps" --only brief "${tiny[@]}"
    finish
    wait $making || true
    run 250 clients "$python" tests/bench/serving.py --build bin --files "$file" --clients $clients --waves 1 --sharers 0 --limit-passes 0 \
        "${lengths[@]}" --quire-flags "$flags" --json "$work/clients.json"
    grep -hs '^|' "$work/"*-clients.log >"$work/2-clients.md" || rm "$work/2-clients.md"
    rm -f "$file"
    run 285 gemm bin/bench_cuda "$work/3-gemm" --only gemm "${tiny[@]}"
    run 305 attention bin/bench_cuda "$work/4-attention" --only attention "${tiny[@]}"
    if has_module torch && [ -e "$work/3-gemm.json" ]; then
        run 330 "GEMM of PyTorch" "$python" tests/bench/torch_kernels.py "$work/5-torch" --only gemm --beside "$work/3-gemm.json" "${tiny[@]}"
    else
        skip "GEMM of PyTorch" "$python has no torch (PYTHON names another), or there is nothing beside it"
    fi
}

# ---- two

metrics=sm__throughput.avg.pct_of_peak_sustained_elapsed,dram__throughput.avg.pct_of_peak_sustained_elapsed
metrics=$metrics,lts__t_sector_hit_rate.pct,lts__throughput.avg.pct_of_peak_sustained_elapsed,l1tex__t_sector_hit_rate.pct
metrics=$metrics,sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active,sm__warps_active.avg.pct_of_peak_sustained_active
metrics=$metrics,smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio,gpu__time_duration.sum
metrics=$metrics,smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio,smsp__issue_active.avg.pct_of_peak_sustained_active
metrics=$metrics,l1tex__data_bank_conflicts_pipe_lsu.sum

two() {
    local x t until what tiny=() ncu=${NCU:-$(tool ncu)} sanitizer=${COMPUTE_SANITIZER:-$(tool compute-sanitizer)}
    local file=$work/8b.gguf shape=(--preset llama-8b --type q8_0)
    if [ -n "$emulated" ]; then
        tiny=(--tiny) shape=(--layers 1 --hidden 64 --heads 2 --kv-heads 1 --ffn 64 --vocab 512 --context 256 --type q8_0)
    fi
    read -r -a what <<<"${WHAT:-ncu torch}"
    for x in "${!what[@]}"; do
        until=$((SECONDS + (limit - SECONDS) / (${#what[@]} - x)))
        x=${what[x]}
        case $x in
        ncu)
            if [ -z "$ncu" ]; then skip ncu 'there is no ncu'; else
                run $until ncu "$ncu" --clock-control none --csv --kernel-name 'regex:^(gemm|decode|combine|prefill|sample)' --metrics "$metrics" --log-file "$work/ncu.csv" bin/bench_cuda "$work/profile" --only profile "${tiny[@]}"
            fi ;;
        torch)
            if has_module torch transformers; then run $until "steps of PyTorch" "$python" tests/bench/torch_same.py "$work/torch" "${tiny[@]}"; else
                skip "steps of PyTorch" "$python has no torch with transformers (PYTHON names another)"
            fi ;;
        wgmma)
            start $until "real shapes 8b, wgmma" env QUIRE_RUN=test_8b "QUIRE_THREADS=$(nproc)" QUIRE_CUDA_WGMMA=1 bin/test_real_shapes
            run $until "steps, wgmma" env QUIRE_CUDA_WGMMA=1 bin/bench_cuda "$work/wgmma" --only brief "${tiny[@]}"
            finish ;;
        rest)
            for t in gemm attention forward steps model; do start $until "rest of test $t" env "QUIRE_RUN=$few" "bin/test_$t"; done
            finish ;;
        shapes)
            for t in 70b 32b half_b; do start $until "real shapes $t" env "QUIRE_RUN=test_$t" "QUIRE_THREADS=$((($(nproc) + 2) / 3))" bin/test_real_shapes; done
            finish ;;
        graphs)
            for t in steps forward; do
                start $until "test $t, no graphs" env "QUIRE_LEAVE_OUT=$few" QUIRE_CUDA_GRAPHS=0 "bin/test_$t"
                start $until "test $t, no overlap" env "QUIRE_LEAVE_OUT=$few" QUIRE_CUDA_OVERLAP=0 "bin/test_$t"
            done
            finish ;;
        faults)
            run $until "file of 8B" "$python" tests/tools/make_gguf.py "$file" "${shape[@]}"
            run $until "device that fails" "$python" tests/bench/gpu_faults.py fault "$file"
            run $until "too little memory" "$python" tests/bench/gpu_faults.py memory "$file" ;;
        memcheck-* | racecheck-* | synccheck-*)
            if [ -z "$sanitizer" ]; then skip "$x" 'there is no compute-sanitizer'; else
                run $until "$x" env "QUIRE_LEAVE_OUT=$few" "$sanitizer" --tool "${x%%-*}" --error-exitcode 9 "bin/test_${x#*-}"
            fi ;;
        *) die "WHAT: there is no '$x'" ;;
        esac
    done
}

# ---- one command

measure() {
    bundle=$here table=44
    [ -x "$bundle/bin/bench_cuda" ] || die "no bundle: $0 build makes it"
    case $command in one) limit=${limit:-335} ;; two) limit=${limit:-240} ;; esac
    emulated=$(grep -o emulated "$bundle/about" || true)
    page=$out/$command.md
    work=$(mktemp -d)/$command
    mkdir -p "$work/status"
    cd "$bundle"
    gpu=emulator
    local clocks='' printed
    if [ -z "$emulated" ]; then
        command -v nvidia-smi >/dev/null || die "there is no nvidia-smi"
        gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
        find_cuda
        nvidia-smi -q >"$work/nvidia-smi.txt"
        nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu,clocks_throttle_reasons.active \
            --format=csv,noheader,nounits -l 1 >"$work/clocks.csv" &
        clocks=$!
    fi
    export -f environment same_words
    export work emulated
    # shellcheck disable=SC2064 # the clocks of now
    trap "[ -z '$clocks' ] || kill $clocks 2>/dev/null; write_page" EXIT
    $command
    [ -z "$clocks" ] || { kill "$clocks" && summarise_clocks; } || true
    [ "$count" -eq 0 ] || write_page
    trap - EXIT
    rm -rf "$(dirname "$work")"
    [ "$count" -gt 0 ] || die "no piece of $command has one of the words '$only'"
    printed=$(head -c 11000 "$page")
    printf '%s\n' "$printed"
    say "$SECONDS s: $page"
    if grep -q '^|.*| \*\*FAILED' "$page"; then return 1; fi
    if grep -qE '^\|.*\| (\*\*cut|skipped because no time)' "$page"; then return 3; fi
}
summarise_clocks() {
    sort -t , -k 2 -n "$work/clocks.csv" | awk -F ', *' '
        { sm[NR] = $2; if ($4 > power) power = $4; if ($5 > hot) hot = $5; reasons[$7]++ }
        END { printf "## Clocks\n\n%d samples, one a second: SM %s to %s MHz, median %s; at most %s W, %s °C. Throttle reasons (samples):", NR, sm[1], sm[NR], sm[int((NR + 1) / 2)], power, hot
              for (r in reasons) printf " %s (%d)", r, reasons[r]; print "." }' >"$work/0-clocks.md"
}

case $command in
build) build ;;
one | two) measure ;;
all | rehearse)
    more=(--out "$out") given=() asked=${WHAT:-}
    [ -z "$only" ] || more+=(--only "$only")
    [ "$command" = all ] || { given=(--emulated) asked=${asked:-graphs wgmma faults memcheck-rows}; }
    [ -z "$from" ] || given+=(--from "$from")
    "$0" build --out "$out" --arch "$arch" "${given[@]}"
    # As it arrives on another machine, and as long as it may run there.
    rm -rf "$out/bundle"
    tar -C "$out" -xf "$out/quire-gpu.tar.xz"
    worst=2 # --only may name no piece of a part
    for part in one two; do
        rc=0 most=350
        [ $part = one ] || most=245
        WHAT=$asked timeout -k 5 $most "$out/bundle/gpu_slot.sh" $part "${more[@]}" || rc=$?
        case $rc:$worst in 124:* | 137:*) die "$part has not ended in time" ;; 1:* | 3:[02] | 0:2) worst=$rc ;; esac
    done
    [ "$command$worst" != rehearse3 ] || worst=0 # times of the emulator are nobody's: what is cut there has run
    exit "$worst"
    ;;
esac
