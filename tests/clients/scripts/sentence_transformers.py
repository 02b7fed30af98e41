"""sentence-transformers: training of a bi-encoder."""

from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

PACKAGES = ["sentence-transformers==6.2.0", "datasets", "accelerate"]


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    model = SentenceTransformer(folder, trust_remote_code=remote, device="cpu")
    before = model.encode(texts)
    settings = {"max_steps": 3, "per_device_train_batch_size": 4, "save_strategy": "no", "report_to": "none"}
    SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments("trained", use_cpu=True, disable_tqdm=True, **settings),
        train_dataset=Dataset.from_dict({"anchor": texts[:4], "positive": texts[4:]}),
        loss=MultipleNegativesRankingLoss(model),
    ).train()
    model.save("saved")
    again = SentenceTransformer("saved", trust_remote_code=remote, device="cpu")
    return [before, again.encode(texts)]
