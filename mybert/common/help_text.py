"""Help of the commands: groups of options, and defaults."""

import argparse
import dataclasses
import re

_REQUIRED, _OTHER, _INHERITED = "required", "other options", "options of transformers.TrainingArguments"
_NAMES = {
    "data": "columns corpus data deduplicate deduplicate_near document_per_file documents dupe_factor errors filter "
    "general hard_negatives inputs judgements language long_texts max_length max_train_samples mined_pairs "
    "negatives nsp one_sentence_per_line pairs phase2_corpus phase2_share queries replay replay_share "
    "short_seq_prob split_documents stride task_data test text text_column tokens train validation "
    "validation_share folds part runs count labelled",
    "model": "attn_implementation casing character_coverage compare dropout freeze init_from initial_weights "
    "initializer_range layers lora_rank masking min_frequency model models new_words normalize "
    "pad_to_multiple_of pooling prompt prompt_name size start strip_accents uncased vectors vocab_size weights words",
    "task": "choice_labels dimensions label_all_tokens label_names label_separator labels max_answer_length method "
    "mode n_best overlap passage_tokens plain_tags problem reranker steps task threshold top_k where",
    "training": "adam_epsilon class_weights learning_rate length_schedule max_predictions_per_seq max_steps "
    "mlm_probability num_train_epochs on_nonfinite optimizer patience new_word_steps start_mlm_probability "
    "start_share sweep time_budget warmup_steps weight_decay whole_word_masking",
    "batches": "gradient_accumulation_steps max_tokens_per_batch per_device_eval_batch_size "
    "per_device_train_batch_size start_tokens_per_batch",
    "seeds": "masking_seed seed seeds",
    "teacher": "losses relation_heads soft_share teacher temperature unlabelled",
    "evaluation": "bootstrap calibrate eval_characters eval_steps eval_strategy load_best_model_at_end metric slices "
    "suspects",
    "hardware": "bandwidth bf16 device devices dtype engine memory mfu num_proc padding_free peak_flops price",
    "service": "api_key host max_bytes max_requests max_texts max_tokens max_wait port timeout",
    "output": "add attention delete dry_run int8 int8_tolerance keep_checkpoints logging_nan_inf_filter logging_steps "
    "output overwrite precision report report_to resume save_steps save_strategy save_total_limit spreadsheet_safe to "
    "tolerance format",
    "repository": "create_pr example exclude license max_file_size name_sources public revision space tag verify",
}
_GROUP_OF = {name: title for title, names in _NAMES.items() for name in names.split()}
GROUPS = (_REQUIRED, *_NAMES, _OTHER, _INHERITED)
"""Titles of the groups of options, in the order of the help."""


def group_of(name: str, required: bool, inherited: bool) -> str:
    """The group that an option is listed in."""
    return _REQUIRED if required else _INHERITED if inherited else _GROUP_OF.get(name, _OTHER)


def help_of(field: dataclasses.Field) -> str:
    """The help of a field as a sentence, and its default."""
    help, default = field.metadata.get("help", ""), field.default
    if help == argparse.SUPPRESS:
        return help
    if re.match(r"[a-z]+( |,|$)", help):
        help = help[0].upper() + help[1:]
    help = help if help.endswith(".") else f"{help}."
    if field.default_factory is not dataclasses.MISSING:
        default = " ".join(map(str, field.default_factory()))
    if default in (None, "", dataclasses.MISSING) or "(default:" in help:
        return help.replace("%", "%%")  # for argparse
    return f"{help} (default: {default})".replace("%", "%%")
