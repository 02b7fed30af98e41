"""Compare pretraining recipes at equal CPU time: each call makes one short run and writes one line of JSON.

    python benchmarks/recipe_search.py CORPUS --name tiny --size tiny --seconds 240 [--output results.jsonl]

CORPUS is a folder of `mybert corpus`. A run ends after SECONDS of CPU time of this process, so runs with other
load are comparable; evaluation is not counted. The schedule depends on the share of the time that has passed, as with
`mybert pretrain --time-budget`. All runs are scored on the same held-out examples with the same masks.
"""

import argparse
import copy
import dataclasses
import json
import math
import sys
import time
from pathlib import Path

import recipe_ideas as ideas
import torch
from padding import with_padding

from modeling_mybert import MyBertConfig, MyBertForPreTraining
from mybert.common.machine import hardware, keep_freed_memory
from mybert.pretraining.corpus_loading import Corpus
from mybert.pretraining.data.batching import EVALUATION, ExampleDataset, PretrainingCollator
from mybert.pretraining.data.counter_based_random import WINDOWS, RandomStreams, permutation
from mybert.pretraining.data.masking import Masker
from mybert.pretraining.data.scheduled_batches import Schedule, cut_randomly
from mybert.pretraining.initialization.from_text import count_neighbours, initialize_from_text
from mybert.pretraining.planning.flops_and_memory import count_parameters
from mybert.pretraining.settings import parse_lengths
from mybert.training.arguments import bfloat16_is_faster
from mybert.training.muon import Muon

EVALUATED, EVALUATION_BATCH = 600, 50
MUONS = {"muon": torch.optim.Muon, "normuon": ideas.NorMuon}
START = {  # in this order; with each, the weights that it sets
    "random": "",
    "positions": "position_embeddings",
    "vectors": "word_embeddings",
    "bias": "predictions.bias",
    "head": "transform.dense",
    "text": "attention.self",
}


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("corpus")
    add("--name", required=True)
    add("--seconds", type=float, default=240)
    add("--budget-tokens", type=float, help="end after this number of tokens instead of SECONDS")
    add("--size", default="tiny")
    add("--layers", type=int, help="in place of the size's own number")
    add("--initializer-range", type=float, default=0.08)
    add("--optimizer", choices=(*MUONS, "adamw", "lamb"), default="muon")
    add("--rate", type=float, default=3e-3)
    add("--embedding-rate", type=float, help="of the embeddings, if different")
    add("--momentum", type=float, default=0.95, help="of Muon")
    add("--muon-steps", type=int, default=5, help="Newton-Schulz iterations")
    add("--beta2", type=float, default=0.98)
    add("--weight-decay", type=float, default=0.01)
    add("--schedule", choices=("linear", "cosine", "wsd"), default="linear")
    add("--warmup", type=float, default=0.03)
    add("--tokens", type=int, nargs="+", default=[2048], help="per step, at the start and at the end")
    add("--lengths", nargs="+", default=["24:0.3", "48:0.6", "128"])
    add("--short", type=int, help="every second batch has excerpts of this number of tokens")
    add("--masked", type=float, nargs="+", default=[0.15], help="share of tokens, at the start and at the end")
    add("--whole-words", action="store_true")
    add("--nsp-weight", type=float, default=1.0)
    add("--dropout", type=float, default=0.0)
    add("--average", type=float, help="decay of an exponential moving average of the weights")
    add("--grow", help="SHARE:LAYERS, start with LAYERS and stack them at SHARE of the time")
    add("--widen", type=float, help="start with half the width and double it at this share of the time")
    add(
        "--start",
        choices=START,
        default="text",
        help="how much is initialised from the text",
    )
    add("--clip", type=float, default=1.0, help="largest norm of the gradient")
    add("--epsilon", type=float, default=1e-6, help="of AdamW")
    add("--spans", type=int, help="mask spans of at most this number of tokens")
    add("--difficulty", action="store_true", help="mask tokens more often that are hard to predict")
    add("--z-loss", type=float, default=0.0, help="weight of the squared logarithm of the softmax's denominator")
    add("--causal", type=int, help="each batch of this number is read from left to right, see recipe_ideas.causal")
    add("--causal-in-place", action="store_true", help="masked tokens of causal batches are predicted in their places")
    add("--nsp-from", type=float, default=0.0, help="share of the run without the next-sentence loss")
    add("--skip-layers", type=float, help="largest probability that a layer is skipped")
    add("--skip-tokens", type=float, help="share of the tokens that skip the layers in the middle")
    add("--frequent-first", action="store_true", help="examples with frequent tokens first")
    add("--examples", type=int, help="train on this number of examples, repeated")
    add("--keep-frequent", type=float, default=1.0, help="share of the examples, those with the most frequent tokens")
    add("--replaced-tokens", type=float, help="weight of replaced-token detection")
    add("--bottleneck", type=float, help="weight of predictions from the state of [CLS], see recipe_ideas.Bottleneck")
    add("--identity-attention", action="store_true", help="value and output matrices start near the identity")
    add("--teacher", nargs="+", default=[], help="checkpoints whose mean predictions are learned")
    add("--teacher-weight", type=float, default=1.0, help="of the predictions; the rest is that of the tokens")
    add("--seed", type=int, default=0)
    add("--save", help="folder for the model")
    add("--output", type=Path, default=Path("results.jsonl"))
    return parser.parse_args()


