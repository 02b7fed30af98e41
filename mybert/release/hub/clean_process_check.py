"""Run by itself in a clean process: loads a published model as somebody does who has torch and transformers alone.

    python -P stranger.py JOB.json

The job names the model, its revision, the Auto classes, the file of inputs and that of the outputs to write.
"""

import json
import sys

sys.modules.update(dict.fromkeys(["modeling_mybert", "tokenization", "mybert"]))  # importing them fails from here on

import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def outputs_of(model, inputs: dict) -> dict:
    with torch.no_grad():
        return {name: value for name, value in model(**inputs).items() if isinstance(value, torch.Tensor)}


def states_of(encoder, inputs: dict):
    inputs = {n: x.flatten(0, -2) for n, x in inputs.items() if not n.startswith("decoder_")}  # choices in one column
    with torch.no_grad():
        return encoder(**inputs).last_hidden_state


def main(job: dict) -> None:
    torch.set_num_threads(job["threads"])
    torch.manual_seed(0)  # of heads that were not saved
    source = {"revision": job["revision"]}
    as_saved = {**source, "dtype": "auto", "ignore_mismatched_sizes": True}  # of a head of another size, say
    saved, found = load_file(job["inputs"]), {}
    batches = [{n.split("/")[1]: x for n, x in saved.items() if n.startswith(f"{i}/")} for i in range(job["batches"])]
    config = transformers.AutoConfig.from_pretrained(job["model"], trust_remote_code=True, **source)
    for auto in job["classes"]:
        cls = getattr(transformers, auto)
        model = cls.from_pretrained(job["model"], trust_remote_code=True, **as_saved).eval()
        if type(model).__name__ == job["head"]:
            for index, batch in enumerate(batches):
                found |= {f"{auto}/{index}/{name}": x for name, x in outputs_of(model, batch).items()}
        encoder = model.encoder if config.is_encoder_decoder else model.base_model
        if type(encoder).__name__ == job["base"]:  # a causal one says something else
            found[f"{auto}/encoder"] = states_of(encoder, batches[-1])
    save_file({name: x.contiguous() for name, x in found.items()}, job["outputs"])
    ids = []
    for trust in (True, False):
        tokenizer = transformers.AutoTokenizer.from_pretrained(job["model"], trust_remote_code=trust, **source)
        ids.append([tokenizer(text)["input_ids"] for text in job["texts"]])
    print(json.dumps({"labels": config.id2label, "ids": ids}))


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        main(json.load(file))
