"""Messages of `mybert pretrain` and `mybert plan`: for each wrong option or input, what its one line must say."""

import contextlib
import shutil

import datasets
import pytest
from safetensors.torch import load_file, save_file
from transformers import BertTokenizer

from mybert import cli
from mybert.artifacts.manifest import write_manifest
from tokenization import SPECIAL_TOKENS

NO_CORPUS = "give either --corpus … or --text"
LACKS = "lacks … weights, such as bert. … ; they would be random; name a complete checkpoint"
MISTAKES = [  # with the inputs of `folders`; " … " in a message stands for anything
    ("--size mini --init-from x", "--size and --init-from exclude each other"),
    ("--resume", "--resume and --overwrite exclude each other"),
    ("--init-from model --initial-weights text", "--initial-weights has no effect with --init-from; leave one out"),
    ("--report-to nonsense", "--report-to: expected none … tensorboard"),
    ("--deepspeed missing.json", "--deepspeed missing.json: there is no such file"),
    ("--fsdp-config missing.json", "--fsdp-config missing.json: there is no such file"),
    ("--dataloader-num-workers -1", "dataloader_num_workers: expected 0 or more, found -1"),
    ('--size tiny --lr-scheduler-kwargs {"foo":1}', "--lr-scheduler-kwargs: … unexpected keyword argument 'foo'"),
    ("--fsdp full_shard", "--fsdp has no effect on the CPU"),
    ("--optim adafactor --optimizer muon", "--optim has no effect with --optimizer muon"),
    ("--label-smoothing-factor 0.1", "label_smoothing_factor is not supported"),
    ("--ignore-data-skip true", "ignore_data_skip is not supported"),
    ('--accelerator-config {"split_batches":true}', "leave split_batches and dispatch_batches out"),
    ("--resume-from-checkpoint x", "use --resume"),
    ("--max-steps 0", "max_steps: expected 1 or more"),
    ("--num-train-epochs 0", "num_train_epochs: expected above 0"),
    ("--num-train-epochs inf", "num_train_epochs: expected above 0"),
    ("--per-device-train-batch-size 0", "per_device_train_batch_size: expected 1 or more, found 0"),
    ("--gradient-accumulation-steps 0", "gradient_accumulation_steps: expected 1 or more"),
    ("--learning-rate nan", "learning_rate: expected 0 or more, found nan"),
    ("--seed -1", "seed: expected 0 or more"),
    ("--size tiny --attn-implementation flash_attention_7", "flash_attention_7"),
    # schedules and budgets
    ("--train-sampling-strategy group_by_length", "nothing is computed for padding"),
    ("--start-tokens-per-batch 64", "--start-tokens-per-batch needs --max-tokens-per-batch"),
    ("--size tiny --max-tokens-per-batch 9", "--max-tokens-per-batch: expected … or more, the length of the longest"),
    *(
        (f"--length-schedule {lengths}", "--length-schedule: expected lengths of 8 tokens or more … 32:0.3 64:0.6 128")
        for lengths in ("32:0.5", "32:0.6 64:0.3 128", "4:0.5 128", "long", "32 64", "32:0.3:1")
    ),
    ("--eval-strategy epoch --length-schedule 16:0.5 24", "by steps, not by epoch"),
    ("--time-budget soon", "--time-budget: expected a time like 90s"),
    ("--time-budget 16s --max-steps 10", "--time-budget and --max-steps exclude each other"),
    ("--time-budget 16s --num-train-epochs 1", "--time-budget and --num-train-epochs exclude each other"),
    ("--time-budget 16s --save-strategy epoch", "by steps, not by epoch"),
    (
        "--time-budget 16s --lr-scheduler-type reduce_lr_on_plateau",
        "reduce_lr_on_plateau cannot be used with --time-budget",
    ),
    # corpora and checkpoints
    ("--corpus nowhere", "corpus nowhere does not exist; build it with `mybert corpus"),
    ("--corpus corpus/tokenizer", "corpus/tokenizer is not a corpus; build one with `mybert corpus`"),
    ("--corpus short.txt", "short.txt is a file; build a corpus: `mybert corpus short.txt"),
    ("--corpus text", "must have the columns input_ids, token_type_ids; it has text; build one with `mybert corpus`"),
    ("--corpus damaged", "corpus damaged is damaged ( … ); build it again with `mybert corpus`"),
    ("--corpus high", "high has the token id … its tokenizer has only 6 tokens; rebuild the corpus"),
    ("--init-from nowhere", "nowhere: no such folder"),
    ("--init-from words", "--init-from words has another vocabulary … `--tokenizer words`"),
    ("--init-from cased", "--init-from cased was trained on text of another case … `--tokenizer cased`"),
    ("--init-from short", "short has only 16 positions; build the corpus with a smaller --max-length"),
    ("--init-from cut", "checkpoint cut: its weights are damaged ( … ); copy it again"),
    ("--init-from bare", f"bare {LACKS}"),
    ("--init-from layers", f"layers {LACKS}"),
    # text instead of a corpus
    ("--text short.txt", "the text has 2,000 words; pretraining needs 10,000 or more … `mybert adapt"),
    ("--text long.txt --report-to comet_ml", "comet"),
    ("--text long.txt --time-budget 1s", "is too short for 12,000 words: … ; give … or more"),
    ("--text short.txt --language german", "language: expected an ISO 639 code"),
    ("--text long.txt --init-from model --cased", "--uncased has no effect with --init-from, whose tokenizer is used"),
    ("--text -", "--text -: standard input can be read only once … ; name a file"),
    ("--text short.txt --corpus corpus", NO_CORPUS),
    ("", NO_CORPUS),
    ("--language de", "--language is an option for --text"),
    ("--cased", "--cased is an option for --text"),
    ("--uncased", "--uncased is an option for --text"),
    ("--text-column body", "--text-column is an option for --text"),
    ("--errors skip", "--errors is an option for --text"),
]
RESUMED = [
    ("--mlm-probability 0.3", "--mlm-probability is 0.3, the run was started with 0.15"),
    ("--size mini", "--size is 'mini', the run was started with 'tiny'"),
    ("--optim adafactor", "--optim is 'adafactor', the run was started with 'adamw_torch"),
    ("--corpus changed", "--corpus changed has other content"),
    ("--output without", "without/checkpoint-1 has no optimizer state; … start again with --overwrite"),
    (
        "--output mine",
        "mine has no run of `mybert pretrain` to continue; name the folder of one, or leave --resume out",
    ),
]
PLANS = [
    ("--tokens 3,3B", "--tokens: expected a number from 1 to 1e24 like 500M, 3.3B or 400T, found '3,3B'"),
    ("--tokens 1e999", "--tokens: expected a number from 1 to 1e24"),
    ("--peak-flops 0", "--peak-flops: expected a number from 1 to 1e24"),
    ("--memory 80GB", "--memory: expected a number from 1 to 1e24"),
    ("--bandwidth nan", "--bandwidth: expected a number from 1 to 1e24"),
    ("--devices 1 0", "--devices: expected 1 to 1e9, found [1, 0]"),
    ("--time-budget 1h --devices 1 8", "--devices: expected one number with --time-budget"),
    ("--time-budget 1h --memory 1G", "--memory has no effect with --time-budget"),
    (f"--vocab-size 1{'0' * 400}", "--vocab-size: expected 1"),
    ("--config size.yaml", "--size: expected … , found []"),
    ("--config devices.yaml", "--devices: expected … , found []"),
]


