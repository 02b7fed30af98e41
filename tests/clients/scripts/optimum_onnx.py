"""optimum-onnx: export and inference of ORTModel classes."""

from optimum.onnxruntime import ORTModelForFeatureExtraction
from transformers import AutoTokenizer

PACKAGES = ["optimum-onnx[onnxruntime]==0.1.0", "onnx", "onnxscript"]
REMARK = (
    "Requires transformers < 4.58 ([optimum-onnx "
    "#114](https://github.com/huggingface/optimum-onnx/issues/114)); `mybert export` does not need "
    "it."
)


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    model = ORTModelForFeatureExtraction.from_pretrained(folder, export=True)
    inputs = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="np")
    found = model(**inputs).last_hidden_state
    return [found * inputs["attention_mask"][..., None]]
