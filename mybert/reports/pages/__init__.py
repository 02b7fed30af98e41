"""The page of each stage: which numbers it shows, in which order, under which names."""

from mybert.common.errors import UserError
from mybert.reports.components import Page
from mybert.reports.pages import comparison, corpus, evaluation, finetuning, pretraining, retrieval
from mybert.reports.stage_files import StageFiles

_PAGES = {
    "corpus": corpus.page,
    "pretrain": pretraining.page,
    "adapt": pretraining.page,
    "distill": pretraining.page,
    "finetune": finetuning.page,
    "evaluate": evaluation.page,
    "compare": comparison.page,
}


def page_of(files: StageFiles) -> Page:
    if files.task == "retrieval" and files.stage == "evaluate":
        return retrieval.page(files)
    if files.stage not in _PAGES:
        raise UserError(f"{files.folder}: `mybert {files.stage}` writes no report; leave --report out")
    return _PAGES[files.stage](files)
