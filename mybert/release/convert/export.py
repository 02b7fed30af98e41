"""`mybert export`: convert a checkpoint to transformers' own BERT or to ONNX, and compare the outputs."""

from pathlib import Path

from mybert.common.manifest import identity, write_manifest
from mybert.common.output_folders import staged_folder
from mybert.common.tables import print_table
from mybert.release.convert.compare_models import refuse_above
from mybert.release.convert.export_bert import write_bert
from mybert.release.convert.export_onnx import check_onnx_packages, write_int8, write_onnx
from mybert.release.convert.full_checkpoint import load_checkpoint, save_companions, table_rows
from mybert.release.settings import ExportSettings


def main(settings: ExportSettings) -> None:
    print(f"the export is in {export(settings)}")


def export(settings: ExportSettings) -> Path:
    """Converts a checkpoint, compares the outputs on padded batches and prints the differences.

    Returns:
        The folder: weights, configuration, tokenizer if there is one, modules of a sentence-transformers checkpoint,
        and a manifest with the differences.

    Raises:
        UserError: the checkpoint or the output cannot be used, packages are missing, or the outputs differ by more
            than `tolerance`; the output is not written then.
    """
    if settings.to == "onnx":
        check_onnx_packages()
    output = Path(settings.output)
    inputs = [settings.model]
    with staged_folder(output, overwrite=settings.overwrite, stage="export", inputs=inputs) as folder:
        checkpoint = load_checkpoint(settings.model)
        write = write_bert if settings.to == "bert" else write_onnx
        measured = {"differences": write(checkpoint.model, folder)}
        refuse_above(settings.tolerance, measured["differences"], "--tolerance")
        if settings.int8:
            measured["int8_errors"] = write_int8(checkpoint.model, folder)
            refuse_above(settings.int8_tolerance, measured["int8_errors"], "--int8-tolerance")
        save_companions(checkpoint, folder)
        write_manifest(
            folder,
            "export",
            settings=settings,
            inputs={"checkpoint": identity(settings.model)},
            counts={"parameters": checkpoint.model.num_parameters()},
            architecture=type(checkpoint.model).__name__,
            left_out=checkpoint.left_out,
            **measured,
        )
    names = {"differences": "largest difference", "int8_errors": "relative error of int8"}
    rows = [(f"{names[key]}, {name}", x) for key, found in measured.items() for name, x in found.items()]
    title = f"{settings.model} ({type(checkpoint.model).__name__}) to {settings.to}"
    print_table(title, [*rows, *table_rows(checkpoint)])
    return output
