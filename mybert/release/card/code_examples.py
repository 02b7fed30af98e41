"""Python examples for the model card, for each head. They run as they are."""

from mybert.release.heads import HEADS, PIPELINE_ARGUMENTS

_LOAD = """from transformers import {auto}, AutoTokenizer{more}

repository, revision = {repository!r}, {revision!r}
tokenizer = AutoTokenizer.from_pretrained(repository, revision=revision, trust_remote_code=True)
model = {auto}.from_pretrained(repository, revision=revision, trust_remote_code=True).eval()
"""
_PIPELINE = """pipe = pipeline("{task}", model=model, tokenizer=tokenizer{arguments})
"""
# title, Auto class, whether it uses a pipeline, code
_FILL_MASK = (
    "Fill in a masked token",
    "AutoModelForMaskedLM",
    """for prediction in pipe(f"The file could not be {tokenizer.mask_token}."):
    print(prediction["token_str"], round(prediction["score"], 3))""",
)
_NEXT_SENTENCE = (
    "Predict whether the second text follows the first",
    "AutoModelForNextSentencePrediction",
    """inputs = tokenizer("Open the file.", "If it is missing, stop.", truncation=True, return_tensors="pt")
print("P(follows) =", model(**inputs).logits.softmax(-1)[0, 0].item())""",
)
_EMBEDDINGS = (
    "Compute token embeddings, and text embeddings as their mean",
    "AutoModel",
    """inputs = tokenizer(["A text.", "A longer text."], padding=True, truncation=True, return_tensors="pt")
tokens = model(**inputs).last_hidden_state
mask = inputs["attention_mask"].unsqueeze(-1)
print(tokens.shape, ((tokens * mask).sum(1) / mask.sum(1)).shape)""",
)
_EXAMPLES = {
    "MyBertModel": [_EMBEDDINGS],
    "MyBertForPreTraining": [_FILL_MASK, _NEXT_SENTENCE, _EMBEDDINGS],
    "MyBertForMaskedLM": [_FILL_MASK, _EMBEDDINGS],
    "MyBertForNextSentencePrediction": [_NEXT_SENTENCE, _EMBEDDINGS],
    "MyBertForSequenceClassification": [
        ("Classify texts", "AutoModelForSequenceClassification", """print(pipe(["A text.", "Another text."]))""")
    ],
    "MyBertForTokenClassification": [
        (
            "Label the words of a text",
            "AutoModelForTokenClassification",
            """print(pipe("A text with names in it.", aggregation_strategy="simple"))""",
        )
    ],
    "MyBertForQuestionAnswering": [
        (
            "Find the answer to a question in a text",
            None,
            """from transformers import pipeline

pipe = pipeline("question-answering", {repository!r}, revision={revision!r}, trust_remote_code=True)
print(pipe(question="Who lives in Rome?", context="Ada lives in Rome, Bo in Oslo."))""",
        )
    ],
    "MyBertLMHeadModel": [
        (
            "Continue a text",
            "AutoModelForCausalLM",
            """inputs = tokenizer("Open the file", add_special_tokens=False, return_tensors="pt")
print(tokenizer.batch_decode(model.generate(**inputs, max_new_tokens=20)))""",
        )
    ],
    "MyBertEncoderDecoderModel": [
        (
            "Generate a text from a text",
            "AutoModelForSeq2SeqLM",
            """inputs = tokenizer("Open the file.", truncation=True, return_tensors="pt", return_token_type_ids=False)
start = model.config.decoder_start_token_id
output = model.generate(**inputs, decoder_start_token_id=start, max_new_tokens=20)
print(tokenizer.batch_decode(output, skip_special_tokens=True))""",
        )
    ],
    "MyBertForMultipleChoice": [
        (
            "Choose the best continuation",
            "AutoModelForMultipleChoice",
            """first, choices = "Open the file.", ["Then read it.", "Then eat it."]
inputs = tokenizer([first] * len(choices), choices, padding=True, truncation=True, return_tensors="pt")
print(choices[model(**{name: rows.unsqueeze(0) for name, rows in inputs.items()}).logits.argmax()])""",
        )
    ],
}


def code_examples(head: str, repository: str, revision: str) -> list[tuple[str, str]]:
    """Title and code of each example for a saved head.

    Args:
        head: a key of `HEADS`.
        repository, revision: what the examples load.
    """
    names = {"repository": repository, "revision": revision}
    return [
        (title, code.format(**names) if auto is None else _load(head, auto, code, names) + code)
        for title, auto, code in _EXAMPLES.get(head, [_EMBEDDINGS])
    ]


def _load(head: str, auto: str, code: str, names: dict[str, str]) -> str:
    """The lines before an example that load the model, and the pipeline if the example calls it."""
    if "pipe(" not in code:
        return _LOAD.format(auto=auto, more="", **names)
    task = HEADS[head].pipeline
    arguments = "".join(f", {name}={value!r}" for name, value in PIPELINE_ARGUMENTS.get(task, {}).items())
    return _LOAD.format(auto=auto, more=", pipeline", **names) + _PIPELINE.format(task=task, arguments=arguments)
