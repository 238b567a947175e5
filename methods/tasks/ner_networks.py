"""The two networks of the NER task: the prompted pointer model, and a conventional tagger. What
each makes of a sentence's entities to be trained on, its loss, its gradients by sentence, and what
it predicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from config.errors import UserError
from config.part import ALL, PROMPTS, Part
from models.backbone import Checkpoint
from models.device import exact, here
from models.pieces import label_pieces
from models.pointer import Inputs, PointerNer, family_of, losses_of, split_losses
from models.pointer_targets import END, Origin, Span, parse, target
from models.tagger import Tagger, spans_of, tags_of
from models.tuning import check_part, train_part

if TYPE_CHECKING:
    from methods.tasks.ner import Knobs

__all__ = ["Batch", "Network", "PointerNetwork", "TaggerNetwork"]

_IGNORED = -100


@dataclass(frozen=True)
class Batch:
    inputs: Inputs
    tokens: torch.Tensor  #: (rows, steps): what is to be written, or the tag of every piece
    origins: torch.Tensor  #: (rows, steps): `Origin` of every token; a word outside is an END
    weights: torch.Tensor  #: (rows,): w_i of equation 10
    first_pieces: Sequence[Sequence[int]]

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class Gradients:
    """Of a batch, by sentence, with respect to what the network is measured by."""

    #: Of the loss on its own annotation: the sum of the outer products of these rows, by sentence.
    sentence: torch.Tensor  #: (parts,): position in the batch
    left: torch.Tensor  #: (parts, a)
    right: torch.Tensor  #: (parts, b)
    norms: torch.Tensor  #: (rows,): lengths of these sums
    target: torch.Tensor  #: (rows, a, b): of the loss on what was predicted for it


def _padded(rows: Sequence[Sequence[int]], fill: int) -> torch.Tensor:
    out = np.full((len(rows), max(map(len, rows), default=1)), fill, dtype=np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return here(out)


class PointerNetwork:
    """LightNER. Unless it is trained too, the language model never travels."""

    name = "pointer"
    measured = "prompts.q.weight"  #: by whose gradient sentences are compared
    measured_words = "prompt array q"
    moved_words = "prompts"

    def __init__(
        self,
        checkpoint: Checkpoint,
        types: tuple[str, ...],
        knobs: Knobs,
        part: Part = PROMPTS,
    ) -> None:
        self.part = check_part(part, "a prompted pointer network")
        family_of(checkpoint.name, checkpoint.backbone.config)  # refuses what it cannot prompt
        if knobs.prompts < 1 or knobs.hidden < 1:
            raise UserError('Options "prompts" and "hidden" must be 1 or more.')
        self.checkpoint, self.types, self.knobs = checkpoint, types, knobs
        self._backbone = checkpoint.backbone.eval().requires_grad_(False)
        self._labels = label_pieces(types, checkpoint.tokenizer)

    def on(self, checkpoint: Checkpoint, part: Part) -> PointerNetwork:
        """The same network on other weights of its language model."""
        return PointerNetwork(checkpoint, self.types, self.knobs, part)

    def new_model(self) -> PointerNer:
        k = self.knobs
        return PointerNer(self._backbone, self._labels, k.prompts, k.hidden, k.dropout, self.part)

    def targets(
        self,
        gold: Sequence[Sequence[Span]],
        pseudo: Sequence[Sequence[Span]],
        first: Sequence[Sequence[int]],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        made = [target(g, p, f, len(self.types)) for g, p, f in zip(gold, pseudo, first)]
        return _padded([t.tokens for t in made], END), _padded(
            [t.origins for t in made], Origin.PADDING
        )

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """The mean over sentences of w_i source_i + target_i + end_i, each a sum over tokens."""
        return self._weighted(batch, self.parts(model, batch)).mean()

    def record_losses(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        return self._weighted(batch, self.parts(model, batch, each=True))

    def _weighted(
        self, batch: Batch, parts: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        source, pseudo, end = parts
        return batch.weights * source + pseudo + end

    def parts(
        self, model: nn.Module, batch: Batch, q: torch.Tensor | None = None, each: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(source, target, end) losses of every sentence."""
        assert isinstance(model, PointerNer)
        logits = model.logits(batch.inputs, batch.tokens, q, each)
        return split_losses(losses_of(logits, batch.tokens), batch.origins)

    def gradients(self, model: nn.Module, batch: Batch) -> Gradients:
        """Every sentence gets a copy of q of its own, so that one backward pass gives all their
        gradients.
        """
        assert isinstance(model, PointerNer)
        q = model.prompts.expanded(len(batch))
        mine, others, _ = self.parts(model, batch, q)
        (source,) = torch.autograd.grad(mine.sum(), q, retain_graph=True)
        (target,) = torch.autograd.grad(others.sum(), q)
        source = source.flatten(1).nan_to_num(0.0, 0.0, 0.0)
        rows = torch.arange(len(batch))
        return Gradients(rows, torch.ones(len(batch), 1), source, exact(source).norm(dim=1), target)

    def predict(self, model: nn.Module, batch: Batch) -> list[list[Span]]:
        assert isinstance(model, PointerNer)
        written = model.write(batch.inputs, grammar=self.knobs.grammar)
        return [parse(w, f, len(self.types)) for w, f in zip(written, batch.first_pieces)]

    def about(self) -> Mapping[str, Any]:
        k = self.knobs
        return {
            "architecture": "pointer-ner",
            "seq2seq": self.checkpoint.name,
            "seq2seq_sha256": self.checkpoint.sha256,
            "prompts": k.prompts,
            "hidden": k.hidden,
            "train": str(self.part),
        }


