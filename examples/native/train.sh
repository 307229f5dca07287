#!/bin/sh
# Compile the C program, train with it, store the model: podium gives PODIUM_DATA and PODIUM_OUTPUT, the Experiment the flags.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/model"
podium storage get "$PODIUM_DATA" "$scratch/data" > /dev/null # from a directory or a bucket
${CC:-cc} -std=c99 -O2 -o "$scratch/model/softmax" softmax.c -lm
"$scratch/model/softmax" train --data "$scratch/data" --output "$scratch/model" "$@"
cp predict.sh "$scratch/model"
printf '{"predict": ["sh", "predict.sh"]}\n' > "$scratch/model/model.json"
podium storage put "$scratch/model" "$PODIUM_OUTPUT" > /dev/null
