"""Settings of `mybert doctor`."""

from dataclasses import dataclass

from mybert.settings import declare
from mybert.settings.declare import Options, setting


@dataclass
class DoctorSettings(Options):
    folder: str = setting(
        "", "Output folder of a stage, such as corpus, pretrain, finetune or evaluate.", positional=True
    )
    report: bool = declare.output(False, "Write report.html of the folder again.")
