"""examples/train_sentence_embeddings.py on a tiny MyBERT."""

import runpy
from pathlib import Path

import numpy as np
from json_files import write_lines
from sentence_transformers import SentenceTransformer
from tiny_models import tiny_config
from transformers import BertTokenizer

from modeling_mybert import MyBertForPreTraining
from mybert.embedding.embedder import Embedder
from tokenization import MyBertTokenizer

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_sentence_embeddings.py"
PAIRS = [("open file", "call open"), ("sky blue", "air scatters"), ("wrote faust", "goethe did"), ("prime", "seven")]


def test_training_on_pairs_brings_each_anchor_nearest_to_its_positive(minilm_folder, tmp_path, monkeypatch):
    MyBertForPreTraining(tiny_config(30522, max_position_embeddings=512)).save_pretrained(tmp_path / "model")
    BertTokenizer.from_pretrained(minilm_folder).save_pretrained(tmp_path / "stock")
    MyBertTokenizer.from_pretrained(tmp_path / "stock").save_pretrained(tmp_path / "model")
    write_lines(tmp_path / "pairs.jsonl", [{"anchor": a, "positive": p, "id": a} for a, p in PAIRS])
    monkeypatch.setattr("sys.argv", [
        "train", str(tmp_path / "model"), str(tmp_path / "pairs.jsonl"), str(tmp_path / "trained"),
        "--epochs", "20", "--batch-size", "4", "--learning-rate", "0.003",
    ])  # fmt: skip
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    embedder = Embedder(str(tmp_path / "trained"), device="cpu", normalize=True)
    anchors, positives = (embedder.texts([pair[side] for pair in PAIRS]) for side in (0, 1))
    assert (anchors @ positives.T).argmax(1).tolist() == [0, 1, 2, 3]
    theirs = SentenceTransformer(str(tmp_path / "trained"), device="cpu")
    assert np.abs(theirs.encode([a for a, _ in PAIRS], normalize_embeddings=True) - anchors).max() < 1e-5
