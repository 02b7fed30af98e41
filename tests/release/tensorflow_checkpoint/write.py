"""Writes the checkpoint in this folder with TensorFlow, which the tests do not need.

    pip install tensorflow-cpu==2.21.0 && python tests/release/tensorflow_checkpoint/write.py

It is a BERT with one layer as google-research/bert saves it in pretraining: its variables, two optimizer slots for
each, and the step. The values of a tensor are random with its name as the seed, so that a test can compute them again.
"""

import zlib
from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf

HIDDEN, INTERMEDIATE, VOCABULARY, POSITIONS = 4, 6, 12, 8


def shapes() -> dict[str, tuple[int, ...]]:
    found = {
        "bert/embeddings/word_embeddings": (VOCABULARY, HIDDEN),
        "bert/embeddings/position_embeddings": (POSITIONS, HIDDEN),
        "bert/embeddings/token_type_embeddings": (2, HIDDEN),
        "cls/predictions/output_bias": (VOCABULARY,),
        "cls/seq_relationship/output_weights": (2, HIDDEN),
        "cls/seq_relationship/output_bias": (2,),
    }
    layer = "bert/encoder/layer_0"
    for name, size in {
        **{f"{layer}/attention/self/{part}": (HIDDEN, HIDDEN) for part in ("query", "key", "value")},
        f"{layer}/attention/output/dense": (HIDDEN, HIDDEN),
        f"{layer}/intermediate/dense": (HIDDEN, INTERMEDIATE),
        f"{layer}/output/dense": (INTERMEDIATE, HIDDEN),
        "bert/pooler/dense": (HIDDEN, HIDDEN),
        "cls/predictions/transform/dense": (HIDDEN, HIDDEN),
    }.items():
        found |= {f"{name}/kernel": size, f"{name}/bias": size[1:]}
    for name in ("bert/embeddings", f"{layer}/attention/output", f"{layer}/output", "cls/predictions/transform"):
        found |= {f"{name}/LayerNorm/gamma": (HIDDEN,), f"{name}/LayerNorm/beta": (HIDDEN,)}
    return found


def values(name: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape).astype(np.float32)


def main() -> None:
    prefix = str(Path(__file__).with_name("bert_model.ckpt"))
    every = {f"{name}{slot}": shape for name, shape in shapes().items() for slot in ("", "/adam_m", "/adam_v")}
    tf.disable_eager_execution()
    for name, shape in every.items():
        tf.get_variable(name, initializer=values(name, shape))
    tf.get_variable("global_step", initializer=np.int64(1234), trainable=False)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, prefix, write_meta_graph=False, write_state=False)
    reader = tf.train.load_checkpoint(prefix)
    assert all(np.array_equal(reader.get_tensor(name), values(name, shape)) for name, shape in every.items())


if __name__ == "__main__":
    main()
