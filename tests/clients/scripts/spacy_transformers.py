"""spaCy: spacy-transformers."""

import spacy

PACKAGES = ["spacy-transformers==1.4.0", "spacy==3.8.18"]
REMARK = "Requires transformers < 4.53.3 ([spaCy #13862](https://github.com/explosion/spaCy/issues/13862))."


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    nlp = spacy.blank("en")
    model = {"@architectures": "spacy-transformers.TransformerModel.v3", "name": folder}
    nlp.add_pipe("transformer", config={"model": model})
    nlp.initialize()
    documents = list(nlp.pipe(texts))
    return [document._.trf_data.model_output.last_hidden_state[0, :6] for document in documents]
