"""optimum-intel: export and inference of OVModel classes."""

from optimum.intel import OVModelForFeatureExtraction
from transformers import AutoTokenizer

PACKAGES = ["optimum-intel==2.2.0"]
REMARK = (
    "Requires transformers < 5.6 ([optimum-intel "
    "#1875](https://github.com/huggingface/optimum-intel/pull/1875)); OpenVINO itself reads the model, see "
    "its row."
)


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    model = OVModelForFeatureExtraction.from_pretrained(folder, export=True, ov_config=exact, device="CPU")
    inputs = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="np")
    return [model(**inputs).last_hidden_state * inputs["attention_mask"][..., None]]
