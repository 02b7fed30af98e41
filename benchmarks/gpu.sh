#!/usr/bin/env bash
# Everything that needs a GPU, in parts of at most ten minutes; each writes its tables to $OUTPUT/PART.md.
#
#     benchmarks/gpu.sh [PART…]                       all parts, or some of those that gpu.py describes
#     DEVICE=cpu benchmarks/gpu.sh [PART…]            a dry run without a GPU, with tiny sizes
#
# OUTPUT (default: gpu_results), PYTHON (default: python), TOKENS (of a training step) and LIMIT (seconds of a part,
# 0: none) can be set too. A part that reaches the limit keeps what it has measured.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export PYTHONPATH=$PWD DEVICE=${DEVICE:-cuda} OUTPUT=${OUTPUT:-gpu_results}
python=${PYTHON:-python}
if [ $# -eq 0 ]; then
    set -- backends training base-128 base-512 large-128 large-512 inference
fi
"$python" benchmarks/gpu.py machine || exit
failed=()
for part in "$@"; do
    echo "== $part"
    timeout --kill-after=10 "${LIMIT:-600}" "$python" benchmarks/gpu.py "$part" || failed+=("$part (status $?)")
done
echo "tables: $OUTPUT"
[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}" >&2; exit 1; }
