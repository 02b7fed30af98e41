"""Everything of ours that reads what others wrote."""

import targets_checkpoints
import targets_corpus
import targets_finetuning
import targets_release
from watch import Target

TARGETS: list[Target] = [
    *targets_corpus.TARGETS,
    *targets_finetuning.TARGETS,
    *targets_checkpoints.TARGETS,
    *targets_release.TARGETS,
]
