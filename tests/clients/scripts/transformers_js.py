"""transformers.js: feature extraction in Node, in float32 and int8."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
from transformers import AutoTokenizer

PACKAGES = ["onnxruntime"]
VERSION = "4.3.2"
READS = "export"
REMARK = "Reads the folder of `mybert export --int8`; int8 is compared with ONNX Runtime in Python."

PROGRAM = """
import { env, pipeline } from "@huggingface/transformers";
const [folder, name, ...texts] = process.argv.slice(1);
env.localModelPath = folder;
env.allowRemoteModels = false;
const found = [];
for (const dtype of ["fp32", "q8"]) {
  const embed = await pipeline("feature-extraction", name, { dtype });
  for (const text of texts) found.push((await embed(text, { pooling: "mean", normalize: true })).tolist()[0]);
}
console.log(JSON.stringify(found));
"""


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    if not Path("node_modules").exists():  # without its scripts, which download libraries for GPUs
        install = [shutil.which("npm"), "install", "--ignore-scripts", "--prefix", "."]
        subprocess.run([*install, f"@huggingface/transformers@{VERSION}"], check=True)
    path = Path(folder)
    node = ["node", "--input-type=module", "--eval", PROGRAM, "--", str(path.parent), path.name]
    found = subprocess.run([*node, *texts], check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
    float32, int8 = np.split(np.array(json.loads(found.splitlines()[-1])), 2)
    np.testing.assert_allclose(int8, quantised(path, texts), atol=1e-3)
    return [float32]


def quantised(folder: Path, texts: list[str]) -> np.ndarray:
    """The mean vectors of the quantised graph, in ONNX Runtime."""
    session = onnxruntime.InferenceSession(folder / "onnx/model_quantized.onnx")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    means = [session.run(None, dict(tokenizer([text], return_tensors="np")))[0][0].mean(0) for text in texts]
    return np.stack([mean / np.linalg.norm(mean) for mean in means])
