"""The page of each stage: which numbers it shows, in which order, under which names."""

from mybert.reports.components import Page
from mybert.reports.pages import comparison, corpus, evaluation, finetuning, other, pretraining, retrieval
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
    return _PAGES.get(files.stage, other.page)(files)
