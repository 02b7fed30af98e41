"""The page of each stage: which numbers it shows, in which order, under which names."""

import importlib

from mybert.common.errors import UserError
from mybert.reports.components import Page
from mybert.reports.stage_files import StageFiles

_PAGES = {
    "corpus": "corpus",
    "pretrain": "pretraining",
    "adapt": "pretraining",
    "distill": "pretraining",
    "finetune": "finetuning",
    "evaluate": "evaluation",
    "compare": "comparison",
}
"""The module of each stage, loaded when it is needed; its function `page` makes the page."""


def page_of(files: StageFiles) -> Page:
    if files.stage not in _PAGES:
        raise UserError(f"{files.folder}: `mybert {files.stage}` writes no report; leave --report out")
    name = "retrieval" if (files.stage, files.task) == ("evaluate", "retrieval") else _PAGES[files.stage]
    return importlib.import_module(f"{__name__}.{name}").page(files)
