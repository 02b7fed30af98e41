"""Keyword arguments of the functions of `mybert`, for editors and type checkers.

Written by `make generated` from the settings of the commands; `TrainerKeywords` has the fields of
transformers' TrainingArguments 5.24.0.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Required, TypeAlias, TypedDict

import datasets
import pandas

Name: TypeAlias = str | PathLike[str]
Rows: TypeAlias = Name | list[dict[str, Any]] | datasets.Dataset | pandas.DataFrame

class TaskKeywords(TypedDict, total=False):
    columns: Name | Sequence[Name] | Mapping[str, object]
    max_length: int | None
    choice_labels: Literal["letters", "from-0", "from-1", "texts"] | None
    stride: int | None
    n_best: int | None
    max_answer_length: int | None
    max_windows: int | None
    label_all_tokens: bool | None
    plain_tags: bool | None
    problem: Literal["single-label", "multi-label", "regression"] | None
    label_separator: Name | None
    label_names: Name | Sequence[Name] | Mapping[str, object]
    long_texts: Literal["truncate", "window"] | None
    threshold: Name | Sequence[Name] | Mapping[str, object]

class EvaluationKeywords(TypedDict, total=False):
    bootstrap: int
    slices: Name | Sequence[Name]
    suspects: Literal["jsonl", "csv", "label-studio", "doccano", "argilla"]
    errors: Literal["strict", "skip"]

class DeviceKeywords(TypedDict, total=False):
    device: Name
    dtype: Literal["float32", "bfloat16", "int8"]
    max_tokens_per_batch: int | None

class PredictorKeywords(TaskKeywords, DeviceKeywords, total=False):
    task: Name | None

class ExplainerKeywords(PredictorKeywords, total=False):
    method: Literal["integrated-gradients", "occlusion"]
    labels: Name | Sequence[Name]
    steps: int | None
    tolerance: float

class EmbedderKeywords(DeviceKeywords, total=False):
    layers: int | Sequence[int]
    normalize: bool
    long_texts: Literal["refuse", "truncate", "window"] | None
    prompt_name: Name | None
    prompt: Name | None
    max_length: int | None
    stride: int | None

class ScorerKeywords(DeviceKeywords, total=False):
    max_length: int | None

class CommandKeywords(TypedDict, total=False):
    config: Name
    overwrite: bool
    output: Required[Name]

class TextKeywords(TypedDict, total=False):
    text_column: Name
    errors: Literal["strict", "skip"]

class TrainerKeywords(TypedDict, total=False):
    resume: bool
    max_steps: int
    lr_scheduler_type: Any
    lr_scheduler_kwargs: Any
    warmup_steps: float
    optim: Any
    optim_args: Name | None
    weight_decay: float
    adam_beta1: float
    adam_beta2: float
    adam_epsilon: float
    optim_target_modules: Name | Sequence[Name] | None
    gradient_accumulation_steps: int
    average_tokens_across_devices: bool
    max_grad_norm: float
    label_smoothing_factor: float
    bf16: bool
    fp16: bool
    bf16_full_eval: bool
    fp16_full_eval: bool
    tf32: bool | None
    activation_checkpointing: bool | None
    activation_checkpointing_kwargs: Any
    gradient_checkpointing: bool | None
    gradient_checkpointing_kwargs: Any
    torch_compile: bool
    torch_compile_backend: Name | None
    torch_compile_mode: Name | None
    use_liger_kernel: bool
    liger_kernel_config: Any
    use_cache: bool
    neftune_noise_alpha: float | None
    torch_empty_cache_steps: int | None
    auto_find_batch_size: bool
    logging_strategy: Any
    logging_steps: float
    logging_first_step: bool
    log_on_each_node: bool
    logging_nan_inf_filter: bool
    include_num_input_tokens_seen: bool | Name
    log_level: Name
    log_level_replica: Name
    disable_tqdm: bool | None
    report_to: Name | Sequence[Name]
    run_name: Name | None
    project: Name
    trackio_space_id: Name | None
    trackio_bucket_id: Name | None
    trackio_static_space_id: Any
    eval_strategy: Literal["no", "steps", "epoch"]
    eval_delay: float
    per_device_eval_batch_size: int
    prediction_loss_only: bool
    eval_on_start: bool
    eval_do_concat_batches: bool
    eval_use_gather_object: bool
    eval_accumulation_steps: int | None
    include_for_metrics: Name | Sequence[Name]
    batch_eval_metrics: bool
    save_only_model: bool
    save_steps: float
    save_on_each_node: bool
    save_total_limit: int
    enable_jit_checkpoint: bool
    push_to_hub: bool
    hub_token: Name | None
    hub_private_repo: bool | None
    hub_model_id: Name | None
    hub_strategy: Any
    hub_always_push: bool
    hub_revision: Name | None
    load_best_model_at_end: bool
    metric_for_best_model: Name | None
    greater_is_better: bool | None
    ignore_data_skip: bool
    restore_callback_states_from_checkpoint: bool
    full_determinism: bool
    seed: int
    data_seed: int | None
    use_cpu: bool
    accelerator_config: Any
    parallelism_config: Any
    dataloader_drop_last: bool
    dataloader_num_workers: int
    dataloader_pin_memory: bool
    dataloader_persistent_workers: bool
    dataloader_prefetch_factor: int | None
    dataloader_multiprocessing_context: Name | None
    dataloader_in_order: bool
    remove_unused_columns: bool
    train_sampling_strategy: Name
    length_column_name: Name
    ddp_find_unused_parameters: bool | None
    ddp_bucket_cap_mb: int | None
    ddp_broadcast_buffers: bool | None
    ddp_static_graph: bool | None
    ddp_backend: Name | None
    ddp_timeout: int
    fsdp: Name | None
    fsdp_config: Any
    deepspeed: Any
    debug: Name | Sequence[Name]
    skip_memory_metrics: bool
    do_train: bool
    do_eval: bool
    do_predict: bool
    resume_from_checkpoint: Name | None
    local_rank: int

class DoctorKeywords(TypedDict, total=False):
    config: Name
    report: bool

class MergeKeywords(CommandKeywords, total=False):
    models: Required[Name | Sequence[Name]]
    weights: float | Sequence[float] | None

class ExportKeywords(CommandKeywords, total=False):
    int8: bool
    tolerance: float
    int8_tolerance: float

class QuantizeKeywords(CommandKeywords, TextKeywords, total=False):
    model: Required[Name]
    texts: Required[Name | Sequence[Name]]
    tokens: int

class CompareKeywords(CommandKeywords, total=False):
    metric: Name | None
    part: Literal["auto", "test", "validation"]
    columns: Name | Sequence[Name] | Mapping[str, object]
    slices: Name | Sequence[Name]
    bootstrap: int
    seed: int

class TrimKeywords(CommandKeywords, TextKeywords, total=False):
    num_proc: int | None
    task: Name
    columns: Name | Sequence[Name] | Mapping[str, object] | None
    inputs: Name | Sequence[Name] | None
    model: Required[Name]
    task_data: Name | Sequence[Name]

class SearchKeywords(TypedDict, total=False):
    config: Name
    overwrite: bool
    device: Name
    model: Name | None
    prompt_name: Name | None
    prompt: Name | None
    top_k: int
    mode: Literal["hybrid", "dense", "words"] | None
    reranker: Name | None
    where: Name | Sequence[Name] | Mapping[str, object]
    output: Name | None

class ScoreKeywords(ScorerKeywords, CommandKeywords, TextKeywords, total=False):
    masking: Literal["token", "within-word", "whole-word"]
    pairs: Name | None

class TrainTokenizerKeywords(CommandKeywords, TextKeywords, total=False):
    num_proc: int | None
    inputs: Required[Name | Sequence[Name]]
    uncased: bool | None
    strip_accents: bool | None
    vocab_size: int
    language: Name
    min_frequency: int
    character_coverage: float
    pad_to_multiple_of: int

class PushKeywords(TypedDict, total=False):
    config: Name
    repo_id: Required[Name]
    public: bool
    revision: Name
    tag: Name | None
    create_pr: bool
    overwrite: bool
    license: Name | None
    language: Name | Sequence[Name] | None
    example: Name | Sequence[Name] | None
    exclude: Name | Sequence[Name] | None
    name_sources: bool
    verify: bool
    space: Name | None
    dry_run: bool

class BuildIndexKeywords(DeviceKeywords, CommandKeywords, TextKeywords, total=False):
    resume: bool
    columns: Name | Sequence[Name] | Mapping[str, object]
    passage_tokens: int
    overlap: int
    precision: Literal["float32", "int8", "binary"]
    language: Name | None
    add: bool
    delete: Name | Sequence[Name]

class EmbedKeywords(EmbedderKeywords, CommandKeywords, TextKeywords, total=False):
    resume: bool
    engine: Literal["local", "ray"]
    pooling: (
        Literal["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", "pooler", "words"] | None
    )

class SuggestKeywords(ScorerKeywords, CommandKeywords, total=False):
    columns: Name | Sequence[Name] | Mapping[str, object]
    stride: int | None
    label_all_tokens: bool | None
    plain_tags: bool | None
    problem: Literal["single-label", "multi-label", "regression"] | None
    label_separator: Name | None
    label_names: Name | Sequence[Name] | Mapping[str, object]
    long_texts: Literal["truncate", "window"] | None
    threshold: Name | Sequence[Name] | Mapping[str, object]
    task: Name | None
    errors: Literal["strict", "skip"]
    spreadsheet_safe: bool
    count: int
    labelled: Name | Sequence[Name]
    format: Literal["jsonl", "csv", "label-studio", "doccano", "argilla"] | None

class BuildCorpusKeywords(CommandKeywords, TextKeywords, total=False):
    num_proc: int | None
    inputs: Required[Name | Sequence[Name]]
    resume: bool
    engine: Literal["local", "ray"]
    tokenizer: Required[Name]
    max_length: int | None
    short_seq_prob: float
    dupe_factor: int
    negatives: Literal["other-document", "same-document"]
    nsp: bool
    one_sentence_per_line: bool
    language: Name
    document_per_file: bool
    deduplicate: bool
    deduplicate_near: float | None
    filter: Name | Sequence[Name]
    split_documents: int
    validation_share: float
    seed: int

class PredictKeywords(PredictorKeywords, total=False):
    config: Name
    overwrite: bool
    resume: bool
    engine: Literal["local", "ray"]
    output: Name
    errors: Literal["strict", "skip"]
    spreadsheet_safe: bool

class ExplainKeywords(ExplainerKeywords, total=False):
    config: Name
    overwrite: bool
    output: Name
    errors: Literal["strict", "skip"]
    attention: int

class EvaluateKeywords(PredictorKeywords, EvaluationKeywords, CommandKeywords, total=False):
    model: Required[Name]
    data: Rows | None
    documents: Name | Sequence[Name]
    queries: Name | None
    judgements: Name | None
    start: Name | None
    reranker: Name | None
    language: Name | None
    seed: int

class AdaptKeywords(TrainerKeywords, TrimKeywords, total=False):
    new_words: int | Name | None
    words: Name | None
    replay: Name | Sequence[Name]
    replay_share: float
    general: Name | Sequence[Name]
    freeze: Literal["nothing", "encoder", "all"]
    lora_rank: int | None
    time_budget: str | float | None
    max_length: int | None
    whole_word_masking: bool
    validation_share: float
    eval_characters: int
    per_device_train_batch_size: int
    num_train_epochs: float
    learning_rate: float
    eval_steps: float
    save_strategy: Any
    label_names: Name | Sequence[Name] | None

class PretrainKeywords(TrainerKeywords, CommandKeywords, TextKeywords, total=False):
    attn_implementation: Name | None
    dry_run: bool
    uncased: bool | None
    strip_accents: bool | None
    language: Name
    corpus: Name | None
    text: Name | Sequence[Name]
    time_budget: str | float | None
    size: Literal["tiny", "mini", "small", "medium", "base", "large"] | None
    init_from: Name | None
    dropout: float | None
    initializer_range: float | None
    initial_weights: Literal["random", "text"]
    optimizer: Literal["adamw", "muon"]
    mlm_probability: float
    start_mlm_probability: float | None
    max_predictions_per_seq: int | None
    whole_word_masking: bool
    masking_seed: int | None
    max_tokens_per_batch: int | None
    start_tokens_per_batch: int | None
    length_schedule: Name | Sequence[Name]
    on_nonfinite: Literal["stop", "skip"]
    peak_flops: float | None
    keep_checkpoints: int | None
    per_device_train_batch_size: int
    num_train_epochs: float
    learning_rate: float
    eval_steps: float
    save_strategy: Any
    label_names: Name | Sequence[Name] | None

class DistillKeywords(PretrainKeywords, total=False):
    teacher: Required[Name]
    layers: int | None
    losses: Name | Sequence[Name] | Mapping[str, object] | None
    temperature: float
    relation_heads: int | None

class FinetuneKeywords(TrainerKeywords, TaskKeywords, EvaluationKeywords, CommandKeywords, total=False):
    documents: Name | Sequence[Name]
    mined_pairs: int | None
    queries: Name | None
    judgements: Name | None
    hard_negatives: int | None
    dimensions: int | Sequence[int]
    attn_implementation: Name | None
    dry_run: bool
    task: Required[Name]
    model: Required[Name]
    train: Rows | Sequence[Name] | None
    validation: Rows | None
    validation_share: float | None
    folds: int | None
    test: Rows | None
    teacher: Name | None
    unlabelled: Rows | None
    temperature: float
    soft_share: float
    layers: int | None
    metric: Name | None
    seeds: int
    sweep: Literal["paper", "miniatures"] | None
    patience: int | None
    dropout: float | None
    class_weights: bool
    freeze: Literal["encoder"] | None
    max_train_samples: int | None
    calibrate: bool
    per_device_train_batch_size: int | None
    num_train_epochs: float | None
    learning_rate: float | None
    eval_steps: float | None
    save_strategy: Literal["no", "steps", "epoch"]
