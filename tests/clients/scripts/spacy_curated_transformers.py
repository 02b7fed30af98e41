"""spaCy: spacy-curated-transformers."""

import spacy
from spacy.training import Example
from spacy_curated_transformers.models.hf_loader import build_hf_transformer_encoder_loader_v1
from spacy_curated_transformers.tokenization.hf_loader import build_hf_piece_encoder_loader_v1

PACKAGES = ["spacy-curated-transformers==0.3.1", "spacy==3.8.18"]


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    nlp = spacy.blank("en")
    model = {"@architectures": "spacy-curated-transformers.BertTransformer.v1", "vocab_size": 30522}
    sizes = {"hidden_width": 384, "intermediate_width": 1536, "num_hidden_layers": 6, "num_attention_heads": 12}
    spans = {"@architectures": "spacy-curated-transformers.WithStridedSpans.v1", "stride": 96, "window": 128}
    sizes |= {
        "with_spans": spans,
        "piece_encoder": {"@architectures": "spacy-curated-transformers.BertWordpieceEncoder.v1"},
    }
    pipe = nlp.add_pipe("curated_transformer", config={"model": {**model, **sizes}})
    pipe.initialize(
        lambda: [Example.from_dict(nlp.make_doc(text), {}) for text in texts],
        nlp=nlp,
        encoder_loader=build_hf_transformer_encoder_loader_v1(name=folder),
        piecer_loader=build_hf_piece_encoder_loader_v1(name=folder),
    )
    documents = list(nlp.pipe(texts))
    return [document._.trf_data.last_hidden_layer_state.dataXd for document in documents]
