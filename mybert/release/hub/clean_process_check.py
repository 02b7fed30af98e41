"""Checks a published model in a clean process, which has only torch and transformers; int8 weights need MyBERT too.

    python -P clean_process_check.py MODEL REVISION REFERENCE AUTO_CLASS…

REFERENCE is a folder written by `verify.write_reference`. Exits with a message if anything differs from it.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file


@torch.no_grad()
def check_classes(
    model: str, source: dict[str, Any], tensors: dict[str, Any], reference: dict[str, Any], classes: list[str]
) -> None:
    """Compares the outputs of the saved head and of its encoder, bit for bit, by each Auto class that loads them."""
    batches = [_part(tensors, f"inputs/{number}/") for number in range(reference["batches"])]
    flat = {name: x.flatten(0, -2) for name, x in batches[-1].items()}
    found_head = False
    for auto in classes:
        # classes with another head start with new weights, perhaps of another size
        arguments = {**source, "dtype": "auto", "ignore_mismatched_sizes": True, "trust_remote_code": True}
        loaded = getattr(transformers, auto).from_pretrained(model, **arguments).eval()
        _compare(auto, loaded.base_model(**flat), {"last_hidden_state": tensors["encoder"]})
        if type(loaded).__name__ == reference["head"]:
            found_head = True
            for number, batch in enumerate(batches):
                _compare(auto, loaded(**batch), _part(tensors, f"outputs/{number}/"))
    if not found_head:
        sys.exit(f"none of {', '.join(classes)} loads the saved head, {reference['head']}")


def _part(tensors: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}


def _compare(auto: str, outputs: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, tensor in expected.items():
        if name not in outputs or not torch.equal(outputs[name], tensor):
            sys.exit(f"{name} by {auto} differs from that of the checkpoint")


def check_tokenizer_and_labels(model: str, source: dict[str, Any], reference: dict[str, Any]) -> None:
    """Compares the labels, and the token ids by AutoTokenizer with and without remote code."""
    config = transformers.AutoConfig.from_pretrained(model, trust_remote_code=True, **source)
    if {str(index): label for index, label in config.id2label.items()} != reference["labels"]:
        sys.exit("the labels differ from those of the checkpoint")
    for trust in (True, False):
        tokenizer = transformers.AutoTokenizer.from_pretrained(model, trust_remote_code=trust, **source)
        if [tokenizer(text)["input_ids"] for text in reference["texts"]] != reference["ids"]:
            sys.exit("the token ids by AutoTokenizer differ from those of the checkpoint's tokenizer")


def run_pipeline(model: str, source: dict[str, Any], call: dict[str, Any]) -> None:
    """Applies the pipeline of the head to a text longer than the model can read, with the arguments of the card."""
    for trust in call["trust"]:
        pipe = transformers.pipeline(call["task"], model, trust_remote_code=trust, **source, **call["arguments"])
        pipe(**call["inputs"]) if isinstance(call["inputs"], dict) else pipe(call["inputs"])


def main(model: str, revision: str, folder: str, *classes: str) -> None:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    reference = json.loads((Path(folder) / "reference.json").read_text(encoding="utf-8"))
    absent = ["modeling_mybert", "tokenization", *([] if reference["needs_package"] else ["mybert"])]
    modules: dict[str, Any] = sys.modules
    modules.update(dict.fromkeys(absent))  # importing them now fails
    torch.set_num_threads(reference["threads"])
    torch.manual_seed(0)  # for weights that were not saved
    source = {"revision": revision}
    check_classes(model, source, load_file(Path(folder) / "reference.safetensors"), reference, list(classes))
    check_tokenizer_and_labels(model, source, reference)
    if reference["pipeline"]:
        run_pipeline(model, source, reference["pipeline"])


if __name__ == "__main__":
    main(*sys.argv[1:])
