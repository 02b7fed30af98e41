"""One optimizer step by transformers' Trainer."""

from transformers import PreTrainedModel, Trainer, TrainingArguments


def first_step(
    model: PreTrainedModel, rows: list[dict], folder, accumulation: int = 1, kind: type[Trainer] = Trainer, **settings
) -> dict[str, float]:
    """Loss and norm of the gradient that Trainer logs for a step over all rows in `accumulation` batches."""
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=len(rows) // accumulation,
        gradient_accumulation_steps=accumulation,
        max_steps=1,
        logging_steps=1,
        optim="sgd",
        max_grad_norm=1e9,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        **settings,
    )
    trainer = kind(model, arguments, train_dataset=rows)
    trainer.train()
    return {name: trainer.state.log_history[0][name] for name in ("loss", "grad_norm")}
