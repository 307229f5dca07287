#!/bin/sh
# Predict with the compiled program beside this script. Stored files have lost the permission to run: copy it.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp "$(dirname "$0")/softmax" "$scratch/softmax"
chmod +x "$scratch/softmax"
"$scratch/softmax" predict "$@"
