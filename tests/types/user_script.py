"""A user's script over the public API, for `make types`: right calls have no error, wrong ones have one.

Type checkers read it; nothing runs it. An unused `type: ignore` is an error too.
"""

from pathlib import Path

import pandas as pd

import mybert

ROWS = [{"text": "a fine film", "label": "good"}, {"text": "a dull film", "label": "bad"}]


def from_text_to_a_model(books: Path) -> mybert.Result:
    tokenizer = mybert.train_tokenizer(inputs=[books], vocab_size=30_000, output="tokenizer")
    corpus = mybert.build_corpus(inputs=books, tokenizer=tokenizer, max_length=128, output="corpus")
    mybert.pretrain(text=["books.txt"], time_budget="1h", output="quick")
    model = mybert.pretrain(
        corpus=corpus, size="mini", max_steps=10_000, learning_rate=1e-3, bf16=True, seed=1, output=Path("model")
    )
    mybert.pretrain(config="recipes/mini.yaml", corpus=corpus, output="model")
    adapted = mybert.adapt(model=model, inputs=[books], new_words=300, max_steps=2000, output="adapted")
    mybert.trim(model=adapted, inputs=[books], output="small")
    student = mybert.distill(teacher=model, layers=3, corpus=corpus, losses={"soft": 5}, output="student")
    assert student.metrics["mlm_loss"] > 0
    return model


def a_task(model: mybert.Result) -> None:
    classifier = mybert.finetune(
        task="text-classification", model=model, train=ROWS, validation=pd.DataFrame(ROWS), output="classifier"
    )
    scores = mybert.evaluate(model=classifier, data="test.csv", columns={"text": "body"}, output="scores")
    accuracy: float = scores.metrics["accuracy"]
    counts = mybert.predict(classifier, "new.csv", output="predictions.csv")
    mybert.explain(classifier, ["new.csv"], output="why.html")
    predict = mybert.Predictor(classifier, device="cpu")
    print(accuracy, counts, predict([row["text"] for row in ROWS]), mybert.Explainer(predict)(ROWS))


def other_uses(model: mybert.Result) -> None:
    vectors = mybert.embed(model, ["texts.txt"], output="vectors.parquet")
    mybert.search(vectors, "how to open a file", top_k=5)
    mybert.score(model, "texts.txt", output="scores.jsonl")
    print(mybert.Embedder(model, device="cpu").texts(["a text"]).shape, mybert.Scorer(model).texts(["a text"]))
    mybert.export(model, output="onnx", int8=True)
    mybert.push(model, repo_id="me/my-bert", license="apache-2.0", language=["en"], dry_run=True)
    for finding in mybert.doctor(model):
        print(finding.level, finding.title)


def mistakes() -> None:
    mybert.pretrain(corpus="corpus", output="model", lerning_rate=1e-3)  # type: ignore[call-arg]
    mybert.pretrain(corpus="corpus", output="model", learning_rate="high")  # type: ignore[arg-type]
    mybert.train_tokenizer(inputs=["books.txt"])  # type: ignore[call-arg]
    mybert.export("model", int8="yes", output="out")  # type: ignore[arg-type]
    mybert.Predictor("model", max_lenght=5)  # type: ignore[call-arg]
