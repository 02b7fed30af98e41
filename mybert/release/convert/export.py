"""`mybert export`: a checkpoint → a plain BERT folder, or ONNX, proved to say the same."""

from dataclasses import dataclass
from pathlib import Path

from mybert.common.errors import UserError
from mybert.common.manifest import identity, write_manifest
from mybert.common.output_folders import staged_folder
from mybert.common.settings import check, check_choice, setting
from mybert.common.tables import print_table
from mybert.release.convert.compare_models import refuse_above
from mybert.release.convert.export_bert import write_bert
from mybert.release.convert.export_onnx import check_onnx_packages, write_int8, write_onnx
from mybert.release.convert.full_checkpoint import load_checkpoint, said_of, save_companions

FORMATS = ("bert", "onnx")


@dataclass
class ExportSettings:
    """Settings of `export`.

    Raises:
        UserError: a value is out of its range, or has no effect.
    """

    checkpoint: str = setting("", "folder or Hub name of a MyBERT or BERT checkpoint", positional=True)
    to: str = setting(
        "",
        "bert: a folder that transformers' own Bert classes load, without remote code; onnx: a graph for ONNX "
        "Runtime, of any batch size and length (required)",
    )
    output: str = setting("", "folder to write (required)")
    int8: bool = setting(
        False, "onnx: write model_int8.onnx too, its weights in 8 bits, activations rounded as they come"
    )
    tolerance: float = setting(
        1e-4, "largest difference from the checkpoint's outputs, in units of the largest output if that is above 1"
    )
    int8_tolerance: float = setting(0.3, "largest relative error of the int8 outputs (root mean square)")
    overwrite: bool = setting(False, "replace the output")

    def __post_init__(self):
        for name in ("checkpoint", "output"):
            if not getattr(self, name):
                raise UserError(f"{name} is required")
        check_choice(self, "to", FORMATS)
        if self.int8 and self.to != "onnx":
            raise UserError("--int8 is for --to onnx")
        for name in ("tolerance", "int8_tolerance"):
            check(self, name, getattr(self, name) > 0, "a positive number")


def main(settings: ExportSettings) -> None:
    print(f"the export is in {export(settings)}")


def export(settings: ExportSettings) -> Path:
    """Writes the checkpoint in another format, compares what both say on ragged padded batches, and prints it.

    Returns:
        The folder: weights, configuration, tokenizer if the checkpoint has one, the modules of a sentence-transformers
        checkpoint, and a manifest with the differences found.

    Raises:
        UserError: the checkpoint or the output cannot be used, packages are missing, or the outputs differ by more
            than `tolerance`; nothing is left then.
    """
    if settings.to == "onnx":
        check_onnx_packages()
    output = Path(settings.output)
    inputs = [settings.checkpoint]
    with staged_folder(output, overwrite=settings.overwrite, stage="export", inputs=inputs) as folder:
        checkpoint = load_checkpoint(settings.checkpoint)
        if settings.to == "bert":
            facts = {"differences": write_bert(checkpoint.model, folder)}
        else:
            facts = {"differences": write_onnx(checkpoint.model, folder)}
        refuse_above(settings.tolerance, facts["differences"], "tolerance", "the export does not say the same")
        if settings.int8:
            facts["int8_errors"] = write_int8(checkpoint.model, folder)
            refuse_above(settings.int8_tolerance, facts["int8_errors"], "int8_tolerance", "8 bits are too few")
        save_companions(checkpoint, folder)
        write_manifest(
            folder,
            "export",
            settings=settings,
            inputs={"checkpoint": identity(settings.checkpoint)},
            counts={"parameters": checkpoint.model.num_parameters()},
            architecture=type(checkpoint.model).__name__,
            left_out=checkpoint.left_out,
            **facts,
        )
    title = f"{settings.checkpoint} ({type(checkpoint.model).__name__}) to {settings.to}"
    print_table(title, [*_rows(facts), *said_of(checkpoint)])
    return output


def _rows(facts: dict) -> list[tuple[str, float]]:
    words = {"differences": "largest difference", "int8_errors": "relative error of int8"}
    return [(f"{words[kind]}, {output}", value) for kind, of in facts.items() for output, value in of.items()]
