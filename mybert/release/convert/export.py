"""`mybert export`: convert a checkpoint to ONNX, and compare the outputs."""

from pathlib import Path

from mybert.common.output_folders import staged_folder
from mybert.inference.checkpoint import open_checkpoint
from mybert.release.convert.companions import finish, print_conversion, refuse_int8
from mybert.release.convert.compare_models import refuse_above
from mybert.release.convert.export_onnx import check_onnx_packages, write_int8, write_onnx
from mybert.release.settings import ExportSettings


def export(settings: ExportSettings) -> Path:
    """Converts a checkpoint, compares the outputs on padded batches and prints the differences.

    Returns:
        The folder: weights, configuration, tokenizer if there is one, modules of a sentence-transformers checkpoint,
        and a manifest with the differences.

    Raises:
        UserError: the checkpoint or the output cannot be used, packages are missing, or the outputs differ by more
            than `tolerance`; the output is not written then.
    """
    check_onnx_packages()
    output = Path(settings.output)
    with staged_folder(output, overwrite=settings.overwrite, stage="export", inputs=[settings.model]) as folder:
        checkpoint = open_checkpoint(settings.model)
        refuse_int8(checkpoint)
        measured = {"differences": write_onnx(checkpoint.model, folder)}
        refuse_above(settings.tolerance, measured["differences"], "--tolerance")
        if settings.int8:
            measured["int8_errors"] = write_int8(checkpoint.model, folder)
            refuse_above(settings.int8_tolerance, measured["int8_errors"], "--int8-tolerance")
        finish(checkpoint, folder, "export", settings, settings.model, measured)
    names = {"differences": "largest difference", "int8_errors": "relative error of int8"}
    rows = [(f"{names[key]}, {name}", x) for key, found in measured.items() for name, x in found.items()]
    title = f"{settings.model} ({type(checkpoint.model).__name__}) to {settings.to}"
    print_conversion(title, checkpoint, rows)
    return output
