"""Manifests and fingerprints."""

import json
import os
import time

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from mybert.artifacts.manifest import fingerprint, json_line, read_manifest, write_json, write_manifest
from mybert.common.errors import UserError


def test_a_fingerprint_depends_on_names_and_contents_but_not_on_times(tmp_path):
    (tmp_path / "a").write_text("1")
    first = fingerprint(tmp_path)
    os.utime(tmp_path / "a", (0, time.time()))
    assert fingerprint(tmp_path) == first
    (tmp_path / "a").write_text("2")
    second = fingerprint(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    assert len({first, second, fingerprint(tmp_path)}) == 3


def test_a_manifest_is_read_back_and_a_damaged_one_is_reported(tmp_path):
    assert read_manifest(tmp_path) == {}
    write_manifest(tmp_path, "corpus", settings={"seed": 1}, inputs={}, counts={"documents": 2}, share=0.5)
    found = read_manifest(tmp_path)
    assert (found["stage"], found["counts"]["documents"], found["share"]) == ("corpus", 2, 0.5)
    assert {"python", "torch", "transformers"} <= set(found["versions"])
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(UserError, match=r"manifest\.json is damaged"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("mask, mode", [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_weights_get_the_permissions_of_the_umask(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
        (tmp_path / "model.safetensors").chmod(0o600)  # as some versions of safetensors write
        write_manifest(tmp_path, "pretrain", settings={}, inputs={}, counts={})
    finally:
        os.umask(before)
    assert (tmp_path / "model.safetensors").stat().st_mode & 0o777 == mode


def test_nan_and_infinity_are_written_as_null(tmp_path):
    value = {"loss": float("nan"), "deep": [{"x": (float("-inf"), 1.5)}], "n": np.float64("inf")}
    write_json(tmp_path / "a.json", value)
    for text in ((tmp_path / "a.json").read_text(), json_line(value)):
        assert json.loads(text, parse_constant=pytest.fail) == {"loss": None, "deep": [{"x": [None, 1.5]}], "n": None}
