"""Runs scripts in forks of a process that has imported transformers and cannot import this project.

Each line of standard input is a job: JSON of the script, its arguments, its folder, and the place of its output. Each
printed line is an exit status.
"""

import json
import os
import runpy
import sys

sys.modules.update(dict.fromkeys(["modeling_mybert", "tokenization", "mybert"]))  # importing them fails

from transformers import AutoModel, Trainer, pipeline  # noqa: E402, F401 - once for all jobs

for line in sys.stdin:
    script, arguments, folder, log = json.loads(line)
    child = os.fork()
    if child == 0:
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(f"{log}.{name}", os.O_WRONLY | os.O_CREAT), number)
        os.chdir(folder)
        sys.argv = [script, *arguments]
        runpy.run_path(script, run_name="__main__")
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
