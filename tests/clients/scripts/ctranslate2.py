"""CTranslate2."""

import ctranslate2
from transformers import AutoTokenizer

PACKAGES = ["ctranslate2==4.8.5"]
REMARK = "Its converter accepts transformers' own classes only: load the folder as it is."


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    converter = ctranslate2.converters.TransformersConverter(folder, trust_remote_code=remote)
    encoder = ctranslate2.Encoder(converter.convert("converted", force=True))
    ids = AutoTokenizer.from_pretrained(folder)(texts)["input_ids"]
    found = [encoder.forward_batch([row]) for row in ids]
    arrays = [ctranslate2.StorageView.to_device(x.last_hidden_state, ctranslate2.Device.cpu) for x in found]
    return [x.__array__() if hasattr(x, "__array__") else x for x in arrays]
