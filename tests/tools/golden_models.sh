#!/bin/sh
# Small random models of every architecture in FOLDER, and cover.txt. They are made once for all builds of a checkout: what another
# build has made stays, though ninja, which knows only what it made itself, asks for it. Models of other makers, beside FOLDER, go.
# usage: golden_models.sh PYTHON FOLDER
set -eu
python=$1 models=$2
tools=$(dirname "$0")
[ ! -e "$models/made" ] || exit 0
rm -rf "$(dirname "$models")"
mkdir -p "$models"
"$python" "$tools/make_goldens.py" --models "$models"
"$python" "$tools/make_encoders.py" --models "$models"
"$python" "$tools/cover.py" goldens >"$models/cover.txt"
touch "$models/made"
