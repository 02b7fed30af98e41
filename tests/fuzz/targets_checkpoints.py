"""Malformed checkpoints: tokenizer, configuration and weights."""

import functools
import io
import json
import os
import pickle
import shutil
import tempfile
from pathlib import Path
from random import Random

import torch
from mutations import mutated_bytes, mutated_json
from sandbox import Target
from targets_text import PIECES, VOCABULARY
from tiny_models import tiny_config

from modeling_mybert import MyBertConfig, MyBertForSequenceClassification
from mybert.corpus.examples.text_encoding import load_wordpiece
from mybert.embedding.embedder import Embedder
from mybert.inference.checkpoint import explain_unreadable, open_checkpoint
from mybert.inference.task_checkpoint import load_finetuned
from mybert.release.convert.companions import save_companions
from mybert.tasks.settings import PredictorSettings
from tokenization import MyBertTokenizer

WEIGHTS = "model.safetensors"


def written_by(save) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as scratch:
        save(scratch)
        return {path.name: path.read_bytes() for path in Path(scratch).iterdir() if path.is_file()}


def tiny_model() -> MyBertForSequenceClassification:
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = tiny_config(
        len(PIECES),
        **sizes,
        max_position_embeddings=16,
        finetuned={"task": "text-classification", "max_length": 16, "problem": "single-label", "columns": []},
        id2label={0: "bad", 1: "good"},
        label2id={"bad": 0, "good": 1},
        problem_type="single_label_classification",
    )
    return MyBertForSequenceClassification(config)


MODEL = written_by(tiny_model().save_pretrained)
CONFIG = json.loads(MODEL["config.json"])
TOKENIZER = written_by(MyBertTokenizer(PIECES).save_pretrained) | {"vocab.txt": VOCABULARY}
# Settings that make transformers load code, kernels or other files.
TEMPTING = {
    "auto_map": {"AutoConfig": "evil.Config", "AutoModel": "owner/name--evil.Model"},
    "attn_implementation": "owner/kernel",
    "_attn_implementation": "kernels-community/flash-attn2",
    "custom_pipelines": {"text-classification": {"impl": "evil.Pipeline", "pt": ["AutoModel"]}},
    "quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True},
    "transformers_weights": "../../outside",
    "dtype": "os",
    "tokenizer_class": "Evil",
}
EVIL_CODE = b"import os\nos.system('id')\n"


def config_files(random: Random) -> dict[str, bytes]:
    tempted = CONFIG | {name: TEMPTING[name] for name in random.sample(list(TEMPTING), random.randrange(3))}
    return {"config.json": mutated_json(random, [tempted, CONFIG]), "evil.py": EVIL_CODE}


def read_config(folder: Path) -> None:
    with explain_unreadable(str(folder)):
        MyBertConfig.from_pretrained(folder)


def tokenizer_files(random: Random) -> dict[str, bytes]:
    files = dict(TOKENIZER)
    for name in random.sample(list(files), random.choice((1, 1, 2))):
        if name.endswith(".json"):
            seed = json.loads(files[name])
            if name == "tokenizer_config.json" and random.randrange(2):
                seed |= {"auto_map": {"AutoTokenizer": ["evil.Tokenizer", None]}, "vocab_file": "../../outside"}
            files[name] = mutated_json(random, [seed])
        else:
            files[name] = mutated_bytes(random, [files[name]])
    for name in random.sample(list(files), random.choice((0, 0, 1))):
        del files[name]
    return files | {"evil.py": EVIL_CODE, "config.json": MODEL["config.json"]}


def read_tokenizer(folder: Path) -> None:
    tokenizer = load_wordpiece(str(folder))
    tokenizer.plain_text_backend().encode("the file [MASK] é数字")


def read_tokenizer_of_checkpoint(folder: Path) -> None:
    with explain_unreadable(str(folder)):
        MyBertTokenizer.from_pretrained(folder)


def checkpoint_files(random: Random) -> dict[str, bytes]:
    kind = random.randrange(3)
    if kind == 0:
        return config_files(random) | {WEIGHTS: MODEL[WEIGHTS]}
    if kind == 1:
        return {"config.json": MODEL["config.json"], WEIGHTS: mutated_safetensors(random, MODEL[WEIGHTS])}
    modules = [{"idx": 0, "name": "0", "path": "", "type": "x"}, {"idx": 1, "name": "1", "path": "1_P", "type": "y"}]
    index = {"metadata": {"total_size": 1}, "weight_map": {"bert.pooler.dense.bias": "a.safetensors"}}
    return {
        "config.json": MODEL["config.json"],
        WEIGHTS: MODEL[WEIGHTS],
        random.choice(("modules.json", "sentence_bert_config.json")): mutated_json(random, [modules]),
        random.choice((f"{WEIGHTS}.index.json", "generation_config.json")): mutated_json(random, [index]),
        "1_P/config.json": b"{}",
    }


def mutated_safetensors(random: Random, content: bytes) -> bytes:
    """With a reshaped header of correct length, or with edited bytes."""
    length = int.from_bytes(content[:8], "little")
    if random.randrange(3) == 0:
        return mutated_bytes(random, [content])
    header = mutated_json(random, [json.loads(content[8 : 8 + length])])
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


def prepare_tokenizer(folder: Path) -> None:
    for name, content in TOKENIZER.items():
        (folder / name).write_bytes(content)


def read_checkpoint(folder: Path) -> None:
    """Loads and saves as `import` and `export` do; all files are written into the output folder."""
    checkpoint = open_checkpoint(str(folder))
    output = folder.parents[3] / "free/x/y/output"
    shutil.rmtree(output.parents[1], ignore_errors=True)
    output.mkdir(parents=True)
    save_companions(checkpoint, output)
    if any(output.parents[1].glob("*.*")) or list(output.parent.iterdir()) != [output]:
        raise AssertionError(f"written beside the output: {list(output.parents[1].rglob('*'))}")


def read_finetuned(folder: Path) -> None:
    load_finetuned(PredictorSettings(model=str(folder), device="cpu"))


class Evil:
    def __reduce__(self):
        return os.system, ("true",)


def pytorch_files() -> list[bytes]:
    state = tiny_model().state_dict()
    found = []
    for value in (state, {**state, "x": Evil()}):
        for zipped in (True, False):
            file = io.BytesIO()
            torch.save(value, file, _use_new_zipfile_serialization=zipped)
            found.append(file.getvalue())
    return [*found, pickle.dumps(Evil()), pickle.dumps({"a": Evil()}, protocol=0)]


def pytorch_weights(random: Random) -> dict[str, bytes]:
    return {"config.json": MODEL["config.json"], "pytorch_model.bin": mutated_bytes(random, PYTORCH)}


PYTORCH = pytorch_files()
TARGETS = [
    Target("config.json", config_files, read_config, 15),
    Target("tokenizer folder", tokenizer_files, read_tokenizer, 2),
    Target("tokenizer of a checkpoint", tokenizer_files, read_tokenizer_of_checkpoint, 2),
    Target("checkpoint, to import", checkpoint_files, read_checkpoint, prepare=prepare_tokenizer),
    Target("checkpoint, fine-tuned", checkpoint_files, read_finetuned, prepare=prepare_tokenizer),
    Target(
        "checkpoint, to embed", checkpoint_files, functools.partial(Embedder, device="cpu"), prepare=prepare_tokenizer
    ),
    Target("pickled weights", pytorch_weights, read_checkpoint, prepare=prepare_tokenizer),
]
