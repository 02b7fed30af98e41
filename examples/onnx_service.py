"""Serve a classifier with ONNX Runtime and the standard library's HTTP server: `python onnx_service.py ONNX_FOLDER`.

ONNX_FOLDER is made by `mybert export CLASSIFIER --output ONNX_FOLDER`. Neither torch nor MyBERT is needed to
serve it:

    curl -d '["a great film", "a dull one"]' http://localhost:8000
"""

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


class Classifier:
    """Texts to labels and probabilities."""

    def __init__(self, folder: Path):
        self.session = onnxruntime.InferenceSession(folder / "onnx/model.onnx")
        self.names = json.loads((folder / "config.json").read_text(encoding="utf-8"))["id2label"]
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(128)
        self.tokenizer.enable_padding()

    def __call__(self, texts: list[str]) -> list[dict]:
        encoded = self.tokenizer.encode_batch(texts)
        columns = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
        inputs = {name: np.array([getattr(e, column) for e in encoded]) for name, column in columns.items()}
        (logits,) = self.session.run(None, inputs)
        scores = np.exp(logits - logits.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        return [{"label": self.names[str(row.argmax())], "score": float(row.max())} for row in scores]


def make_server(folder: Path, port: int) -> ThreadingHTTPServer:
    classifier = Classifier(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(classifier(texts)).encode())

    return ThreadingHTTPServer(("localhost", port), Handler)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    make_server(options.folder, options.port).serve_forever()
