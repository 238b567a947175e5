"""NER as writing: a frozen language model with prompts points at the words of a sentence and names
the types (LightNER).

Chen et al. 2022, "LightNER", COLING, as Wang et al. 2023 use it. With u the decoder's state, E the
word vectors and h_i the encoder's output at piece i, one softmax runs over

    end: u.E[eos]      type t: sum_j softmax(a_t)_j u.E[label piece j]      position i: u.(h_i + E[token_i]) / 2

Trained: the prompts (q and its projections) and the label weights a (`TRAIN=prompts`); the language
model too (`all`), or adapters in it (`lora:R`); or, for DP-SGD, few of all these (`bias`: q, the
biases of its projections, biases and layer norms of the language model). Where a position cannot
begin a word (begin, end, padding, and the later pieces of a word) it cannot be pointed at.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from config.errors import UserError
from config.part import ALL, BIAS, PROMPTS, Part, parse_part
from models import saved
from models.backbone import load_checkpoint
from models.pieces import label_pieces
from models.pointer_targets import BEGIN, END, FIRST_TYPE, Origin
from models.prompted import Cache, Family, Source, keep_rows
from models.prompted_bart import BART
from models.prompted_t5 import T5
from models.prompts import Projected, Prompts
from models.tuning import fixed_numbers, train_part

__all__ = [
    "Inputs",
    "PointerNer",
    "family_of",
    "losses_of",
    "open_model",
    "split_losses",
    "trainable_share",
]

_BEFORE = {"prompts": "prompts", "full": "all", "light": "bias"}
_FAMILIES = {"bart": BART, "marian": BART, "t5": T5}
#: A batch is made smaller when one in so many of its sentences has ended: each time what was kept of
#: the others is copied.
_DROP = 4


@dataclass(frozen=True)
class Inputs:
    """Padded sentences."""

    ids: torch.Tensor  #: (rows, pieces)
    real: torch.Tensor  #: bool: not padding
    first: torch.Tensor  #: bool: the first piece of a word

    def __len__(self) -> int:
        return len(self.ids)


def family_of(name: str, config: Any) -> Family:
    """How the language model of this config is prompted."""
    kind = str(getattr(config, "model_type", ""))
    if kind not in _FAMILIES:
        raise UserError(
            f'SEQ2SEQ "{name}" is of type "{kind}"; the pointer model needs a BART, a Marian or a T5.'
        )
    if not getattr(config, "share_encoder_decoder_embeddings", True):
        raise UserError(
            f'SEQ2SEQ "{name}" has other word vectors in its decoder than in its encoder; the pointer model needs '
            "one vocabulary."
        )
    return _FAMILIES[kind]


class PointerNer(nn.Module):
    """`label_pieces`: per type, the pieces of its label words."""

    def __init__(
        self,
        backbone: Any,
        label_pieces: list[list[int]],
        length: int = 10,
        hidden: int = 64,
        dropout: float = 0.1,
        part: Part = PROMPTS,
    ) -> None:
        super().__init__()
        # One frozen language model serves any number of models; it must be nobody's to change.
        self.backbone = backbone if part == PROMPTS else copy.deepcopy(backbone)
        self.backbone.requires_grad_(part == ALL)
        config = backbone.config
        self.types = len(label_pieces)
        self.eos, self.start = int(config.eos_token_id), int(config.decoder_start_token_id)
        self.family = family_of(str(getattr(config, "_name_or_path", "")), config)
        self.prompts = Prompts(length, int(config.d_model), hidden, self.family.sizes(config))
        most = max(map(len, label_pieces), default=1)
        padded = torch.zeros(self.types, most, dtype=torch.long)
        there = torch.zeros(self.types, most, dtype=torch.bool)
        for i, pieces in enumerate(label_pieces):
            padded[i, : len(pieces)] = torch.tensor(pieces)
            there[i, : len(pieces)] = True
        self.label_ids, self.label_there = padded, there
        self.label_weights = nn.Parameter(torch.zeros(self.types, most))
        self.dropout = nn.Dropout(dropout)
        train_part(self.backbone, part)
        if part == BIAS:
            self.label_weights.requires_grad_(False)
            named = self.prompts.named_parameters()
            fixed_numbers(p for n, p in named if p.dim() == 2 and not n.startswith("q."))

    # Encoding and scoring

    def encode(self, inputs: Inputs, prompts: Projected) -> Source:
        return self.family.encode(self.backbone, inputs.ids, inputs.real, prompts)

    def type_vectors(self) -> torch.Tensor:
        """(types, width): label pieces by their learnt weights; what a type is scored with, and
        read as.
        """
        weights = self.label_weights.masked_fill(~self.label_there, float("-inf")).softmax(dim=-1)
        return torch.einsum("tp,tpd->td", weights, self.backbone.shared.weight[self.label_ids])

    def _answers(self, inputs: Inputs, source: Source) -> torch.Tensor:
        """(rows, 2 + types + pieces, width): what u is multiplied with; the row of BEGIN is never
        chosen.
        """
        rows = len(inputs)
        words = self.backbone.shared.weight
        fixed = torch.cat([words[[self.start, self.eos]], self.type_vectors()]).expand(rows, -1, -1)
        pieces = (source.hidden + words[inputs.ids]) / 2
        return torch.cat([fixed, self.dropout(pieces)], dim=1)

    def _allowed(self, inputs: Inputs) -> torch.Tensor:
        """(rows, 2 + types + pieces) bool."""
        fixed = torch.ones(len(inputs), FIRST_TYPE + self.types, dtype=torch.bool)
        fixed[:, BEGIN] = False
        return torch.cat([fixed, inputs.first], dim=1)

    def _read(self, tokens: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        """The word vectors (rows, steps, width) that the decoder reads for what was written
        before.
        """
        words = self.backbone.shared.weight
        special = torch.tensor([self.start, self.eos])
        vectors = torch.cat([words[special], self.type_vectors()])
        fixed = FIRST_TYPE + self.types
        where = (tokens - fixed).clamp(min=0)
        pointed = words[inputs.ids.gather(1, where)]
        return torch.where(
            (tokens < fixed)[..., None], vectors[tokens.clamp(max=fixed - 1)], pointed
        )

    def logits(
        self,
        inputs: Inputs,
        tokens: torch.Tensor,
        q: torch.Tensor | None = None,
        each: bool = False,
    ) -> torch.Tensor:
        """Scores (rows, steps, 2 + types + pieces) of every step of a target, given the steps
        before it.
        """
        states, source = self.states(inputs, tokens, q, each)
        return self.score(inputs, states, source)

    def states(
        self,
        inputs: Inputs,
        tokens: torch.Tensor,
        q: torch.Tensor | None = None,
        each: bool = False,
    ) -> tuple[torch.Tensor, Source]:
        """The decoder's states u (rows, steps, width), and the encoded sentences. `each`: every
        sentence reads q by itself, so that the first axis of every layer is the sentence.
        """
        prompts = self.prompts(q, len(inputs) if each else 1)
        source = self.encode(inputs, prompts)
        before = F.pad(tokens[:, :-1], (1, 0), value=BEGIN)
        read = self._read(before, inputs)
        states, _ = self.family.decode(self.backbone, read, source, prompts, None)
        return states, source

    def score(self, inputs: Inputs, states: torch.Tensor, source: Source) -> torch.Tensor:
        scores = self.dropout(states) @ self._answers(inputs, source).transpose(1, 2)
        return scores.masked_fill(~self._allowed(inputs)[:, None], float("-inf"))

    def token_losses(
        self, inputs: Inputs, tokens: torch.Tensor, q: torch.Tensor | None = None
    ) -> torch.Tensor:
        """-log P of every token of the targets, (rows, steps)."""
        return losses_of(self.logits(inputs, tokens, q), tokens)

    # Decoding

    @torch.no_grad()
    def write(self, inputs: Inputs, grammar: bool = False, cached: bool = True) -> list[list[int]]:
        """Greedy outputs, without their end. At most 10 + 0.6 pieces each, and three tokens a word:
        more entities than words are not there. `grammar`: only pointer, pointer not before it, type,
        in turn, or the end between two entities. `cached`: keys and values are kept from step to
        step. Sentences that have ended are dropped from the batch.
        """
        prompts = self.prompts()
        source = self.encode(inputs, prompts)
        answers, allowed = self._answers(inputs, source).transpose(1, 2), self._allowed(inputs)
        limits = self._limits(inputs)
        written: list[list[int]] = [[] for _ in range(len(inputs))]
        which = torch.arange(len(inputs))  # of the sentences, those still in the batch
        tokens = torch.full((len(inputs), 1), BEGIN)
        open_ = torch.ones(len(inputs), dtype=torch.bool)
        cache: Cache | None = None
        while True:
            now = tokens[:, -1:] if cached else tokens
            states, cache = self.family.decode(
                self.backbone, self._read(now, inputs), source, prompts, cache if cached else None
            )
            scores = (states[:, -1:] @ answers)[:, 0]
            may = allowed & self._grammatical(tokens[:, 1:], inputs) if grammar else allowed
            best = scores.masked_fill(~may, float("-inf")).argmax(dim=-1)
            best = torch.where(open_, best, END)
            tokens = torch.cat([tokens, best[:, None]], dim=1)
            open_ = open_ & (best != END) & (tokens.shape[1] - 1 < limits)
            ended = int((~open_).sum())
            if ended * _DROP < len(which):
                continue
            for i, row in zip(which[~open_].tolist(), tokens[~open_, 1:].tolist()):
                written[i] = [t for t in row if t != END]
            if ended == len(which):
                return written
            keep = open_.nonzero()[:, 0]
            which, tokens, limits, open_ = which[keep], tokens[keep], limits[keep], open_[keep]
            answers, allowed, source = answers[keep], allowed[keep], source.some(keep)
            inputs = Inputs(inputs.ids[keep], inputs.real[keep], inputs.first[keep])
            cache = [keep_rows(kv, keep) for kv in cache]

    def _limits(self, inputs: Inputs) -> torch.Tensor:
        pieces, words = inputs.real.sum(dim=1), inputs.first.sum(dim=1)
        return torch.minimum((10 + 0.6 * pieces).long(), 3 * words).clamp(min=1)

    def _grammatical(self, written: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        """What may follow: (rows, 2 + types + pieces) bool. Every third token is a type, so the
        step tells.
        """
        fixed, pieces = FIRST_TYPE + self.types, inputs.ids.shape[1]
        may = torch.zeros(len(inputs), fixed + pieces, dtype=torch.bool)
        turn = written.shape[1] % 3
        if turn == 0:
            may[:, fixed:] = True
            may[:, END] = True
        elif turn == 1:
            may[:, fixed:] = torch.arange(pieces) >= (written[:, -1:] - fixed)
        else:
            may[:, FIRST_TYPE:fixed] = True
        may[(written == END).any(dim=1)] = True  # ended: whatever is chosen is replaced by END
        return may


def losses_of(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.transpose(1, 2), tokens, reduction="none")


def split_losses(
    losses: torch.Tensor, origins: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(source, target, end) of every sentence, each the sum over its tokens: equations 8 and 9, and
    the end.
    """
    parts = [
        (losses * (origins == o)).sum(dim=1) for o in (Origin.SOURCE, Origin.TARGET, Origin.END)
    ]
    return parts[0], parts[1], parts[2]


