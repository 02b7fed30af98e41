#!/usr/bin/env bash
# Everything that needs a GPU, in parts of at most ten minutes; each writes its tables to $OUTPUT/PART.md.
#
#     benchmarks/gpu.sh [PART…]                       all parts, most valuable first, or those that are named (gpu.py
#                                                     describes them)
#     DEVICE=cpu benchmarks/gpu.sh [PART…]            a dry run without a GPU, with tiny sizes
#
# BUDGET=SECONDS ends the run after that time: the part in progress stops and keeps what it has measured. With 15
# minutes of a GPU, of which some are lost to its start and to installation, BUDGET=540 for a first call and the parts
# that it did not reach in a second one. OUTPUT (default: gpu_results), PYTHON (default: python3), TOKENS (of a training
# step; for less than 80 GB of memory) and LIMIT (seconds of a part, default 600) can be set too.
#
# The GPU machine needs no network, model or data: weights are random, and the text is Python's own documentation. It
# needs torch for CUDA, a C compiler for torch.compile, and the packages that pyproject.toml requires; those that it
# lacks can lie in a folder of PYTHONPATH (pip install --no-index --no-deps --target FOLDER *.whl). Images for CUDA with
# torch and transformers usually lack datasets, evaluate, dill, multiprocess, xxhash, responses, sentencex, shtab,
# seqeval, backports.zstd and tokenizers in the required version: 7 MB.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} DEVICE=${DEVICE:-cuda} OUTPUT=${OUTPUT:-gpu_results}
export PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
python=${PYTHON:-python3}
end=$((SECONDS + ${BUDGET:-86400}))
if [ $# -eq 0 ]; then
    set -- base-512 backends ideas training base-128 inference large-512 large-128 compiled
fi
"$python" benchmarks/gpu.py machine || exit
failed=()
for part in "$@"; do
    left=$((end - SECONDS)) limit=${LIMIT:-600}
    if [ "$left" -lt 20 ]; then
        failed+=("$part (no time left)")
        continue
    fi
    echo "== $part, $SECONDS s after the start"
    timeout --kill-after=10 "$((left < limit ? left : limit))" "$python" benchmarks/gpu.py "$part" ||
        failed+=("$part (status $?)")
done
echo "$SECONDS s; tables: $OUTPUT"
[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}" >&2; exit 1; }
