"""NER with heterogeneous tag sets: every silo annotates some types, and the model must find all of
them everywhere.

A training unit is a sentence. Who annotates what is a tag set per platform: a platform is a domain
where there are several and every silo holds sentences of one only (silos of a domain share its tag
set), else it is a silo. Of a training sentence a silo sees the entities of its own tag set and
nothing else. Dev and test are scored with the union, as far as their annotation covers it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from config.part import ALL, BIAS
from corpora.ner.scores import score, scored_rows
from corpora.ner.table import SPLITS, NerCorpus
from corpora.ner.tags import tag_sets
from corpora.notes import Note
from methods.base import derived_seed
from methods.tasks.base import Evaluation, Split, Task
from methods.tasks.batching import batches_by_length, check_length, chunks_by_length, for_each
from methods.tasks.bottom import Bottom, of_words
from methods.tasks.ner_data import Data
from methods.tasks.ner_features import public_features, read_words
from methods.tasks.ner_networks import Batch, Network, TaggerNetwork
from models.adapters import adapter_files
from models.backbone import Checkpoint
from models.device import first_numbers, here, place
from models.pieces import Pieces, ends_of, to_pieces
from models.pointer import Inputs, PointerNer, trainable_share
from models.pointer_targets import Span
from models.saved import encoder_files
from models.tagger import Tagger
from models.tuning import frozen, rows_are_records, words_of

__all__ = ["Data", "Knobs", "NerTask"]

_PREDICT_BATCH = 128  #: sentences decoded at once, without gradients


@dataclass(frozen=True)
class Knobs:
    """The task's own settings, the same for every method that is compared on it."""

    #: tag sets: all, disjoint, clinic, or given (corpora.ner.tags); empty: disjoint where built in
    tags: str = ""
    network: str = ""  #: pointer or tagger; empty: the method's own
    prompts: int = 10  #: N_q, rows of q
    hidden: int = 64  #: h, between q and the keys and values; 400 for a full-size BART
    dropout: float = 0.1  #: on what is scored; 0.3 in LightNER
    grammar: bool = False  #: decoding allows only pointer, pointer, type
    max_length: int = 128  #: word pieces, begin and end included
    #: rounds are scored on so many sentences of dev, as many of each domain as there are; 0: all
    dev_sample: int = 0
    mapping: str = ""  #: a label-mapping file for corpora that disagree on names
    types: str = ""  #: the union, separated by commas, where one silo's data would not show it all
    columns: str = ""  #: the columns of CoNLL files, by name; empty: the word first, the tag last
    entity: str = ""  #: the type where tags have none; empty: entity