def trainable_share(model: nn.Module) -> tuple[int, int]:
    """(parameters that are trained, and so travel; all parameters)."""
    sizes = [(p.numel(), p.requires_grad) for p in model.parameters()]
    return sum(n for n, trained in sizes if trained), sum(n for n, _ in sizes)


def open_model(folder: str | Path) -> tuple[PointerNer, Any, tuple[str, ...]]:
    """A model that a run left in its `model/` folder: the network in eval mode, its tokenizer and
    the types. The frozen language model is not among a run's files: it is loaded by its name, and
    refused if it is another.
    """
    about = json.loads((Path(folder) / "config.json").read_text("utf-8"))
    built_in = about["seq2seq"] == "built-in bart"
    checkpoint = load_checkpoint("" if built_in else about["seq2seq"], "bart")
    if checkpoint.sha256 != about["seq2seq_sha256"]:
        raise UserError(
            f'{folder}: the model was trained on another language model than "{about["seq2seq"]}" is now.'
        )
    types = tuple(about["types"])
    labels = label_pieces(types, checkpoint.tokenizer)
    # Runs of before TRAIN had other names for two of its parts.
    part = parse_part(about.get("train") or _BEFORE[about["tune"]])
    model = PointerNer(checkpoint.backbone, labels, about["prompts"], about["hidden"], 0.0, part)
    return saved.loaded(model, folder), checkpoint.tokenizer, types