def start_model(options: argparse.Namespace, corpus: Corpus) -> MyBertForPreTraining:
    torch.manual_seed(options.seed)
    layers = {"num_hidden_layers": options.layers} if options.layers else {}
    config = MyBertConfig.from_size(
        options.size,
        vocab_size=len(corpus.tokenizer),
        initializer_range=options.initializer_range,
        hidden_dropout_prob=options.dropout,
        attention_probs_dropout_prob=options.dropout,
        **layers,
    )
    if options.widen:
        ideas.scale_width(config, 0.5)
    model = MyBertForPreTraining(config)
    if options.start != "random":
        random = copy.deepcopy(model.state_dict())
        initialize_from_text(model, corpus, options.seed)
        undone = list(START.values())[list(START).index(options.start) + 1 :]
        model.load_state_dict({n: v for n, v in random.items() if any(p in n for p in undone)}, strict=False)
    if options.identity_attention:
        with torch.no_grad():
            for layer in model.bert.encoder.layer:
                for weight in (layer.attention.self.value.weight, layer.attention.output.dense.weight):
                    weight.mul_(0.5).add_(torch.eye(len(weight)), alpha=0.7)
    return model.train()


def make_optimizers(options: argparse.Namespace, model: MyBertForPreTraining) -> list[torch.optim.Optimizer]:
    matrices, embeddings, tables, vectors = [], [], [], []
    for name, parameter in model.named_parameters():
        if options.optimizer in MUONS and parameter.ndim == 2 and ".encoder." in name:
            matrices.append(parameter)
        elif parameter.ndim < 2:
            vectors.append(parameter)
        else:
            (embeddings if "embeddings" in name else tables).append(parameter)
    embedding_rate = options.embedding_rate or options.rate
    groups = [
        {"params": tables, "peak": options.rate},
        {"params": embeddings, "peak": embedding_rate},
        {"params": vectors, "peak": options.rate, "weight_decay": 0.0},
    ]
    kind = ideas.Lamb if options.optimizer == "lamb" else torch.optim.AdamW
    decay = {"weight_decay": options.weight_decay}
    optimizers = [kind(groups, lr=options.rate, betas=(0.9, options.beta2), eps=options.epsilon, **decay)]
    if matrices:
        group = [{"params": matrices, "peak": options.rate}]
        settings = {"adjust_lr_fn": "match_rms_adamw", "ns_steps": options.muon_steps, **decay}
        settings["momentum"] = options.momentum
        if options.optimizer == "muon" and (options.momentum, options.muon_steps) == (0.95, 5):
            dtype = torch.bfloat16 if bfloat16_is_faster(torch.device("cpu")) else torch.float32
            optimizers.append(Muon(group, options.rate, options.weight_decay, dtype))
        else:
            optimizers.append(MUONS[options.optimizer](group, options.rate, **settings))
    return optimizers


def rate_factor(options: argparse.Namespace, share: float) -> float:
    rest = max(share - options.warmup, 0) / (1 - options.warmup)
    factors = {
        "linear": 1 - rest,
        "cosine": 0.5 * (1 + math.cos(math.pi * rest)),
        "wsd": 1 - math.sqrt(max(rest - 0.7, 0) / 0.3),
    }
    return min(share / options.warmup, 1) * factors[options.schedule]


