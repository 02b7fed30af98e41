"""What can only be measured on a GPU; `benchmarks/gpu.sh` calls each part. `DEVICE=cpu` runs a part with tiny sizes.

machine                 GPU, versions, the peak of the data sheet and the measured one
base-128 … large-512    training steps beside transformers: throughput, MFU, memory, longest kernels (training_step.py)
compiled                the same for whole models by torch.compile, base with 512 tokens
backends                tests on CUDA; loss, gradients and hidden states of every attention backend compared with
                        transformers' BERT, eager in float32
training                `mybert pretrain` in float32, bfloat16, float16, with FSDP, and with compiled layers
ideas                   changes that may make training faster, beside transformers (gpu_ideas.py)
inference               sentence vectors beside transformers and sentence-transformers (inference.py)
"""

import argparse
import contextlib
import copy
import importlib.metadata
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
import transformers
from saved_tables import save_table
from sides import process_context
from timed_step import device_peak, on_device
from training_step import PRELOADED, make
from transformers import AutoTokenizer, BertConfig, BertModel
from transformers.testing_utils import CaptureLogger
from transformers.utils import is_flash_attn_2_available

from modeling_mybert import NAMED_SIZES, attention_mybert
from mybert.common.errors import cause
from mybert.common.machine import hardware, usable_cores
from mybert.training.speed import measure_peak

DEVICE, OUTPUT = os.environ.get("DEVICE", "cuda"), Path(os.environ.get("OUTPUT", "gpu_results"))
DRY = DEVICE == "cpu"
TEXT = "python-docs:unittest" if DRY else "python-docs"
HERE = Path(__file__).parent
FLASH = ["flash_attention_2"] if is_flash_attn_2_available() else []
BACKENDS = ["eager", "sdpa", "flex_attention", "varlen_attn", *FLASH]
TOKENS = {
    size: int(os.environ.get("TOKENS", 64 if DRY else count)) for size, count in (("base", 65536), ("large", 32768))
}
"""Tokens of a training step, for 80 GB of memory. The optimizer takes a fixed time, so few tokens lower the MFU."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    part = parser.parse_args().part
    if not DRY and not torch.cuda.is_available():
        sys.exit(f"no GPU: torch {torch.__version__} finds no CUDA device; DEVICE=cpu makes a dry run")
    OUTPUT.mkdir(parents=True, exist_ok=True)
    report = OUTPUT.absolute() / f"{part}.md"
    report.unlink(missing_ok=True)
    if not DRY:
        torch.zeros(1, device=DEVICE)  # `hardware` then names the GPU
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped: the time of this part is over"))
    PARTS[part](str(report))


def machine(report: str) -> None:
    packages = ("triton", "flash-attn", "sentence-transformers", "accelerate", "datasets", "tokenizers")
    rows = [
        ("machine", hardware()),
        ("torch", torch.__version__),
        ("CUDA", torch.version.cuda),
        ("transformers", transformers.__version__),
        *((name, installed_version(name)) for name in packages),
    ]
    if not DRY:
        facts = torch.cuda.get_device_properties(DEVICE)
        rows += [("memory, GiB", facts.total_memory / 2**30), ("capability", f"{facts.major}.{facts.minor}")]
    for dtype in (torch.bfloat16,) if DRY else (torch.bfloat16, torch.float16):
        peak = device_peak(DEVICE, dtype)
        rows.append((f"{dtype}: data sheet, TFLOP/s", None if peak is None else peak / 1e12))
        rows.append((f"{dtype}: measured, TFLOP/s", measure_peak(torch.device(DEVICE), dtype, 2) / 1e12))
    save_table(report, "Machine", rows, ("", "found"))


def installed_version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def backends(report: str) -> None:
    """Tests on CUDA, then a model of several layers beside transformers' BERT."""
    tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/model/test_backends.py", "-k", "cuda", "-rs"]
    status = call(tests).returncode
    row = "tiny:4:8:32" if DRY else "mini:32:16:512"
    columns = ("backend", "dtype", "batch", "loss", "gradient / norm", "evaluation / norm", "computed by")
    context = process_context(DEVICE, PRELOADED)
    with saved_at_the_end(report, f"Distance from transformers' BERT, eager in float32, {row}", columns) as rows:
        for backend in ("transformers eager", "transformers sdpa", *BACKENDS):
            # a process for each, since none can use the GPU after an invalid memory access
            with ProcessPoolExecutor(1, context) as process:
                for dtype, form in itertools.product(("float32", "bfloat16", "float16"), ("padded", "packed")):
                    if " " in backend and form == "packed":
                        continue
                    try:
                        found = process.submit(differences, row, backend, dtype, form).result()
                    except Exception as error:
                        found = None, None, None, cause(error)[:100]
                        status = 1
                    rows.append((backend, dtype, form, *found))
                    print(*rows[-1], flush=True)
    if status:
        sys.exit(status)


