"""The commands: their modules, settings, summaries and examples."""

import pkgutil
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A command of `mybert`.

    Attributes:
        module: holds `main`, which takes one instance of each of `settings`.
        settings: dataclasses of the options, as module:class.
        summary: one line of help.
        examples: command lines shown at the end of the help.
    """

    module: str
    settings: tuple[str, ...]
    summary: str
    examples: tuple[str, ...]

    def settings_types(self) -> list[type]:
        """Imports the settings dataclasses."""
        return [pkgutil.resolve_name(name) for name in self.settings]


COMMANDS = {
    "tokenizer": Command(
        "mybert.corpus.train_tokenizer",
        ("mybert.corpus.settings:TokenizerSettings",),
        "Train a WordPiece vocabulary on documents.",
        (
            "mybert tokenizer books/*.txt --output tokenizer",
            "mybert tokenizer articles.jsonl.gz --text-column body --vocab-size 50000 --cased --output tokenizer",
            "mybert tokenizer python-docs --compare google-bert/bert-base-uncased --output tokenizer",
        ),
    ),
    "corpus": Command(
        "mybert.corpus.build",
        ("mybert.corpus.settings:CorpusSettings",),
        "Build pretraining examples (MLM and NSP) from documents.",
        (
            "mybert corpus books/*.txt --tokenizer tokenizer --output corpus",
            "mybert corpus articles.parquet --tokenizer tokenizer --max-length 512 --deduplicate --output corpus",
            "mybert corpus wikimedia/wikipedia:20231101.en --tokenizer tokenizer --no-nsp --output corpus",
        ),
    ),
    "plan": Command(
        "mybert.pretraining.planning.plan_command",
        ("mybert.pretraining.planning.plan_command:PlanSettings",),
        "Estimate memory, time and price of a pretraining run.",
        (
            "mybert plan --tokens 3.3B --peak-flops 400T",
            "mybert plan --tokens 3.3B --peak-flops 400T --size small base large --devices 1 8",
            "mybert plan --tokens 10B --peak-flops 990T --num-train-epochs 3 --memory 80G --price 2.5",
        ),
    ),
    "pretrain": Command(
        "mybert.pretraining.run",
        ("mybert.pretraining.settings:PretrainSettings", "mybert.pretraining.settings:PretrainingArguments"),
        "Pretrain a model on the examples of `mybert corpus`.",
        (
            "mybert pretrain --corpus corpus --output model --size small --max-steps 100000",
            "mybert pretrain --corpus corpus --output model --init-from google-bert/bert-base-uncased --bf16",
            "mybert pretrain --corpus corpus --output model --dry-run",
        ),
    ),
    "finetune": Command(
        "mybert.finetuning.run",
        ("mybert.finetuning.settings:FinetuneSettings", "mybert.finetuning.settings:FinetuningArguments"),
        "Fine-tune a checkpoint on labelled rows.",
        (
            "mybert finetune --task text-classification --model model --train train.csv --validation dev.csv "
            "--output classifier",
            "mybert finetune --task token-classification --model model --train train.conll --sweep paper "
            "--validation dev.conll --output tagger",
            "mybert finetune --task question-answering --model model --train squad.json --num-train-epochs 2 "
            "--output reader",
        ),
    ),
    "evaluate": Command(
        "mybert.finetuning.evaluation.evaluate",
        ("mybert.finetuning.settings:EvaluateSettings",),
        "Evaluate a fine-tuned model on labelled rows.",
        (
            "mybert evaluate --model classifier --data test.csv --output evaluation",
            "mybert evaluate --model classifier --data test.csv --columns text=body label=gold --output evaluation",
            "mybert evaluate --model tagger --data test.conll --errors skip --output evaluation",
        ),
    ),
    "predict": Command(
        "mybert.finetuning.evaluation.predict",
        ("mybert.finetuning.settings:PredictSettings",),
        "Write the predictions of a fine-tuned model.",
        (
            "mybert predict classifier reviews.csv --output predictions.jsonl",
            "cat reviews.txt | mybert predict classifier -",
            "mybert predict reader questions.jsonl --n-best 5 --device cuda:0 --output answers.jsonl",
        ),
    ),
    "embed": Command(
        "mybert.embedding.run",
        ("mybert.embedding.settings:EmbedSettings",),
        "Write vectors of texts, or of words in context.",
        (
            "mybert embed model reviews.txt --output vectors.npy",
            "mybert embed model articles.jsonl --text-column body --long-texts window --output vectors.parquet",
            "mybert embed model reviews.txt --vectors words --layers -1 -2 --output words.jsonl",
        ),
    ),
    "search": Command(
        "mybert.embedding.search",
        ("mybert.embedding.settings:SearchSettings",),
        "Find the texts nearest to a query in the vectors of `mybert embed`.",
        (
            'mybert search vectors.parquet "how to open a file"',
            'mybert search vectors.npy "first query" "second query" --top-k 10 --output results.jsonl',
            "cat queries.txt | mybert search vectors.jsonl - --output results.jsonl",
        ),
    ),
    "export": Command(
        "mybert.release.convert.export",
        ("mybert.release.settings:ExportSettings",),
        "Convert a checkpoint to transformers' BERT or to ONNX.",
        (
            "mybert export model --to bert --output bert",
            "mybert export classifier --to onnx --output onnx",
            "mybert export classifier --to onnx --int8 --output onnx",
        ),
    ),
    "import": Command(
        "mybert.release.convert.import_bert",
        ("mybert.release.settings:ImportSettings",),
        "Convert a BERT checkpoint of transformers or Google.",
        (
            "mybert import google-bert/bert-base-uncased --output model",
            "mybert import bert --output model",
            "mybert import uncased_L-12_H-768_A-12/bert_model.ckpt --output model",
        ),
    ),
    "push": Command(
        "mybert.release.hub.push",
        ("mybert.release.settings:PushSettings",),
        "Verify a checkpoint and publish it on the Hugging Face Hub with a model card.",
        (
            "mybert push model --repo-id alice/my-bert --dry-run",
            "mybert push model --repo-id alice/my-bert --license apache-2.0 --language en",
            "mybert push classifier --repo-id alice/my-classifier --public --create-pr",
        ),
    ),
    "quickstart": Command(
        "mybert.quickstart",
        ("mybert.quickstart:QuickstartSettings",),
        "Train a small BERT on the documentation of Python, from text to a checkpoint.",
        (
            "mybert quickstart",
            "mybert quickstart --max-steps 500 --output demo",
            "mybert quickstart --seed 1 --overwrite",
        ),
    ),
}
