#!/usr/bin/env bash
# Builds the image of Dockerfile and uses it as an operator would: read-only, as an unknown user, without capabilities, with
# a key. Asks it from outside, stops it, and prints the image's size.
#
#   tests/container.sh [MODEL.gguf]           default: a small model of random weights
#   tests/container.sh cuda [MODEL.gguf]      that of Dockerfile.cuda: what it loads is in it, and without a GPU it serves, and says why
#   tests/container.sh arm64                  Dockerfile's for ARM64: its program under QEMU says what build/release/quire says, and serves
#
# Needs root, podman, runc, debootstrap, python3 (`./dev container` installs them), and a Debian mirror, but no registry and no
# Docker daemon: the base image is made by debootstrap under the name that Dockerfile uses, and kept in build/container. With
# /usr/local/cuda of this machine in it, it stands for NVIDIA's, too.
#
#   DEBIAN_MIRROR   default http://deb.debian.org/debian; Dockerfile's packages come from it, too
#   http_proxy …    are used where they are set
#   STORAGE_DRIVER  of podman, default vfs, which works on every file system; overlay is faster
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" -eq 0 ] || exec sudo -E "$0" "$@"
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
image=quire most=50 platform= # most: MB of the image
case ${1:-} in cuda) image=quire-cuda most=900 ;; arm64) platform=linux/arm64 ;; esac
case ${1:-} in cuda | arm64) shift ;; esac
base_name=$(sed -n 's/^FROM .*\(debian:[^ ]*\) AS build$/\1/p' Dockerfile)
base_tar=$PWD/build/container/base.tar
key=key-of-the-container-test

say() { printf '== %s\n' "$*" >&2; }
die() { printf 'container: %s\n' "$*" >&2; exit 1; }

work=$(mktemp -d)
podman=(podman --log-level fatal --root "$work/store" --runroot "$work/run" --storage-driver "${STORAGE_DRIVER:-vfs}"
        --cgroup-manager cgroupfs --events-backend none --runtime runc)
finish() {
    "${podman[@]}" rm --all --force >/dev/null 2>&1 || true
    "${podman[@]}" image unmount --all --force >/dev/null 2>&1 || true
    "${podman[@]}" unmount --all --force >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap finish EXIT

case $base_name in debian:*) ;; *) die "Dockerfile: expected 'FROM … debian:… AS build', found '$base_name'" ;; esac
if [ ! -f "$base_tar" ]; then
    say "making $base_name from $mirror"
    suite=${base_name#debian:}
    mkdir -p "${base_tar%/*}"
    debootstrap --variant=minbase "${suite%-slim}" "$work/base" "$mirror" >"$work/log" || { tail "$work/log" >&2; die "no base"; }
    # what the slim images leave out
    for d in usr/share/doc usr/share/man usr/share/info usr/share/locale var/cache/apt var/lib/apt/lists var/log; do
        find "$work/base/$d" -mindepth 1 ! -type d ! -name copyright -delete
    done
    tar -C "$work/base" -c . >"$base_tar.new"
    mv "$base_tar.new" "$base_tar"
    rm -rf "$work/base"
fi
# podman 4.3 looks for a base of the image's own platform, whatever FROM says: it is called so, though its programs are this machine's.
"${podman[@]}" import ${platform:+--arch "${platform#*/}"} "$base_tar" "docker.io/library/$base_name" >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; die "no base"; }

build() { # [arguments of podman build…]
    "${podman[@]}" build --pull=never --isolation chroot --format docker --layers=false "$@" . >"$work/log" 2>&1 ||
        { tail -n 60 "$work/log" >&2; die "the image does not build"; }
}
print_size() { # and the largest files
    local bytes root
    bytes=$("${podman[@]}" image inspect "$image" --format '{{.Size}}')
    root=$("${podman[@]}" image mount "$image")
    awk -v b="$bytes" 'BEGIN { printf "image: %.1f MB, of which\n", b / 1e6 }'
    find "$root" -type f -size +1M -printf '%s %P\n' | sort -rn | awk '{ printf "  %5.1f MB %s\n", $1 / 1e6, $2 }'
    [ "$bytes" -le "${most}000000" ] || die "more than $most MB"
}
say "building"
build --build-arg "DEBIAN_MIRROR=$mirror" ${platform:+--platform "$platform"} -t quire
if [ -n "$platform" ]; then
    [ "$("${podman[@]}" image inspect quire --format '{{.Architecture}}')" = arm64 ] || die "the image is not for ARM64"
    root=$("${podman[@]}" image mount quire)
    tests/arm64/smoke.sh "$root" "$root/usr/local/bin/quire" build/release/quire
    print_size
    exit
fi
if [ "$image" = quire-cuda ]; then
    toolkit=$(realpath /usr/local/cuda)
    [ -x "$toolkit/bin/nvcc" ] || die "no nvcc in /usr/local/cuda"
    "${podman[@]}" import "$base_tar" "docker.io/$(sed -n 's/^FROM \(.*\) AS build$/\1/p' Dockerfile.cuda)" >/dev/null 2>&1
    say "building the CUDA module"
    build -f Dockerfile.cuda --volume "$toolkit:/usr/local/cuda:ro" -t quire-cuda
fi

# Limits that no container may raise above this process's, and no network of its own, which would need plugins.
basic=(--network host --ulimit nofile=1024:1024 --ulimit nproc=4096:4096)
# As an operator would: nothing writable, a user that no file knows, no capabilities.
limits=(--read-only --read-only-tmpfs=false --user 12345:54321 --cap-drop all --security-opt no-new-privileges
        "${basic[@]}")
