"""int8 of sentence-transformers' backends "onnx" and "openvino", for int8_speed.py.

Their package optimum needs an older transformers than MyBERT, so this runs in an environment of its own (`pip install
"sentence-transformers[onnx]"` or `"sentence-transformers[openvino]"`). It imports nothing of MyBERT.

    PYTHON benchmarks/sentence_transformers_int8.py BACKEND CHECKPOINT CALIBRATION THREADS

CHECKPOINT gets the quantised model too. CALIBRATION is a folder with train.jsonl, whose lines have a "text".
Reads requests from standard input, one line of JSON each: texts, batch size and a file for the vectors; answers with
the CPU seconds.
"""

import contextlib
import json
import os
import sys
import time

import numpy as np
import torch
from sentence_transformers import (
    SentenceTransformer,
    export_dynamic_quantized_onnx_model,
    export_static_quantized_openvino_model,
)


def quantized(backend: str, checkpoint: str, calibration: str, threads: int) -> SentenceTransformer:
    model = SentenceTransformer(checkpoint, backend=backend, device="cpu")
    if backend == "onnx":
        import onnxruntime

        export_dynamic_quantized_onnx_model(model, "avx512_vnni", checkpoint)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        loaded = {"file_name": "onnx/model_qint8_avx512_vnni.onnx", "session_options": options}
    else:
        data = {"dataset_config_name": "default", "dataset_split": "train", "column_name": "text"}
        export_static_quantized_openvino_model(model, None, checkpoint, dataset_name=calibration, **data)
        options = {"INFERENCE_NUM_THREADS": threads}
        loaded = {"file_name": "openvino/openvino_model_qint8_quantized.xml", "ov_config": options}
    return SentenceTransformer(checkpoint, backend=backend, device="cpu", model_kwargs=loaded)


def main() -> None:
    backend, checkpoint, calibration, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    with open(os.dup(1), "w", encoding="utf-8") as answers, contextlib.redirect_stdout(sys.stderr):
        model = quantized(backend, checkpoint, calibration, int(threads))
        for line in sys.stdin:
            request = json.loads(line)
            began = time.process_time()
            vectors = model.encode(request["texts"], batch_size=request["size"], normalize_embeddings=True)
            seconds = time.process_time() - began
            np.save(request["file"], vectors)
            print(seconds, file=answers, flush=True)


if __name__ == "__main__":
    main()
