"""A tiny vocabulary, configuration and text of a domain."""

import random
import string
from pathlib import Path

from json_files import write_lines

from tokenization import SPECIAL_TOKENS

UNUSED = [f"[unused{i}]" for i in range(3)]
WORDS = ["the", "oil", "price", "rises", "falls", "in", "and", "hydro", "##carbon", "pipe", "##line"]
PIECES = [
    *SPECIAL_TOKENS,
    *UNUSED,
    *string.ascii_lowercase,
    *(f"##{c}" for c in string.ascii_lowercase),
    *".,-0123456789",
    *WORDS,
]
CONFIG = {
    "vocab_size": len(PIECES),
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}


TEXT = "the oil price rises falls in and hydrocarbons pipeline tanker barrel crude 1987 texaco"


def make_documents(count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [f"document {n}, " + " ".join(rng.choices(TEXT.split(), k=30)) + "." for n in range(count)]


def write_documents(path: Path, documents: list[str]) -> str:
    return str(write_lines(path, [{"text": text} for text in documents]))
