#!/bin/sh
# Runs tests/http against a built binary, in a virtual environment that it makes where there is none.
#
#   tests/tools/run_http_tests.sh [arguments of pytest]        e.g. --slow, -k golden, tests/http/test_auth.py
#
# Environment: QUIRE_BINARY (build/release/quire), QUIRE_TEST_DATA (../shared/data), QUIRE_REQUIRE_DATA=1 (missing
# data fails), QUIRE_SLOW=1, QUIRE_DISCONNECTS (300), QUIRE_VENV (.venv), PYTHON (python3).
set -eu
cd "$(dirname "$0")/../.."
venv=${QUIRE_VENV:-.venv}
wanted=tests/http/requirements.txt
stamp=$venv/requirements.txt # where ./dev looks, too

if ! cmp -s "$wanted" "$stamp"; then
    if [ ! -x "$venv/bin/python" ]; then
        "${PYTHON:-python3}" -m venv "$venv" || {
            echo "run_http_tests.sh: no virtual environment; on Debian: apt install python3-venv" >&2
            exit 2
        }
    fi
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$wanted" >&2
    cp "$wanted" "$stamp"
fi

# Paths among the arguments replace the whole folder.
paths=tests/http
for argument in "$@"; do
    case $argument in tests/http/*) paths= ;; esac
done
exec env PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" -m pytest -c tests/http/pytest.ini --rootdir tests/http $paths "$@"