def save_with_other_names(bert, folder, old: str, new: str) -> None:
    """Saves a checkpoint in which names of weights begin with `new` instead of `old`."""
    weights = load_file(shutil.copytree(bert, folder) / "model.safetensors")
    renamed = {name.replace(old, new, 1): value for name, value in weights.items()}
    save_file(renamed, folder / "model.safetensors")


@pytest.fixture(scope="module")
def folders(corpus_folder, tokenizer, pairs, save_bert, tmp_path_factory):
    """Texts, corpora and checkpoints, most of them wrong."""
    folder = tmp_path_factory.mktemp("folders")
    other = BertTokenizer(vocab={p: i for i, p in enumerate([*SPECIAL_TOKENS, "x"])})
    for name, lines in {"short": 1991, "long": 11_991}.items():
        (folder / f"{name}.txt").write_text("word " * 9 + "word.\n" * lines)
    datasets.Dataset.from_dict({"text": ["a"]}).save_to_disk(folder / "text")
    pairs(3).save_to_disk(folder / "high")
    for name in ("corpus", "damaged"):
        shutil.copytree(corpus_folder, folder / name)
    for table in (folder / "damaged").glob("*.arrow"):
        table.write_bytes(table.read_bytes()[:1000])
    for name in ("text", "high"):
        other.save_pretrained(folder / name / "tokenizer")
    bert = save_bert(tokenizer, folder / "bert")
    save_bert(other, folder / "words")
    save_bert(tokenizer, folder / "short", positions=16)
    save_bert(BertTokenizer(vocab=tokenizer.get_vocab(), do_lower_case=False), folder / "cased")
    save_with_other_names(bert, folder / "bare", "bert", "_orig_mod.bert")
    save_with_other_names(bert, folder / "layers", "bert.encoder.layer.0", "bert.encoder.layer.7")
    weights = shutil.copytree(bert, folder / "cut") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    (folder / "model").mkdir()
    write_manifest(folder / "model", "pretrain", settings={}, inputs={}, counts={})
    return folder


@pytest.fixture(scope="module")
def runs(corpus_folder, tmp_path_factory):
    """A finished run, one without optimizer state, and a folder that is no run."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("corpus", "changed"):
        shutil.copytree(corpus_folder, folder / name)
    (folder / "changed" / "more.txt").touch()
    (folder / "mine").mkdir()
    (folder / "mine" / "mine.txt").touch()
    words = "pretrain --corpus corpus --size tiny --max-steps 1 --use-cpu --output"
    with contextlib.chdir(folder):
        assert cli.main([*words.split(), "run"]) == cli.main([*words.split(), "without", "--save-only-model"]) == 0
    return folder


@pytest.mark.parametrize(("words", "message"), RESUMED, ids=[words for words, _ in RESUMED])
def test_a_run_is_resumed_only_with_its_own_settings(runs, tmp_path, assert_refused, words, message):
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    given = f"pretrain --corpus corpus --size tiny --max-steps 2 --use-cpu --resume --output run {words}"
    assert_refused(given.split(), message)


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_a_mistake_is_one_line_and_keeps_the_existing_run(folders, tmp_path, assert_refused, words, message):
    shutil.copytree(folders, tmp_path, dirs_exist_ok=True)
    corpus = ["--corpus", "corpus"] if words and not words.startswith(("--text ", "--corpus ")) else []
    assert_refused(["pretrain", *words.split(), *corpus, "--output", "model", "--overwrite", "--use-cpu"], message)


@pytest.mark.parametrize(("words", "message"), PLANS, ids=[words[:40] for words, _ in PLANS])
def test_a_mistake_in_a_plan_is_one_line(tmp_path, assert_refused, words, message):
    for name in ("size", "devices"):
        (tmp_path / f"{name}.yaml").write_text(f"{name}: []\n")
    assert_refused(["plan", "--tokens", "3.3B", "--peak-flops", "400T", *words.split()], message)
