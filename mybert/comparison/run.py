"""`mybert compare`: which of several runs is better, where, and whether the difference may be chance."""

from pathlib import Path

from mybert.artifacts.staging import staged_folder
from mybert.comparison.settings import CompareSettings, folders_of
from mybert.comparison.sides import read_sides


def compare(settings: CompareSettings) -> Path:
    """Compares the first run with each of the others.

    Returns:
        The output folder: results.json with `difference` (other minus first), `interval` (95%), `p` and `test` of the
        main metric for the second run, all metrics, labels, slices and differing settings under `comparisons`;
        changes.jsonl with the rows that became right or wrong; comparison.html; manifest.json.

    Raises:
        UserError: a run cannot be read, or the runs do not have the same rows; nothing is written.
    """
    inputs = [name for run in settings.runs for name in folders_of(run)]
    with staged_folder(settings.output, overwrite=settings.overwrite, stage="compare", inputs=inputs) as folder:
        sides = read_sides(settings)
        from mybert.comparison.results import print_results, write_results  # takes seconds; mistakes come before

        task, results = write_results(folder, settings, sides)
    print_results(task, results)
    return Path(settings.output)
