"""Settings of `mybert doctor`."""

from dataclasses import dataclass

from mybert.common.settings import setting


@dataclass
class DoctorSettings:
    folder: str = setting(
        "", "Output folder of a stage, such as corpus, pretrain, finetune or evaluate.", positional=True
    )
    report: bool = setting(False, "Write report.html of the folder again.")
