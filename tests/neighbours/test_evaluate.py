"""The library evaluate: a metric of it in a Trainer of our models."""

import datasets
import evaluate
from transformers import (
    AutoTokenizer,
    EvalPrediction,
    Trainer,
    TrainingArguments,
)


class Accuracy(evaluate.Metric):
    """A metric without a download: metrics of the Hub need a network."""

    def _info(self) -> evaluate.MetricInfo:
        features = datasets.Features({"predictions": datasets.Value("int32"), "references": datasets.Value("int32")})
        return evaluate.MetricInfo(description="accuracy", citation="", features=features)

    def _compute(self, predictions: list[int], references: list[int]) -> dict[str, float]:
        equal = [one == other for one, other in zip(predictions, references, strict=True)]
        return {"accuracy": sum(equal) / len(equal)}


def test_metrics_of_a_trainer_are_those_of_the_same_bert(pair, bert_folders, tmp_path):
    head, metric = "MyBertForSequenceClassification", Accuracy()
    tokenizer = AutoTokenizer.from_pretrained(bert_folders(head))
    texts = ["Ann sings in Rome.", "A dull film.", "The sea is great.", "Bert is in the house."] * 3
    rows = datasets.Dataset.from_dict({**tokenizer(texts), "labels": [0, 1, 2] * 4})

    def scores(found: EvalPrediction) -> dict[str, float]:
        return metric.compute(predictions=found.predictions.argmax(1), references=found.label_ids)

    accuracies = []
    for model in pair(head):
        arguments = TrainingArguments(tmp_path / "out", report_to="none", use_cpu=True, disable_tqdm=True)
        trainer = Trainer(model, arguments, processing_class=tokenizer, compute_metrics=scores)
        accuracies.append(trainer.evaluate(rows)["eval_accuracy"])
    assert accuracies[0] == accuracies[1] and 0 < accuracies[0] < 1