class NerTask(Task[Data]):
    name = "ner"
    record_unit = "sentence"
    metric = "f1"

    def __init__(self, corpus: NerCorpus, knobs: Knobs, network: Network, seed: int) -> None:
        checkpoint = network.checkpoint
        check_length("max_length", knobs.max_length, checkpoint.positions(knobs.max_length))
        self.corpus, self.knobs, self.network, self.checkpoint = corpus, knobs, network, checkpoint
        tagger = network.name == "tagger"
        self.part = network.part
        self.built_in_statistics = isinstance(network, TaggerNetwork) and network.standard
        if self.part.has_frozen_bottom:
            self.bottom = self.new_bottom()
        self.record_rows = (
            rows_are_records(checkpoint.backbone, self.part) if tagger else self.part == BIAS
        )
        self.corpus_name, self.corpus_hash, self.labels = corpus.name, corpus.hash, corpus.types
        self._seed = derived_seed(seed, "tags")
        self._pieces: dict[str, Pieces] = {}
        self._pieces_now("train")  # before silos are forked, so that they share it
        self.corpus_about = "; ".join(filter(None, (corpus.about, checkpoint.note)))
        self.reading, self.encoder_size = corpus.reading, checkpoint.size
        self.can_halve = network.name == "tagger"
        kind = "a tagger" if network.name == "tagger" else "a prompted pointer network"
        self.network_words = f"{kind}, starting from {checkpoint.words}{words_of(self.part)}"
        # Until a partition is cut there is one platform, which annotates all that the corpus does.
        domain = np.asarray(corpus.splits["train"].domain)
        self.platform, self.known = np.zeros(len(domain), dtype=np.int64), corpus.covered[domain]
        self.tag_sets: np.ndarray = np.asarray(corpus.covered.any(axis=0))[None]

    def new_bottom(self) -> Bottom:
        self.__dict__.pop("_public_features", None)
        return of_words(self.checkpoint, self.part)

    def use_checkpoint(self, checkpoint: Checkpoint) -> None:
        self.network = self.network.on(checkpoint, self.part)
        super().use_checkpoint(checkpoint)

    def sibling(self, corpus: Any) -> NerTask:
        return NerTask(corpus, self.knobs, self.network.on(self.checkpoint, ALL), 0)

    def own_notes(self) -> tuple[Note, ...]:
        found = []
        for split in SPLITS:
            pieces, rows = self._pieces_now(split), self.corpus.splits[split]
            long = f"{split} sentences are longer than the window of {self.knobs.max_length} pieces"
            gone = f"mentions of {split} sentences lie beyond that and are lost"
            # an entity counts as found only with its last word
            words = np.repeat(np.diff(pieces.word_at), np.diff(rows.entity_at))
            lost = int((np.asarray(rows.entities)[:, 1] > words).sum())
            found += [Note("cut", long, pieces.shortened), Note("cut", gone, lost)]
        sample, dev = len(self._scored("dev")), len(self.corpus.splits["dev"])
        if sample < dev:
            what = (
                f"rounds are scored on {sample} of {dev} dev sentences, drawn evenly over domains"
            )
            found.append(Note("said", what))
        return tuple(n for n in found if n.count)

    def warning(self, split: Split) -> str:
        if len(self.corpus.splits[split].entities):
            return ""
        return f"the {split} split has no entity to find: its {self.metric} says nothing"

    def _pieces_now(self, split: str) -> Pieces:
        if split not in self._pieces:
            rows = self.corpus.splits[split]
            tokenizer = self.checkpoint.tokenizer
            self._pieces[split] = to_pieces(
                (rows.words(i) for i in range(len(rows))),
                tokenizer,
                *ends_of(self.checkpoint.backbone.config, tokenizer),
                self.knobs.max_length,
            )
        return self._pieces[split]

    def held_out(self, split: Split) -> Mapping[str, int]:
        rows, scored = self.corpus.splits[split], self._scored(split)
        found = int(np.diff(rows.entity_at)[scored].sum())
        return {"sentences": len(scored), "entities to find": found}

    def _scored(self, split: Split) -> np.ndarray:
        """The rows of a held-out split that are scored: of test always all."""
        domain = np.asarray(self.corpus.splits[split].domain)
        return scored_rows(domain, self.knobs.dev_sample if split == "dev" else 0)

    # Tag sets

    def natural_silos(self) -> int:
        return max(3, len(self.corpus.domains))

    def divided(self, indices: Sequence[np.ndarray]) -> None:
        """Fix who annotates what. Called when the partition is known, before any silo asks for its
        data.
        """
        domain = np.asarray(self.corpus.splits["train"].domain)
        covered = self.corpus.covered
        several = 1 < len(covered) <= len(indices)
        held = any(len(ix) for ix in indices)  # a coordinator holds nothing, and has no platforms
        natural = several and held and all(len(np.unique(domain[ix])) <= 1 for ix in indices)
        self.platform = np.zeros(len(domain), dtype=np.int64)
        if natural:
            self.platform, platforms = domain.astype(np.int64), covered
        else:
            for k, ix in enumerate(indices):
                self.platform[ix] = k
            present = [np.unique(domain[ix]) for ix in indices]
            platforms = np.array(
                [covered[d].any(axis=0) if len(d) else covered.any(axis=0) for d in present]
            )
        spec = self.knobs.tags or (
            "all" if not covered.all() or len(platforms) > len(self.labels) else "disjoint"
        )
        self.tag_sets = tag_sets(spec, self.labels, platforms, self._seed)
        self.known = self.tag_sets[self.platform] & covered[domain]

    @property
    def platforms(self) -> int:
        return len(self.tag_sets)

    # The contract of methods.tasks.base.Task

    def new_model(self, seed: int) -> PointerNer | Tagger:
        with first_numbers(seed):
            model = place(self.network.new_model())
        if isinstance(model, Tagger) and model.standard and self.bottom and not self.start:
            model.standard.set(self._public_features)
        return self.started(model)

    @cached_property
    def _public_features(self) -> torch.Tensor:
        return public_features(self.bottom, self.checkpoint, self.knobs.max_length)

    def settle(self, model: nn.Module, data: Data) -> None:
        if isinstance(model, Tagger) and model.standard:
            batches = (self.batch(data, c) for c in self.chunks(data, _PREDICT_BATCH))
            model.standard.take(read_words(model.eval(), batches), model.classifier)

    def frozen(self) -> Mapping[str, np.ndarray]:
        """The pointer network's language model is not among a run's files: it has a name and a
        hash. One that public text changed is.
        """
        named = ("backbone.",) if self.network.name == "pointer" and not self.start else ()
        return {k: v for k, v in frozen(self.new_model(0)).items() if not k.startswith(named)}

    def train_size(self) -> int:
        return len(self.corpus.splits["train"])

    def partition_keys(self) -> Mapping[str, np.ndarray]:
        """A sentence's label is the type of its first entity; one without entities has a label of
        its own.
        """
        rows = self.corpus.splits["train"]
        label = np.full(len(rows), len(self.labels), dtype=np.int64)
        some = np.diff(rows.entity_at) > 0
        label[some] = np.asarray(rows.entities)[np.asarray(rows.entity_at[:-1])[some], 2]
        return {"label": label, "domain": np.asarray(rows.domain)}

    def agreement(self) -> Mapping[str, str]:
        """The language model by its content, and the union of the tag sets by its names."""
        types = hashlib.sha256(json.dumps(self.labels).encode())
        return {"language model": self.checkpoint.sha256, "entity types": types.hexdigest()}

    def label_counts(self, indices: np.ndarray) -> np.ndarray:
        """Entities of each type that are annotated in these sentences."""
        rows = self.corpus.splits["train"]
        found = [t for i in indices for *_, t in rows.spans(int(i)) if self.known[int(i), t]]
        return np.bincount(np.array(found, dtype=np.int64), minlength=len(self.labels))

    def subset(self, indices: np.ndarray) -> Data:
        pieces, rows = self._pieces_now("train"), self.corpus.splits["train"]
        return Data(pieces, rows, self.known, self.platform, np.asarray(indices, dtype=np.int64))

    def size(self, data: Data) -> int:
        return len(data.indices)

    def batches(self, data: Data, size: int, rng: np.random.Generator) -> Iterator[Batch]:
        for chosen in batches_by_length(data.lengths, size, rng):
            yield self.batch(data, chosen)

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        return self.network.loss(model, batch)

    def record_losses(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        return self.network.record_losses(model, batch)

    def record_chunks(self, data: Data, chosen: np.ndarray, most: int) -> Iterator[np.ndarray]:
        return chunks_by_length(data.lengths, chosen, most)

    def evaluate(self, model: nn.Module, split: Split) -> Evaluation:
        rows, scored = self.corpus.splits[split], self._scored(split)
        every = np.asarray(rows.domain)
        covered = self.corpus.covered
        data = Data(self._pieces_now(split), rows, covered[every], every, scored)
        domain = every[scored]
        gold = [rows.spans(int(i)) for i in scored]
        s = score(gold, self.predict(model, data), domain, covered)
        figures = {"precision": s.precision, "recall": s.recall, "micro_f1": s.micro_f1}
        # the same for every model that is scored
        there = [d for d in range(len(covered)) if (domain == d).any()]
        figures |= {
            f"f1 {self.corpus.domains[d]}": float(np.nan_to_num(s.per_domain[d])) for d in there
        }
        trained, everything = trainable_share(model)
        figures |= {"parameters_trained": float(trained), "share_trained": trained / everything}
        kinds = np.array([t for spans in gold for *_, t in spans], dtype=np.int64)
        occurs = np.bincount(kinds, minlength=len(self.labels)) > 0
        per_type = {
            t: float(np.nan_to_num(f)) for t, f, has in zip(self.labels, s.per_type, occurs) if has
        }
        return Evaluation(s.mean_f1, figures, per_type)

    def model_files(self) -> Mapping[str, bytes]:
        """What beside the weights is needed to open the model. The pointer network's language model
        is loaded by its name, tokenizer included.
        """
        about = {
            **self.network.about(),
            "types": list(self.labels),
            "max_length": self.knobs.max_length,
        }
        files = {"config.json": json.dumps(about, indent=1, default=str).encode()}
        if self.network.name == "pointer":
            return files | adapter_files(self.checkpoint.backbone, self.part)
        return files | encoder_files(self.checkpoint, self.part)

    # What the methods of this task use

    def batch(self, data: Data, chosen: np.ndarray) -> Batch:
        """The sentences at `chosen` of the data's list as padded tensors."""
        p, picked = data.pieces, data.indices[chosen]
        ids = [p.row(int(i)) for i in picked]
        first_pieces = [p.first_piece(int(i)) for i in picked]
        shape = (len(picked), max(map(len, ids)))
        pad = int(self.checkpoint.tokenizer.pad_token_id)
        padded, real, first = (
            np.full(shape, pad, np.int64),
            np.zeros(shape, bool),
            np.zeros(shape, bool),
        )
        for i, (row, starts) in enumerate(zip(ids, first_pieces)):
            padded[i, : len(row)], real[i, : len(row)], first[i, starts] = row, True, True
        inputs = Inputs(*map(here, (padded, real, first)))
        if self.bottom is not None:
            texts = self.bottom.texts(p, data.indices, picked)
            inputs = replace(inputs, ids=self.bottom.store.padded(texts, shape[1]))
        pseudo = [() if data.pseudo is None else data.pseudo[c] for c in chosen]
        tokens, origins = self.network.targets([data.gold(c) for c in chosen], pseudo, first_pieces)
        weights = (
            np.ones(len(chosen), np.float32)
            if data.weights is None
            else data.weights[chosen].astype(np.float32)
        )
        return Batch(inputs, tokens, origins, here(weights), first_pieces)

    def chunks(self, data: Data, size: int) -> Iterator[np.ndarray]:
        """All positions of the data's list, alike in length, in an order that nothing random
        decides.
        """
        return chunks_by_length(data.lengths, np.arange(self.size(data)), size)

    def predict(self, model: nn.Module, data: Data) -> list[list[Span]]:
        """Entities of every sentence, dropout off."""
        out: list[list[Span]] = [[] for _ in data.indices]
        was = model.training
        model.eval()
        bare = replace(data, pseudo=None, weights=None)

        def read(chosen: np.ndarray) -> None:
            with torch.no_grad():
                for c, spans in zip(chosen, self.network.predict(model, self.batch(bare, chosen))):
                    out[c] = spans

        if self.bottom is not None:
            self.bottom.prepare(data.pieces, data.indices)
        for_each(read, self.chunks(data, _PREDICT_BATCH))
        model.train(was)
        return out