class Batches:
    """Batches of the training examples by share of the time, in a random order."""

    def __init__(self, options: argparse.Namespace, corpus: Corpus):
        ends = [(values[0], values[-1]) for values in (options.tokens, options.masked)]
        self.schedule = Schedule(parse_lengths(options.lengths), *ends)
        self.examples, self.seed = ExampleDataset(corpus.train), options.seed
        self.mean, self.place, self.epoch = corpus.shape.mean_length, 0, 0
        if options.spans:
            ideas.SpanMasker.longest = options.spans
        kind = ideas.SpanMasker if options.spans else ideas.DifficultyMasker if options.difficulty else Masker
        self.masker = masker = kind.from_tokenizer(
            corpus.tokenizer, mlm_probability=options.masked[0], seed=options.seed, whole_words=options.whole_words
        )
        self.collate, self.pad_token_id = PretrainingCollator(masker), corpus.tokenizer.pad_token_id
        self.number, self.causal, self.shifted = 0, options.causal, not options.causal_in_place
        self.short = options.short
        self.used = permutation(len(self.examples), self.seed, 0)[: options.examples]
        self.order = self.used
        if options.frequent_first or options.keep_frequent < 1:
            sample = self.order[:60_000]
            counts, _ = count_neighbours(corpus, options.seed)
            self.order = ideas.order_by_frequency(self.examples, sample, counts, options.keep_frequent)

    def next(self, share: float) -> dict:
        self.number += 1
        length = self.short if self.short and self.number % 2 else self.schedule.length(share)
        count = max(1, round(self.schedule.tokens_per_batch(share) / min(length, self.mean)))
        if self.place + count > len(self.order):
            self.epoch, self.place = self.epoch + 1, 0
            self.order = self.used[permutation(len(self.used), self.seed, self.epoch)]
        keys = [(self.epoch, int(index)) for index in self.order[self.place : self.place + count]]
        self.place += count
        examples = cut_randomly(self.examples.__getitems__(keys), length, RandomStreams(self.seed, WINDOWS))
        examples = dataclasses.replace(examples, mlm_probability=self.schedule.mlm_probability(share))
        if self.causal and self.number % self.causal == 0:
            return ideas.causal(with_padding(self.collate(examples), self.pad_token_id), self.shifted)
        return self.collate(examples)


def reduced_precision() -> torch.autocast:
    """bfloat16 where it is faster, as `mybert pretrain --bf16`."""
    return torch.autocast("cpu", torch.bfloat16, enabled=bfloat16_is_faster(torch.device("cpu")))


def evaluate(model: MyBertForPreTraining, corpus: Corpus) -> dict[str, float]:
    masker = Masker.from_tokenizer(corpus.tokenizer, mlm_probability=0.15, seed=7)
    collate = PretrainingCollator(masker)
    examples = ExampleDataset(corpus.validation)
    sample = permutation(len(examples), 1, 0)[:EVALUATED]
    loss = right = masked = pairs = follows = 0.0
    model.eval()
    with torch.no_grad(), reduced_precision():
        for start in range(0, len(sample), EVALUATION_BATCH):
            keys = [(EVALUATION, int(index)) for index in sample[start : start + EVALUATION_BATCH]]
            batch = collate(examples.__getitems__(keys))
            outputs = model(**batch, sparse_logits=True)
            targets = batch["labels"].flatten()[batch["masked_lm_positions"]]
            known = targets >= 0
            logits = outputs.prediction_logits[known].float()
            loss += torch.nn.functional.cross_entropy(logits, targets[known], reduction="sum").item()
            right += (logits.argmax(-1) == targets[known]).sum().item()
            masked += known.sum().item()
            if "next_sentence_label" in batch:
                labels = batch["next_sentence_label"]
                follows += (outputs.seq_relationship_logits.argmax(-1) == labels).sum().item()
                pairs += len(labels)
    model.train()
    return {"loss": loss / masked, "accuracy": right / masked, "nsp_accuracy": follows / max(pairs, 1)}


