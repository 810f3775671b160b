#!/bin/sh
# Runs another project's tests as they are against a built binary.
#
#   tests/peers/run.sh llama-server|openai-python [arguments of pytest]
#
# A pytest plugin of the suite's name starts `quire serve` and translates what has another name here. The .txt file of
# that name has every test that does not pass, with the reason (known.py). Sampled texts are not compared: they depend
# on the random numbers. What vLLM's tests assert is in tests/http/test_vllm_behaviour.py.
#
# Environment: LLAMA_CPP, a checkout of llama.cpp; QUIRE_BINARY and QUIRE_TEST_DATA as of tests/http; PYTHON (python3).
set -eu
suite=${1:-}
[ $# -eq 0 ] || shift
here=$(cd "$(dirname "$0")" && pwd)
venv=$here/../../.venv-peers
if [ "$suite" = llama-server ] && [ ! -d "${LLAMA_CPP:-}/tools/server/tests" ]; then
    echo "run.sh: skipped: LLAMA_CPP names no checkout of llama.cpp" >&2
    exit 0
fi

if ! cat "$here/../http/requirements.txt" "$here/requirements.txt" | cmp -s - "$venv/requirements.txt"; then
    [ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/../http/requirements.txt" -r "$here/requirements.txt" >&2
    cat "$here/../http/requirements.txt" "$here/requirements.txt" >"$venv/requirements.txt"
fi

export PYTHONDONTWRITEBYTECODE=1 QUIRE_BINARY="${QUIRE_BINARY:-$here/../../build/release/quire}"
[ $# -gt 0 ] || export QUIRE_PEERS_WHOLE=1 # every row of the table must name a test
pytest() { # TABLE'S NAME, arguments
    export PYTHONPATH="$here:." QUIRE_PEERS_TABLE="$here/$1.txt"
    plugin=$1
    shift
    exec "$venv/bin/python" -m pytest -q -p known -p "$plugin" -p no:cacheprovider --timeout 60 "$@"
}

case $suite in
llama-server)
    cd "$LLAMA_CPP/tools/server/tests"
    pytest llama_server -m "not slow" unit "$@"
    ;;
openai-python) # the tests come with the source of the client that tests/http uses
    version=$(sed -n 's/^openai==//p' "$here/../http/requirements.txt")
    source=$venv/openai-$version
    if [ ! -d "$source" ]; then
        "$venv/bin/python" -m pip download --quiet --no-deps --no-binary :all: -d "$venv/source" "openai==$version" >&2
        tar xzf "$venv/source/openai-$version.tar.gz" -C "$venv"
    fi
    cd "$source"
    tests=tests/api_resources
    pytest openai_python -c /dev/null --rootdir . -o asyncio_mode=auto -o asyncio_default_fixture_loop_scope=session \
        $tests/test_completions.py $tests/test_models.py $tests/chat/test_completions.py "$@"
    ;;
*)
    echo "usage: tests/peers/run.sh llama-server|openai-python [arguments of pytest]" >&2
    exit 2
    ;;
esac
