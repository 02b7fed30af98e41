"""Folders of good runs."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for stage_folders, a module of helpers

from stage_folders import STAGES, write_stage


@pytest.fixture(params=STAGES)
def good_run(request, tmp_path) -> Path:
    return write_stage(tmp_path / "run", request.param)
