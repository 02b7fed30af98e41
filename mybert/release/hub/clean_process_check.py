"""Loads a published model in a clean process, which has only torch and transformers.

    python -P clean_process_check.py JOB.json

The job holds the name and revision of the model, the Auto classes, texts, the call of a pipeline, and the files with
the inputs and for the outputs.
"""

import json
import sys

sys.modules.update(dict.fromkeys(["modeling_mybert", "tokenization", "mybert"]))  # importing them now fails

import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


@torch.no_grad()
def outputs_of(model, inputs: dict) -> dict:
    return {name: value for name, value in model(**inputs).items() if isinstance(value, torch.Tensor)}


def compute_outputs(job: dict, source: dict) -> dict:
    """Outputs of the saved head and of its encoder, by each Auto class that loads them."""
    saved, found = load_file(job["inputs"]), {}
    batches = [{n.split("/")[1]: x for n, x in saved.items() if n.startswith(f"{i}/")} for i in range(job["batches"])]
    flat = {n: x.flatten(0, -2) for n, x in batches[-1].items() if not n.startswith("decoder_")}  # choices as rows
    for auto in job["classes"]:
        # a class with another head starts with new weights, perhaps of another size
        arguments = {**source, "dtype": "auto", "ignore_mismatched_sizes": True, "trust_remote_code": True}
        model = getattr(transformers, auto).from_pretrained(job["model"], **arguments).eval()
        if type(model).__name__ == job["head"]:
            for index, batch in enumerate(batches):
                found |= {f"{auto}/{index}/{name}": x for name, x in outputs_of(model, batch).items()}
        encoder = model.encoder if model.config.is_encoder_decoder else model.base_model
        if type(encoder).__name__ == job["base"]:  # a causal encoder computes something else
            found[f"{auto}/encoder"] = outputs_of(encoder, flat)["last_hidden_state"]
    return found


def run_pipeline(job: dict, source: dict) -> None:
    """Applies the pipeline of the task to a text longer than the model can read, with the arguments of the card."""
    call = job["pipeline"]
    if call is not None:
        pipe = transformers.pipeline(call["task"], job["model"], trust_remote_code=True, **source, **call["arguments"])
        pipe(**call["inputs"]) if isinstance(call["inputs"], dict) else pipe(call["inputs"])


def main(job: dict) -> None:
    torch.set_num_threads(job["threads"])
    torch.manual_seed(0)  # for weights that were not saved
    source = {"revision": job["revision"]}
    found = compute_outputs(job, source)
    save_file({name: x.contiguous() for name, x in found.items()}, job["outputs"])
    run_pipeline(job, source)
    config = transformers.AutoConfig.from_pretrained(job["model"], trust_remote_code=True, **source)
    ids = []
    for trust in (True, False):
        tokenizer = transformers.AutoTokenizer.from_pretrained(job["model"], trust_remote_code=trust, **source)
        ids.append([tokenizer(text)["input_ids"] for text in job["texts"]])
    print(json.dumps({"labels": config.id2label, "ids": ids}))


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        main(json.load(file))