def differences(row: str, backend: str, dtype: str, form: str) -> tuple[float, float, float, str]:
    """Distances from transformers' BERT, eager in float32, and the backend that computed.

    Training without dropout, by autocast: difference of the loss, distance of the gradient. Evaluation, with weights
    of `dtype`: distance of the last hidden states of real tokens. Both distances are shares of the norm.
    """
    if not _expected:
        (theirs, ours), (padded, packed), _ = make(row, "python-docs")
        theirs.set_attn_implementation("eager")
        _expected.append((theirs, ours, {"packed": packed, "padded": padded}))
        _expected.append((*loss_and_gradient(theirs, padded, torch.float32), hidden_states(theirs, padded)))
    (theirs, ours, batches), (expected_loss, expected, expected_states) = _expected
    library, _, name = backend.rpartition(" ")
    model, batch = (theirs if library else ours), batches[form]
    model.set_attn_implementation(name)
    with CaptureLogger(attention_mybert.logger) as captured:
        attention_mybert.logger.warning_once.cache_clear()
        loss, gradient = loss_and_gradient(model, batch, getattr(torch, dtype))
        states = hidden_states(copy.deepcopy(model).to(getattr(torch, dtype)), batch)
    distances = [float((x - y).norm() / y.norm()) for x, y in ((gradient, expected), (states, expected_states))]
    return abs(loss - expected_loss), *distances, "sdpa" if captured.out else name


_expected = []  # in a process of one backend: both models with the batches, and what transformers' BERT gives


def loss_and_gradient(model, batch: dict, dtype: torch.dtype) -> tuple[float, torch.Tensor]:
    model = model.to(DEVICE).train()
    model.zero_grad()
    scale = 1024 if dtype == torch.float16 else 1  # or small gradients are lost
    with torch.autocast(torch.device(DEVICE).type, dtype, enabled=dtype != torch.float32):
        loss = model(**on_device(batch, DEVICE)).loss
    (loss * scale).backward()
    return loss.item(), torch.cat([p.grad.flatten().float() for _, p in sorted(model.named_parameters())]) / scale


@torch.no_grad()
def hidden_states(model, batch: dict) -> torch.Tensor:
    """Last hidden states of the real tokens in float32, (T, H)."""
    names = ("input_ids", "token_type_ids", "attention_mask", "position_ids", "cu_seq_lens_q", "max_length_q")
    batch = on_device({name: batch[name] for name in names if name in batch}, DEVICE)
    states = model.base_model.to(DEVICE).eval()(**batch).last_hidden_state.float()
    return states[batch["attention_mask"].bool()] if "attention_mask" in batch else states.flatten(0, 1)


