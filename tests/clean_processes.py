"""Runs scripts in forks of a process that has imported transformers and cannot import this project.

Each line of standard input is a job: JSON of the script, its arguments, its folder, and the place of its output. Each
printed line is an exit status.
"""

import gc
import json
import multiprocessing
import os
import runpy
import sys

sys.modules.update(dict.fromkeys(["modeling_mybert", "tokenization", "mybert"]))  # importing them fails

from transformers import AutoModel, Trainer, pipeline  # noqa: E402, F401 - once for all jobs


def run(script: str, arguments: list[str], folder: str, log: str) -> None:
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(f"{log}.{name}", os.O_WRONLY | os.O_CREAT), number)
    os.chdir(folder)
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


gc.freeze()  # a job does not copy what is imported
for line in sys.stdin:
    # a fork of multiprocessing ends at once; the normal end would take apart all that is imported
    child = multiprocessing.get_context("fork").Process(target=run, args=json.loads(line))
    child.start()
    child.join()
    print(child.exitcode, flush=True)
