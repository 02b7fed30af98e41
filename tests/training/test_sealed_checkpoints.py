"""Which checkpoints of a run are removed, and which are renamed."""

import os

import pytest
from transformers.trainer_utils import rotate_checkpoints

from mybert.training.sealed_checkpoints import drop_old, set_aside


@pytest.mark.parametrize("most", [None, 0, 1, 2, 3, 9])
@pytest.mark.parametrize("best", [None, 5, 12, 90])
def test_old_checkpoints_are_dropped_as_by_transformers(most, best, tmp_path):
    left = []
    for drop in (drop_old, rotate_checkpoints):
        folder = tmp_path / drop.__name__
        for time, step in enumerate((5, 90, 12, 7, 100)):  # 90 is of an earlier attempt
            (folder / f"checkpoint-{step}").mkdir(parents=True)
            os.utime(folder / f"checkpoint-{step}", (time * 10, time * 10))
        chosen = str(folder / f"checkpoint-{best}") if best else None
        options = {"use_mtime": True} if drop is rotate_checkpoints else {}
        drop(folder, most, chosen, **options)
        left.append({path.name for path in folder.iterdir()})
    assert left[0] == left[1]


def test_a_checkpoint_that_is_damaged_again_has_a_further_name(tmp_path, capsys):
    for _ in range(3):
        (tmp_path / "checkpoint-5").mkdir()
        set_aside({tmp_path / "checkpoint-5": "a file is missing"}, None)
    names = ["damaged-checkpoint-5", "damaged-checkpoint-5.1", "damaged-checkpoint-5.2"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert capsys.readouterr().out.endswith("resuming from the first step (renamed: damaged-checkpoint-5.2)\n")
