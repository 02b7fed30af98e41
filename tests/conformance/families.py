"""The two families of classes: nine heads of transformers' BERT and of MyBERT."""

from dataclasses import dataclass

import transformers
from transformers.models.auto import modeling_auto

import modeling_mybert
import tokenization

# The table of transformers with the heads of each kind; its tests look up there which inputs a class expects.
_TABLES = {
    "Model": "MODEL_MAPPING_NAMES",
    "ForPreTraining": "MODEL_FOR_PRETRAINING_MAPPING_NAMES",
    "ForMaskedLM": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "ForNextSentencePrediction": "MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING_NAMES",
    "ForSequenceClassification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
    "ForTokenClassification": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
    "ForQuestionAnswering": "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES",
    "ForMultipleChoice": "MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES",
}


@dataclass(frozen=True)
class Family:
    """
    Attributes:
        name: `Bert` or `MyBert`, the prefix of its class names.
        config: the configuration class.
        heads: model classes by their names without the prefix.
        tokenizer: the tokenizer class.
    """

    name: str
    config: type
    heads: dict[str, type]
    tokenizer: type


def _heads(module, name: str) -> dict[str, type]:
    return {head: getattr(module, name + head) for head in _TABLES}


BERT = Family("Bert", transformers.BertConfig, _heads(transformers, "Bert"), transformers.BertTokenizer)
MYBERT = Family(
    "MyBert", modeling_mybert.MyBertConfig, _heads(modeling_mybert, "MyBert"), tokenization.MyBertTokenizer
)

# These tables list the models of transformers; other models are known only to the Auto classes.
for _head, _table in _TABLES.items():
    getattr(modeling_auto, _table)["mybert"] = MYBERT.heads[_head].__name__