def losses(options, model: MyBertForPreTraining, teachers, besides, batches, batch, share: float) -> torch.Tensor:
    with reduced_precision():
        outputs = model(**batch, sparse_logits=True)
    loss = outputs.mlm_loss
    if teachers:
        with torch.no_grad(), reduced_precision():
            logits = [teacher(**batch, sparse_logits=True).prediction_logits.float() for teacher in teachers]
            wanted = torch.stack(logits).softmax(-1).mean(0)
        taught = -(wanted * outputs.prediction_logits.float().log_softmax(-1)).sum(-1).mean()
        loss = loss.lerp(taught, options.teacher_weight)
    if options.z_loss:
        loss = loss + options.z_loss * outputs.prediction_logits.float().logsumexp(-1).square().mean()
    if options.difficulty:
        labels = batch["labels"].flatten()[batch["masked_lm_positions"]]
        right = outputs.prediction_logits.detach().argmax(-1) == labels
        batches.masker.learn(labels[labels >= 0].numpy(), right[labels >= 0].numpy())
    for objective in besides:
        with reduced_precision():
            loss = loss + objective(model, batch)
    has_pairs = outputs.nsp_loss is not None and options.nsp_weight and share >= options.nsp_from
    return loss + options.nsp_weight * outputs.nsp_loss if has_pairs else loss


def part_done(options: argparse.Namespace, seconds: float, tokens: int) -> float:
    """The share of the run that is done."""
    return tokens / options.budget_tokens if options.budget_tokens else seconds / options.seconds


def train(options: argparse.Namespace, corpus: Corpus) -> tuple[MyBertForPreTraining, dict]:
    began = time.process_time()
    model = start_model(options, corpus)
    share, layers = 0.0, model.config.num_hidden_layers
    grow_at, first = (float(part) for part in options.grow.split(":")) if options.grow else (None, None)
    if grow_at is not None:
        ideas.stack_layers(model, int(first))
    teachers = [MyBertForPreTraining.from_pretrained(folder).eval() for folder in options.teacher]
    optimizers, batches = make_optimizers(options, model), Batches(options, corpus)
    if options.skip_layers:
        ideas.skip_layers(model, options.skip_layers)
    if options.skip_tokens:
        ideas.skip_tokens(model, options.skip_tokens)
    besides: list[torch.nn.Module] = []
    if options.replaced_tokens:
        besides.append(ideas.ReplacedTokenDetection(model, options.replaced_tokens))
    if options.bottleneck:
        besides.append(ideas.Bottleneck(model, corpus.tokenizer.mask_token_id, options.bottleneck))
    for objective in besides:
        optimizers[0].add_param_group({"params": list(objective.parameters()), "peak": options.rate})
    average = {n: p.detach().clone() for n, p in model.named_parameters()} if options.average else {}
    widen_at = options.widen
    steps = tokens = 0
    while (share := part_done(options, time.process_time() - began, tokens)) < 1:
        if grow_at is not None and share >= grow_at:
            ideas.stack_layers(model, layers)
            optimizers, grow_at = make_optimizers(options, model), None
            average = {n: p.detach().clone() for n, p in model.named_parameters()} if options.average else {}
        if widen_at is not None and share >= widen_at:
            model = ideas.double_width(model)
            optimizers, widen_at = make_optimizers(options, model), None
        factor = rate_factor(options, share)
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            group["lr"] = group["peak"] * factor
        batch = batches.next(share)
        losses(options, model, teachers, besides, batches, batch, share).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip)
        for optimizer in optimizers:
            optimizer.step()
        for optimizer in optimizers:
            optimizer.zero_grad()
        with torch.no_grad():
            for name, parameter in model.named_parameters() if average else ():
                average[name].lerp_(parameter, 1 - options.average)
        steps, tokens = steps + 1, tokens + batch["input_ids"].numel()
    if average:
        model.load_state_dict(average, strict=False)
    return model, {"steps": steps, "tokens": tokens, "seconds": round(time.process_time() - began, 1)}


def main() -> None:
    options = read_options()
    keep_freed_memory()  # as `mybert pretrain` does
    corpus = Corpus.load(options.corpus)
    model, counts = train(options, corpus)
    if options.save:
        model.save_pretrained(options.save)
        corpus.tokenizer.save_pretrained(options.save)
    encoder = count_parameters(model.config)["encoder"]
    unique = round(corpus.shape.tokens * min(options.examples or math.inf, len(corpus.train)) / len(corpus.train))
    result = {"name": options.name, "arguments": sys.argv[1:], "encoder": encoder, "unique": unique}
    result |= {"vocab_size": model.config.vocab_size} | counts | evaluate(model, corpus)
    print(json.dumps(result))
    with options.output.open("a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    print(f"machine: {hardware()}")
    main()
