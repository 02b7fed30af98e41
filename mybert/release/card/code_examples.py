"""The Python blocks of a card: for each head, code that runs as it stands."""

_LOAD = """from transformers import {auto}, AutoTokenizer{more}

repository, revision = {repository!r}, {revision!r}
tokenizer = AutoTokenizer.from_pretrained(repository, revision=revision, trust_remote_code=True)
model = {auto}.from_pretrained(repository, revision=revision, trust_remote_code=True).eval()
"""
_PIPELINE = ", pipeline"

_FILL_MASK = (
    "Guess a masked token:",
    "AutoModelForMaskedLM",
    _PIPELINE,
    """fill_mask = pipeline("fill-mask", model=model, tokenizer=tokenizer)
for guess in fill_mask(f"The file could not be {tokenizer.mask_token}."):
    print(guess["token_str"], round(guess["score"], 3))""",
)
_NEXT_SENTENCE = (
    "Tell whether the second text follows the first (label 0) or comes from elsewhere (label 1):",
    "AutoModelForNextSentencePrediction",
    "",
    """inputs = tokenizer("Open the file.", "If it is not there, an error is raised.", return_tensors="pt")
print("P(follows) =", model(**inputs).logits.softmax(-1)[0, 0].item())""",
)
_VECTORS = (
    "Vectors of tokens, and one of the whole text as the mean over its tokens:",
    "AutoModel",
    "",
    """inputs = tokenizer(["A text.", "Another, longer text."], padding=True, return_tensors="pt")
tokens = model(**inputs).last_hidden_state
mask = inputs["attention_mask"].unsqueeze(-1)
print(tokens.shape, ((tokens * mask).sum(1) / mask.sum(1)).shape)""",
)
_OF_HEADS = {
    "MyBertModel": [_VECTORS],
    "MyBertForPreTraining": [_FILL_MASK, _NEXT_SENTENCE, _VECTORS],
    "MyBertForMaskedLM": [_FILL_MASK, _VECTORS],
    "MyBertForNextSentencePrediction": [_NEXT_SENTENCE, _VECTORS],
    "MyBertForSequenceClassification": [
        (
            "Classify texts:",
            "AutoModelForSequenceClassification",
            _PIPELINE,
            """classify = pipeline("text-classification", model=model, tokenizer=tokenizer)
print(classify(["A text.", "Another text."]))""",
        )
    ],
    "MyBertForTokenClassification": [
        (
            "Label the words of a text:",
            "AutoModelForTokenClassification",
            _PIPELINE,
            """label = pipeline("token-classification", model=model, tokenizer=tokenizer)
print(label("A text with names in it.", aggregation_strategy="simple"))""",
        )
    ],
    "MyBertLMHeadModel": [
        (
            "Go on with a text:",
            "AutoModelForCausalLM",
            "",
            """inputs = tokenizer("Open the file", add_special_tokens=False, return_tensors="pt")
print(tokenizer.batch_decode(model.generate(**inputs, max_new_tokens=20)))""",
        )
    ],
    "MyBertEncoderDecoderModel": [
        (
            "Turn a text into another:",
            "AutoModelForSeq2SeqLM",
            "",
            """inputs = tokenizer("Open the file.", return_tensors="pt", return_token_type_ids=False)
start = model.config.decoder_start_token_id
written = model.generate(**inputs, decoder_start_token_id=start, max_new_tokens=20)
print(tokenizer.batch_decode(written, skip_special_tokens=True))""",
        )
    ],
    "MyBertForMultipleChoice": [
        (
            "Choose the continuation that fits best:",
            "AutoModelForMultipleChoice",
            "",
            """first, choices = "Open the file.", ["Then read it.", "Then eat it."]
inputs = tokenizer([first] * len(choices), choices, padding=True, return_tensors="pt")
print(choices[model(**{name: rows.unsqueeze(0) for name, rows in inputs.items()}).logits.argmax()])""",
        )
    ],
}
_ANSWER = """from transformers import pipeline

answer = pipeline("question-answering", {repository!r}, revision={revision!r}, trust_remote_code=True)
print(answer(question="Who lives in Rome?", context="Ada lives in Rome, Bo in Oslo."))"""


def examples(head: str, auto: str, repository: str, revision: str) -> list[tuple[str, str]]:
    """Sentence and code for what the saved head does.

    Args:
        head: name of the class that was saved.
        auto: the Auto class of it, for a head that is not known here.
    """
    names = {"repository": repository, "revision": revision}
    if head == "MyBertForQuestionAnswering":
        return [("Find the answer to a question in a text:", _ANSWER.format(**names))]
    return [
        (sentence, _LOAD.format(auto=loader, more=more, **names) + code)
        for sentence, loader, more, code in _OF_HEADS.get(head, [(*_VECTORS[:1], auto, *_VECTORS[2:])])
    ]
