"""The commands: their modules, settings, summaries and examples."""

import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Command:
    """A command of `mybert`.

    Attributes:
        function: takes one instance of each of `settings`, as module:function. A path that it returns is named
            by the closing lines.
        settings: dataclasses of the options, as module:class.
        summary: one line of help.
        examples: command lines shown at the end of the help.
        has_report: whether report.html is written into its output.
    """

    function: str
    settings: tuple[str, ...]
    summary: str
    examples: tuple[str, ...]
    has_report: bool = False

    def settings_types(self) -> list[type]:
        """Imports the settings dataclasses."""
        return [pkgutil.resolve_name(name) for name in self.settings]

    def add_report(self, settings: Sequence[Any], output: object) -> bool:
        """Writes the report of a run with these settings, if the command has one and the run wrote its output.

        Returns whether there is a report.
        """
        is_first = getattr(settings[-1], "process_index", 0) == 0
        is_written = is_first and not getattr(settings[0], "dry_run", False)
        if not (self.has_report and isinstance(output, Path) and is_written):
            return False
        from mybert.reports.write import add_report  # here, since `--help` does not need it

        add_report(output)
        return True


COMMANDS = {
    "tokenizer": Command(
        "mybert.corpus.train_tokenizer:build_tokenizer",
        ("mybert.corpus.settings:TokenizerSettings",),
        "Train a WordPiece vocabulary on documents.",
        (
            "mybert tokenizer books/*.txt --output tokenizer",
            "mybert tokenizer articles.jsonl.gz --text-column body --vocab-size 50000 --cased --output tokenizer",
            "mybert tokenizer python-docs --vocab-size 8000 --output tokenizer",
        ),
    ),
    "corpus": Command(
        "mybert.corpus.build:build_corpus",
        ("mybert.corpus.settings:CorpusSettings",),
        "Build pretraining examples (MLM and NSP) from documents.",
        (
            "mybert corpus books/*.txt --tokenizer tokenizer --output corpus",
            "mybert corpus articles.parquet --tokenizer tokenizer --max-length 512 --deduplicate --output corpus",
            "mybert corpus wikimedia/wikipedia:20231101.en --tokenizer tokenizer --no-nsp --output corpus",
        ),
        has_report=True,
    ),
    "plan": Command(
        "mybert.pretraining.planning.plan_command:main",
        ("mybert.pretraining.planning.settings:PlanSettings",),
        "Estimate memory, time and price of a pretraining run.",
        (
            "mybert plan --tokens 3.3B --peak-flops 400T",
            "mybert plan --tokens 12M --time-budget 1h --size tiny mini small",
            "mybert plan --tokens 10B --peak-flops 990T --num-train-epochs 3 --memory 80G --price 2.5",
        ),
    ),
    "pretrain": Command(
        "mybert.workflows.pretrain:main",
        ("mybert.pretraining.settings:PretrainSettings", "mybert.pretraining.settings:PretrainingOptions"),
        "Pretrain a model on text, or on the examples of `mybert corpus`.",
        (
            "mybert pretrain --text books/*.txt --time-budget 1h --output model",
            "mybert pretrain --corpus corpus --output model --size small --max-steps 100000",
            "mybert pretrain --corpus corpus --output model --init-from google-bert/bert-base-uncased --bf16",
        ),
        has_report=True,
    ),
    "adapt": Command(
        "mybert.workflows.adapt:adapt",
        ("mybert.adaptation.settings:AdaptSettings", "mybert.pretraining.settings:PretrainingOptions"),
        "Adapt a BERT to a domain: add words of the domain and continue pretraining on its text.",
        (
            "mybert adapt --model google-bert/bert-base-uncased papers.jsonl --max-steps 5000 --output adapted",
            "mybert adapt --model model books/*.txt --new-words auto --replay general.txt --output adapted",
            "mybert adapt --model model --task-data train.jsonl --new-words 300 --output adapted",
        ),
        has_report=True,
    ),
    "trim": Command(
        "mybert.workflows.trim:trim",
        ("mybert.adaptation.settings:TrimSettings",),
        "Remove from a model the tokens that a text does not contain.",
        (
            "mybert trim --model model books/*.txt --output small",
            "mybert trim --model classifier train.jsonl dev.jsonl --output small",
            "mybert trim --model google-bert/bert-base-multilingual-cased german.txt --output german",
        ),
    ),
    "distill": Command(
        "mybert.distillation.run:distill",
        ("mybert.distillation.settings:DistillSettings", "mybert.pretraining.settings:PretrainingOptions"),
        "Distil a teacher into a smaller encoder.",
        (
            "mybert distill --teacher model --corpus corpus --output student",
            "mybert distill --teacher google-bert/bert-base-uncased --layers 6 --corpus corpus --output student",
            "mybert distill --teacher model --size mini --losses relations=1 hard=1 --corpus corpus --output student",
        ),
        has_report=True,
    ),
    "finetune": Command(
        "mybert.workflows.dispatch:finetune",
        ("mybert.finetuning.settings:FinetuneSettings", "mybert.finetuning.settings:FinetuningOptions"),
        "Fine-tune a checkpoint on labelled rows, or for search on documents.",
        (
            "mybert finetune --task text-classification --model model --train train.csv --validation dev.csv "
            "--output classifier",
            "mybert finetune --task token-classification --model model --train train.conll --sweep paper "
            "--validation dev.conll --output tagger",
            "mybert finetune --task question-answering --model model --train squad.json --num-train-epochs 2 "
            "--output reader",
            "mybert finetune --task retrieval --model model --documents articles.jsonl --output retriever",
        ),
        has_report=True,
    ),
    "evaluate": Command(
        "mybert.workflows.dispatch:evaluate",
        ("mybert.tasks.settings:EvaluateSettings",),
        "Evaluate a fine-tuned model on labelled rows, or a retriever on queries and judgements.",
        (
            "mybert evaluate --model classifier --data test.csv --output evaluation",
            "mybert evaluate --model classifier --data test.csv --columns text=body label=gold --output evaluation",
            "mybert evaluate --model retriever --documents corpus.jsonl --queries queries.jsonl "
            "--judgements qrels/test.tsv --output evaluation",
        ),
        has_report=True,
    ),
    "compare": Command(
        "mybert.comparison.run:compare",
        ("mybert.comparison.settings:CompareSettings",),
        "Compare runs on the same rows: which is better, where, and whether it may be chance.",
        (
            "mybert compare old-scores new-scores --output comparison",
            "mybert compare classifier-1 classifier-2 --slices source --output comparison",
            "mybert compare a-seed1,a-seed2,a-seed3 b-seed1,b-seed2,b-seed3 --output comparison",
        ),
        has_report=True,
    ),
    "predict": Command(
        "mybert.inference.predict:main",
        ("mybert.tasks.settings:PredictSettings",),
        "Predict with a fine-tuned model.",
        (
            "mybert predict classifier reviews.csv --output predictions.jsonl",
            "cat reviews.txt | mybert predict classifier -",
            "mybert predict reader questions.jsonl --n-best 5 --device cuda:0 --output answers.jsonl",
        ),
    ),
    "suggest": Command(
        "mybert.suggestion.run:suggest",
        ("mybert.suggestion.settings:SuggestSettings",),
        "Choose the rows that are worth labelling next.",
        (
            "mybert suggest classifier unlabelled.jsonl --labelled train.jsonl --output next.jsonl",
            "mybert suggest classifier unlabelled.csv --count 200 --output tasks.json",
            "mybert suggest tagger sentences.txt --format doccano --output next.jsonl",
        ),
    ),
    "doctor": Command(
        "mybert.reports.doctor:main",
        ("mybert.reports.settings:DoctorSettings",),
        "Find problems in the output of a stage: learning rate, leaks, truncation, …",
        ("mybert doctor model", "mybert doctor corpus", "mybert doctor evaluation --report"),
    ),
    "explain": Command(
        "mybert.explanation.run:main",
        ("mybert.explanation.settings:ExplainSettings",),
        "Show which words the predictions of a model depend on.",
        (
            "mybert explain classifier reviews.csv --output why.html",
            "mybert explain tagger sentences.txt --method occlusion --output why.jsonl",
            "mybert explain encoder pairs.csv --output why.html",
        ),
    ),
    "demo": Command(
        "mybert.demo.run:serve",
        ("mybert.demo.settings:DemoSettings",),
        "Try models on a page in the browser.",
        (
            "mybert demo classifier",
            "mybert demo classifier other-classifier --port 8000",
            "mybert demo model --host 0.0.0.0",
        ),
    ),
    "serve": Command(
        "mybert.serving.run:serve",
        ("mybert.serving.settings:ServeSettings",),
        "Serve a model over HTTP, with the APIs of OpenAI (embeddings) and TEI.",
        (
            "mybert serve model",
            "mybert serve classifier --port 8000 --max-wait 5",
            "mybert serve model --host 0.0.0.0 --long-texts truncate",
        ),
    ),
    "embed": Command(
        "mybert.embedding.run:embed",
        ("mybert.embedding.settings:EmbedSettings",),
        "Compute vectors of texts, or of words in context.",
        (
            "mybert embed model reviews.txt --output vectors.npy",
            "mybert embed model articles.jsonl --text-column body --long-texts window --output vectors.parquet",
            "mybert embed model reviews.txt --pooling words --layers -1 -2 --output words.jsonl",
        ),
    ),
    "index": Command(
        "mybert.retrieval.build:build_index",
        ("mybert.retrieval.settings:IndexSettings",),
        "Index documents, so that they can be searched by meaning and by words.",
        (
            "mybert index model articles.jsonl --output index",
            "mybert index model notes/ --precision binary --language de --output index",
            "mybert index model new.jsonl --add --delete 17 --output index",
        ),
    ),
    "search": Command(
        "mybert.workflows.dispatch:search_command",
        ("mybert.embedding.settings:SearchSettings",),
        "Find passages in an index, or the texts nearest to a query in the vectors of `mybert embed`.",
        (
            'mybert search index "how to open a file"',
            'mybert search index "how to open a file" --where lang=en --reranker reranker',
            "cat queries.txt | mybert search vectors.jsonl - --output results.jsonl",
        ),
    ),
    "score": Command(
        "mybert.scoring.run:score",
        ("mybert.scoring.settings:ScoreSettings",),
        "Score texts by the pseudo-log-likelihood of a masked language model.",
        (
            "mybert score model sentences.txt --output scores.jsonl",
            "mybert score model pairs.csv --pairs good,bad --masking within-word --output scores.jsonl",
            "mybert score model articles.jsonl --masking whole-word --output scores.jsonl",
        ),
    ),
    "export": Command(
        "mybert.release.convert.export:export",
        ("mybert.release.settings:ExportSettings",),
        "Convert a checkpoint to ONNX.",
        (
            "mybert export classifier --output onnx",
            "mybert export classifier --int8 --output onnx",
            "mybert export google-bert/bert-base-uncased --output onnx",
        ),
    ),
    "merge": Command(
        "mybert.release.convert.merge:merge",
        ("mybert.release.settings:MergeSettings",),
        "Average the weights of models trained from the same checkpoint.",
        (
            "mybert merge model task-adapted --output merged",
            "mybert merge model task-adapted --weights 0.25 0.75 --output merged",
            "mybert merge classifier-seed-0 classifier-seed-1 classifier-seed-2 --output merged",
        ),
    ),
    "quantize": Command(
        "mybert.release.convert.quantize:quantize",
        ("mybert.release.settings:QuantizeSettings",),
        "Convert a checkpoint to int8 weights for the CPU.",
        (
            "mybert quantize model --texts articles.jsonl --output int8",
            "mybert quantize classifier --texts train.csv --text-column sentence --output int8",
            "mybert quantize sentence-transformers/all-MiniLM-L6-v2 --texts notes.txt --output int8",
        ),
    ),
    "push": Command(
        "mybert.release.hub.push:push",
        ("mybert.release.settings:PushSettings",),
        "Verify a checkpoint and publish it on the Hugging Face Hub with a model card.",
        (
            "mybert push model --repo-id alice/my-bert --dry-run",
            "mybert push model --repo-id alice/my-bert --license apache-2.0 --language en",
            "mybert push classifier --repo-id alice/my-classifier --public --create-pr",
        ),
    ),
    "quickstart": Command(
        "mybert.workflows.quickstart:quickstart",
        ("mybert.workflows.quickstart:QuickstartSettings",),
        "Train and evaluate a tiny BERT on the documentation of Python and four packages.",
        (
            "mybert quickstart",
            "mybert quickstart --max-steps 500 --output demo",
            "mybert quickstart --resume",
        ),
    ),
}