model=${1:-}
if [ -z "$model" ]; then
    model=$work/model.gguf
    python3 tests/tools/make_gguf.py "$model" --type q8_0
fi
mount=(--volume "$(realpath "$model"):/models/m.gguf:ro")
chmod 755 "$work" # another user reads the model through it

say "commands"
"${podman[@]}" run --rm "${limits[@]}" "$image" --version | grep -q '^quire [0-9]' || die "quire --version"
[ "$("${podman[@]}" image inspect "$image" --format '{{.Config.User}}')" = 65532:65532 ] || die "the image's own user is not 65532"
"${podman[@]}" create --name still "$image" >/dev/null
"${podman[@]}" export still | tar -t >"$work/files"
"${podman[@]}" rm still >/dev/null
if grep -E '/(ba|da|z)?sh$|busybox|/apt|/dpkg' "$work/files"; then die "the image has a shell, or more"; fi
"${podman[@]}" run --rm "${limits[@]}" --entrypoint quire-bench "$image" --help | grep -e --goodput >/dev/null || die "quire-bench --help"
if [ "$image" = quire-cuda ]; then
    for file in /usr/local/lib/quire/quire-cuda.so $(sed -n 's|^usr/local/cuda/lib64/lib.*|/&|p' "$work/files"); do
        "${podman[@]}" run --rm "${limits[@]}" --entrypoint /lib64/ld-linux-x86-64.so.2 "$image" --list "$file" >"$work/log" 2>&1 &&
            ! grep 'not found' "$work/log" || { cat "$work/log" >&2; die "$file does not load"; }
    done
fi
free_port() { python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
port=$(free_port)
if "${podman[@]}" run --rm "${limits[@]}" --env "QUIRE_PORT=$port" "$image" health >"$work/log" 2>&1; then
    die "quire health succeeds where nobody listens"
fi
want=$("${podman[@]}" run --rm "${limits[@]}" "${mount[@]}" "$image" generate /models/m.gguf --raw -p 'Once upon a time' -n 16 --json)

serve() { # [arguments of podman…] -- [arguments of quire…]; waits until the health check passes
    local options=()
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    "${podman[@]}" run --detach --name served "${limits[@]}" --env "QUIRE_PORT=$port" "${options[@]}" "$image" "$@" >/dev/null
    for _ in $(seq 600); do
        "${podman[@]}" healthcheck run served >/dev/null 2>&1 && return
        "${podman[@]}" logs served 2>&1 | grep -q '^quire: ' && break
        sleep 0.1
    done
    "${podman[@]}" logs served >&2
    die "the container is not healthy"
}

stop() {
    "${podman[@]}" stop --time 60 served >/dev/null
    local code
    code=$("${podman[@]}" inspect served --format '{{.State.ExitCode}}')
    [ "$code" = 0 ] || { "${podman[@]}" logs served >&2; die "exit code $code after the stop signal"; }
    "${podman[@]}" rm served >/dev/null
}

say "serving"
serve "${mount[@]}" --env "QUIRE_API_KEY=$key" -- serve /models/m.gguf
python3 - "http://127.0.0.1:$port" "$key" "$want" <<'PYTHON'
import json, sys, urllib.error, urllib.request

url, key, want = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])

def complete(headers):
    body = json.dumps({"prompt": "Once upon a time", "max_tokens": 16, "temperature": 0}).encode()
    headers = {"Content-Type": "application/json", **headers}
    with urllib.request.urlopen(urllib.request.Request(url + "/v1/completions", body, headers), timeout=60) as r:
        return json.load(r)

try:
    complete({})
    sys.exit("it answers without the key")
except urllib.error.HTTPError as e:
    assert e.code == 401, e
answer = complete({"Authorization": "Bearer " + key})
assert answer["choices"][0]["text"] == want["text"] and want["usage"]["completion_tokens"] > 0, (answer, want)
assert answer["usage"]["completion_tokens"] == want["usage"]["completion_tokens"], (answer, want)
PYTHON
stop

say "serving the embedded model, until SIGTERM, which a running request outlives"
serve --
if [ "$image" = quire-cuda ]; then
    "${podman[@]}" logs served 2>&1 | grep 'the model runs on the CPU, as CUDA does not work here: no NVIDIA driver (libcuda.so.1)' ||
        die "the log does not say why there is no GPU"
fi
python3 examples/stream.py "http://127.0.0.1:$port" 'Once upon a time' 16 | grep -q . || die "no text"
python3 - "http://127.0.0.1:$port" >"$work/text" <<'PYTHON' &
import json, sys, urllib.request

body = json.dumps({"prompt": "Once upon a time", "max_tokens": 900, "n": 16, "ignore_eos": True, "stream": True}).encode()
request = urllib.request.Request(sys.argv[1] + "/v1/completions", body, {"Content-Type": "application/json"})
for line in urllib.request.urlopen(request, timeout=60):
    sys.stdout.write(line.decode())
    sys.stdout.flush()
PYTHON
asked=$!
until [ -s "$work/text" ]; do sleep 0.01; done
stop
wait $asked
[ "$(grep -c '"finish_reason":"length"' "$work/text")" = 16 ] || { tail -n 3 "$work/text" >&2; die "answers were cut off"; }

print_size
