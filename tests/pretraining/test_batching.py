from itertools import chain

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader

from mybert.pretraining.data.batching import EVALUATION, FILLER, ExampleDataset, HeldOutDataset, PretrainingCollator
from mybert.pretraining.data.epoch_order import EpochSampler, Shuffled
from mybert.pretraining.data.masking import Masker


@pytest.fixture(scope="module")
def dataset(pairs):
    return ExampleDataset(pairs(101))


@pytest.fixture(scope="module")
def masker(tokenizer):
    return Masker.from_tokenizer(tokenizer, seed=3)


def load(dataset, masker, epoch, batch_size, workers=0):
    sampler = EpochSampler(Shuffled(len(dataset), seed=5))
    sampler.set_epoch(epoch)
    collator = PretrainingCollator(masker)
    return list(DataLoader(dataset, batch_size, sampler=sampler, collate_fn=collator, num_workers=workers))


def labelled_places(batch):
    places = batch["masked_lm_positions"]
    return places[batch["labels"].flatten()[places] != -100]


def end_to_end(batches, name):
    return torch.cat([batch[name].flatten() for batch in batches])


def test_every_epoch_reads_every_example_once_in_an_order_of_its_own():
    sampler = EpochSampler(Shuffled(50, seed=1))
    orders = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        keys = list(sampler)
        assert {e for e, _ in keys} == {epoch}
        orders.append([index for _, index in keys])
        assert sorted(orders[-1]) == list(range(50))
        assert list(sampler) == keys
    assert orders[0] != orders[1] != orders[2]
    assert orders[0] != [index for _, index in EpochSampler(Shuffled(50, seed=2))]


def test_masks_and_order_do_not_depend_on_workers_or_batch_size(dataset, masker):
    reference = load(dataset, masker, epoch=2, batch_size=8)
    for batch_size, workers in [(8, 1), (8, 2), (5, 0), (101, 0)]:
        batches = load(dataset, masker, epoch=2, batch_size=batch_size, workers=workers)
        for name in ("input_ids", "labels", "token_type_ids", "position_ids", "next_sentence_label"):
            assert torch.equal(end_to_end(batches, name), end_to_end(reference, name)), name
    other = load(dataset, masker, epoch=3, batch_size=8)
    assert not torch.equal(end_to_end(other, "labels"), end_to_end(reference, "labels"))


def test_batches_hold_the_sequences_of_the_corpus_one_after_the_other(dataset, masker, pairs):
    stored, order = pairs(101), [*Shuffled(len(dataset), seed=5).units(1, skip=0)]
    for number, batch in enumerate(load(dataset, masker, epoch=1, batch_size=8)):
        rows = stored[[index for _, index in order[8 * number : 8 * number + 8]]]
        lengths = [len(ids) for ids in rows["input_ids"]]
        masked, ids = batch["labels"][0] != -100, torch.tensor([*chain.from_iterable(rows["input_ids"])])
        assert torch.equal(torch.where(masked, batch["labels"][0], batch["input_ids"][0]), ids)
        assert batch["token_type_ids"][0].tolist() == [*chain.from_iterable(rows["token_type_ids"])]
        assert batch["next_sentence_label"].tolist() == rows["next_sentence_label"]
        assert batch["cu_seq_lens_q"].diff().tolist() == batch["cu_seq_lens_k"].diff().tolist() == lengths
        assert batch["max_length_q"] == batch["max_length_k"] == max(lengths)
        assert batch["position_ids"][0].tolist() == [*chain.from_iterable(map(range, lengths))]
        assert torch.equal(batch["masked_lm_positions"], masked.nonzero().squeeze(1))


def test_many_places_of_labels_are_filled_up_by_others_spread_over_the_batch(dataset, masker):
    for batch_size, filled in ((8, False), (83, True)):
        batch = load(dataset, masker, epoch=1, batch_size=batch_size)[0]
        labels, places = batch["labels"].flatten(), batch["masked_lm_positions"]
        assert torch.equal(labelled_places(batch), (labels != -100).nonzero().squeeze(1))
        assert len(places.unique()) == len(places) and (len(places) >= 128) == filled
        others = places[labels[places] == -100]
        assert 0 <= len(others) < 16 and (len(others) > 0) == filled and (len(places) % 16 == 0 or not filled)
        if filled:
            gaps = torch.cat([others, torch.tensor([len(labels)])]).diff()
            assert gaps.max() < 2 * len(labels) / len(others)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_held_out_examples_are_fixed_and_shared_out_evenly_with_unlabelled_fillers(pairs, dataset, masker, processes):
    held_out = HeldOutDataset(pairs(101), 4 * processes if processes > 1 else 1)
    batches = list(BatchSampler(range(len(held_out)), 4, drop_last=False))
    if processes > 1:
        assert len(batches) % processes == 0
        assert {len(batch) for batch in batches} == {4}
    collator = PretrainingCollator(masker)
    first, expected = (part.__getitems__(keys) for part, keys in ((held_out, [3]), (dataset, [(EVALUATION, 3)])))
    assert torch.equal(collator(first)["input_ids"], collator(expected)["input_ids"])
    labels = torch.cat([collator(held_out.__getitems__(b))["next_sentence_label"] for b in batches])
    assert (labels != -100).sum() == 101
    filler = collator(dataset.__getitems__([(FILLER, 0)]))
    assert (filler["labels"] == -100).all()
    assert not len(filler["masked_lm_positions"])


def test_order_is_pinned_so_that_old_checkpoints_resume_alike():
    assert [index for _, index in EpochSampler(Shuffled(8, seed=0))] == [6, 7, 2, 1, 3, 5, 0, 4]
