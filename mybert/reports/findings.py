"""All findings about a stage, the most severe first."""

from mybert.reports.checks import corpus, evaluation, finetuning, pretraining, training
from mybert.reports.finding import LEVELS, Finding
from mybert.reports.stage_files import StageFiles, explain_missing

_PRETRAINING = (*pretraining.CHECKS, *training.CHECKS)
_CHECKS = {
    "corpus": corpus.CHECKS,
    "pretrain": _PRETRAINING,
    "adapt": _PRETRAINING,
    "distill": _PRETRAINING,
    "finetune": (*finetuning.CHECKS, *evaluation.CHECKS, *training.CHECKS),
    "evaluate": evaluation.CHECKS,
}


def find(files: StageFiles) -> list[Finding]:
    """The findings of all checks that apply to a stage; stages without checks of their own get those of training."""
    checks = _CHECKS.get(files.stage, training.CHECKS)
    with explain_missing(files):
        found = [finding for check in checks for finding in check(files)]
    return sorted(found, key=lambda finding: LEVELS.index(finding.level))


def summary_line(findings: list[Finding]) -> str:
    """How many findings there are of each level, as a sentence."""
    counts = {level: sum(finding.level == level for finding in findings) for level in LEVELS}
    names = {
        "red": ("problem", "problems"),
        "amber": ("warning", "warnings"),
        "green": ("check passed", "checks passed"),
    }
    said = [f"{count} {names[level][count != 1]}" for level, count in counts.items() if count]
    return f"{', '.join(said)}." if said else "No findings: this stage has no checks, or its log is still too short."