class TaggerNetwork:
    """A conventional tagger."""

    name = "tagger"
    measured = "classifier.weight"
    measured_words = "classifier's weights"
    moved_words = "classifier"

    def __init__(
        self,
        checkpoint: Checkpoint,
        types: tuple[str, ...],
        knobs: Knobs,
        part: Part = ALL,
        standard: bool = False,
    ) -> None:
        """`standard`: for a head that is trained with noise (`models.tagger`)."""
        self.part = check_part(part, "an encoder", checkpoint.backbone)
        self.checkpoint, self.types, self.knobs = checkpoint, types, knobs
        self.standard = standard

    def on(self, checkpoint: Checkpoint, part: Part) -> TaggerNetwork:
        """The same network on other weights of its encoder."""
        return TaggerNetwork(checkpoint, self.types, self.knobs, part, self.standard)

    def new_model(self) -> Tagger:
        k = self.knobs
        model = Tagger(self.checkpoint.backbone, len(self.types), k.dropout, self.standard)
        train_part(model.backbone, self.part)
        model.cut(self.part)
        return model

    def targets(
        self,
        gold: Sequence[Sequence[Span]],
        pseudo: Sequence[Sequence[Span]],
        first: Sequence[Sequence[int]],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """A tag for every word, at its first piece. Spans of `pseudo` overlap none of `gold`."""
        rows, origins = [], []
        for g, p, f in zip(gold, pseudo, first):
            row = [_IGNORED] * ((f[-1] if len(f) else 0) + 1)
            origin = [Origin.PADDING] * len(row)
            found = tags_of(p, len(f))
            for at, tag, other in zip(f, tags_of([*g, *p], len(f)), found):
                row[at] = tag
                origin[at] = Origin.TARGET if other else Origin.SOURCE if tag else Origin.END
            rows.append(row)
            origins.append(origin)
        return _padded(rows, _IGNORED), _padded(origins, Origin.PADDING)

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Cross-entropy, mean over words, of which those in the silo's own annotation count w_i. An
        entity that nobody told of is O.
        """
        return self._words(model, batch).sum() / (batch.tokens != _IGNORED).sum().clamp(min=1)

    def record_losses(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """The mean over each sentence's own words: under DP=record every sentence weighs the
        same.
        """
        count = (batch.tokens != _IGNORED).sum(dim=1).clamp(min=1)
        return self._words(model, batch).sum(dim=1) / count

    def _words(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """The weighted loss of every piece, (rows, steps); 0 where no word begins."""
        scores = model(batch.inputs.ids, batch.inputs.real)[:, : batch.tokens.shape[1]]
        words = F.cross_entropy(
            scores.transpose(1, 2), batch.tokens, ignore_index=_IGNORED, reduction="none"
        )
        return torch.where(batch.origins == Origin.SOURCE, batch.weights[:, None] * words, words)

    def gradients(self, model: nn.Module, batch: Batch) -> Gradients:
        """Of a linear layer they are known without a backward pass: with p a word's softmax, y its
        tag and h what the layer reads, the gradient of its loss is (p - y) h^T.
        """
        assert isinstance(model, Tagger)
        with torch.no_grad():
            h = model.read(batch.inputs.ids, batch.inputs.real)[:, : batch.tokens.shape[1]]
            p = model.classifier(h).softmax(dim=-1)
            left = p - F.one_hot(batch.tokens.clamp(min=0), p.shape[-1])
            source, target = (
                (left * (batch.origins == o)[..., None]).transpose(1, 2) @ h
                for o in (Origin.SOURCE, Origin.TARGET)
            )
            sentence, at = torch.nonzero(batch.origins == Origin.SOURCE, as_tuple=True)
            norms = exact(source).flatten(1).norm(dim=1)
        own, read, norms = (
            x.nan_to_num(0.0, 0.0, 0.0) for x in (left[sentence, at], h[sentence, at], norms)
        )
        return Gradients(sentence, own, read, norms, target)

    def predict(self, model: nn.Module, batch: Batch) -> list[list[Span]]:
        best = model(batch.inputs.ids, batch.inputs.real).argmax(dim=-1).tolist()
        return [spans_of([row[at] for at in f]) for row, f in zip(best, batch.first_pieces)]

    def about(self) -> Mapping[str, Any]:
        return {
            "architecture": "tagger",
            "encoder": self.checkpoint.name,
            "encoder_sha256": self.checkpoint.sha256,
            **({"standard": True} if self.standard else {}),
        }


Network = PointerNetwork | TaggerNetwork