def training(report: str) -> None:
    """The same run with each option: dropout 0, so that the losses differ by rounding alone."""
    steps, every, size, sequences = (4, 1, "tiny", 4) if DRY else (60, 10, "base", 128)
    common = ["--size", size, "--max-steps", str(steps), "--per-device-train-batch-size", str(sequences)]
    common += ["--dropout", "0", "--logging-steps", str(every), "--eval-strategy", "no", "--save-steps", str(steps)]
    common += ["--disable-tqdm", "true", "--learning-rate", "1e-4", *(["--use-cpu"] if DRY else [])]
    compiler = ["--torch-compile-backend", "aot_eager"] if DRY else []
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]
    runs = {
        "float32": ([], []),
        "bfloat16": ([], ["--bf16", "true"]),
        "float16": ([], ["--fp16", "true"]),
    }
    if not DRY:  # accelerate does not shard on the CPU
        runs["bfloat16, FSDP"] = torchrun, ["--bf16", "true", "--fsdp", "true"]
    runs["bfloat16, layers compiled"] = [], ["--bf16", "true", "--torch-compile", "true", *compiler]
    expected, status = None, 0
    columns = ("run", "failure", "first loss", "last loss", "furthest from float32", "tokens/s", "of measured peak")
    title = f"mybert pretrain {' '.join(common)}"
    with tempfile.TemporaryDirectory() as scratch, saved_at_the_end(report, title, columns) as rows:
        corpus = small_corpus(Path(scratch))
        for name, (launcher, options) in runs.items():
            output = Path(scratch) / "run"
            command = [*launcher, "-m", "mybert", "pretrain", "--corpus", str(corpus), "--output", str(output)]
            done = call([*command, *common, *options, "--overwrite"])
            if done.returncode:
                status = done.returncode
                rows.append((name, f"status {status}", *[None] * 5))
                continue
            state = json.loads((output / f"checkpoint-{steps}" / "trainer_state.json").read_text(encoding="utf-8"))
            logs = [log for log in state["log_history"] if "loss" in log]
            losses = [log["loss"] for log in logs]
            expected = expected or losses
            apart = max(abs(a - b) for a, b in zip(losses, expected, strict=True))
            later = logs[len(logs) // 2 :]
            speed = [sorted(log[key] for log in later)[len(later) // 2] for key in ("tokens_per_second", "mfu")]
            rows.append((name, None, losses[0], losses[-1], apart, round(speed[0]), f"{speed[1]:.1%}"))
    if status:
        sys.exit(status)


@contextlib.contextmanager
def saved_at_the_end(report: str, title: str, columns: tuple[str, ...]) -> Iterator[list[tuple]]:
    """Yields the rows of a table that is saved even if the part is stopped."""
    rows = []
    try:
        yield rows
    finally:
        save_table(report, title, rows, columns)


def small_tokenizer(folder: Path) -> Path:
    """A tokenizer of Python's documentation."""
    tokenizer = folder / "tokenizer"
    size = "500" if DRY else "8192"
    call(["-m", "mybert", "tokenizer", TEXT, "--output", str(tokenizer), "--vocab-size", size], check=True)
    return tokenizer


def small_corpus(folder: Path) -> Path:
    """A corpus of Python's documentation, with its tokenizer beside."""
    corpus = folder / "corpus"
    tokenizer = small_tokenizer(folder)
    call(["-m", "mybert", "corpus", TEXT, "--tokenizer", str(tokenizer), "--output", str(corpus)], check=True)
    return corpus


def steps(size: str, length: int, report: str, compiled: str = "layers compiled") -> None:
    """Sequences of equal length, then of mixed lengths."""
    sequences, size = max(2, TOKENS[size] // length), "tiny" if DRY else size
    length = 16 if DRY else length
    rows = f"{size}:{sequences}:{length}:{length},{size}:{sequences}:{length // 8}:{length}"
    kinds = ["transformers sdpa", *(f"transformers {name}" for name in FLASH), "MyBERT sdpa"]
    kinds += [f"MyBERT {name}" for name in FLASH]
    sides = [f"{kind} {compiled}" for kind in ("transformers sdpa", "MyBERT sdpa")]
    if compiled != "compiled":
        sides = kinds + sides
    how = ["--pairs", "2", "--warm-up", "2"] if DRY else ["--pairs", "3", "--warm-up", "2", "--repeats", "5"]
    how += ["--threads", "1" if DRY else str(usable_cores()), "--dtypes", "bfloat16"]
    command = [str(HERE / "training_step.py"), "--device", DEVICE, "--rows", rows, "--sides", ",".join(sides), *how]
    call([*command, "--kernels", "20", "--markdown", report], check=True)


def inference(report: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        bert = Path(scratch) / "bert"
        tokenizer = AutoTokenizer.from_pretrained(small_tokenizer(Path(scratch)))
        tokenizer.save_pretrained(bert)
        torch.manual_seed(0)
        BertModel(BertConfig(**NAMED_SIZES["tiny" if DRY else "base"], vocab_size=len(tokenizer))).save_pretrained(
            bert
        )
        how = ["--sentences", "32", "--pairs", "2"] if DRY else ["--sentences", "4096", "--pairs", "3"]
        how += ["--threads", "1" if DRY else str(usable_cores())]
        for dtype in ("bfloat16", "float32"):
            command = [str(HERE / "inference.py"), str(bert), "--device", DEVICE, "--dtype", dtype, *how]
            call([*command, "--markdown", report], check=True)


def ideas(report: str) -> None:
    row = "tiny:4:16:16" if DRY else "base:128:512:512"
    call(
        [str(HERE / "gpu_ideas.py"), "--row", row, *(["--repeats", "1"] if DRY else []), "--markdown", report],
        check=True,
    )


def call(arguments: list[str], check: bool = False) -> subprocess.CompletedProcess:
    """This Python with arguments; its output is shown. If this process is stopped, so is that one, and may save."""
    print("python", *arguments, flush=True)
    environment = os.environ | ({"OMP_NUM_THREADS": "1"} if DRY else {})
    process = subprocess.Popen([sys.executable, *arguments], env=environment)
    try:
        status = process.wait()
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
    if check and status:
        sys.exit(f"python {' '.join(arguments[:3])} ended with status {status}")
    return subprocess.CompletedProcess(arguments, status)


PARTS = {
    "machine": machine,
    "backends": backends,
    "training": training,
    "ideas": ideas,
    "inference": inference,
    **{
        f"{size}-{length}": (lambda report, size=size, length=length: steps(size, length, report))
        for size in ("base", "large")
        for length in (128, 512)
    },
    "compiled": lambda report: steps("base", 512, report, "compiled"),
}

if __name__ == "__main__":
    main()
