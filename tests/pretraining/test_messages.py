"""Messages of `mybert pretrain`: for each wrong or contradictory option, what its one line must say."""

import shutil

import pytest

from mybert.artifacts.manifest import write_manifest

NO_CORPUS = "give either --corpus … or --text"
MISTAKES = [  # " … " in a message stands for anything
    ("--size mini --init-from x", "exclude each other"),
    ("--resume", "exclude each other"),
    ("--init-from model --initial-weights text", "--initial-weights"),
    ("--report-to nonsense", "--report-to: expected none … tensorboard"),
    ("--deepspeed missing.json", "--deepspeed missing.json: there is no such file"),
    ("--fsdp-config missing.json", "--fsdp-config missing.json: there is no such file"),
    ("--dataloader-num-workers -1", "num_workers"),
    ('--lr-scheduler-kwargs {"foo":1}', "unexpected keyword argument 'foo'"),
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
    # schedules and budgets
    ("--train-sampling-strategy group_by_length", "nothing is computed for padding"),
    ("--start-tokens-per-batch 64", "--start-tokens-per-batch needs --max-tokens-per-batch"),
    ("--eval-strategy epoch --length-schedule 16:0.5 24", "by steps, not by epoch"),
    ("--time-budget 16s --max-steps 10", "--time-budget and --max-steps exclude each other"),
    ("--time-budget 16s --num-train-epochs 1", "--time-budget and --num-train-epochs exclude each other"),
    ("--time-budget 16s --save-strategy epoch", "by steps, not by epoch"),
    (
        "--time-budget 16s --lr-scheduler-type reduce_lr_on_plateau",
        "reduce_lr_on_plateau cannot be used with --time-budget",
    ),
    # text instead of a corpus
    ("--text short.txt", "the text has 2,000 words; pretraining needs 10,000 or more … --init-from"),
    ("--text short.txt --language german", "language: expected an ISO 639 code"),
    ("--text -", "--text -: standard input can be read only once … ; name a file"),
    ("--text short.txt --corpus corpus", NO_CORPUS),
    ("", NO_CORPUS),
    ("--language de", "--language is an option for --text"),
    ("--cased", "--cased is an option for --text"),
    ("--uncased", "--uncased is an option for --text"),
    ("--text-column body", "--text-column is an option for --text"),
    ("--errors skip", "--errors is an option for --text"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_a_mistake_is_one_line_and_keeps_the_existing_run(corpus_folder, tmp_path, assert_refused, words, message):
    shutil.copytree(corpus_folder, tmp_path / "corpus")
    (tmp_path / "short.txt").write_text("word " * 9 + "word.\n" * 1991)
    (tmp_path / "model").mkdir()
    write_manifest(tmp_path / "model", "pretrain", settings={}, inputs={}, counts={})
    corpus = ["--corpus", "corpus"] if words and not words.startswith("--text ") else []
    assert_refused(["pretrain", *words.split(), *corpus, "--output", "model", "--overwrite", "--use-cpu"], message)
