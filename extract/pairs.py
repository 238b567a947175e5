"""Models that runs left behind, opened for use: which relations hold in sentences that they have
not seen.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from config.errors import UserError, nearest
from extract.read_pairs import Candidate
from extract.texts import DocumentExtractor, NerExtractor, TaggerExtractor, TextExtractor
from models import saved
from models.bags import bag_scores
from models.device import here, there
from models.marking import tokenise
from models.pcnn import PAD, PCNN, UNKNOWN, hashed_word
from models.sentence_encoder import Style, open_model

__all__ = ["Extractor", "Found", "model_folder", "open_extractor"]

_BATCH = 64
_WORD = re.compile(r"\w+(?:[-'_]\w+)*|[^\w\s]")


@dataclass(frozen=True)
class Found:
    """What the model says of one pair: in a sentence, or, under distant supervision, in all
    sentences that name it.
    """

    candidates: tuple[Candidate, ...]  #: the most telling first
    scores: dict[str, float]  #: probability of every relation, the one for "none" included
    relation: str | None  #: None: the model says there is none

    @property
    def score(self) -> float:
        return max(self.scores.values())


class Extractor(ABC):
    relations: tuple[str, ...]
    none: str  #: which relation says that there is none; empty where the model always names one

    @abstractmethod
    def extract(
        self, candidates: Sequence[Candidate], progress: Callable[[int], None]
    ) -> list[Found]:
        """`progress` is called with the number of sentences done."""

    def _found(self, candidates: tuple[Candidate, ...], p: np.ndarray) -> Found:
        best = self.relations[int(p.argmax())]
        scores = {r: float(x) for r, x in zip(self.relations, p)}
        return Found(candidates, scores, None if best == self.none else best)


class SentenceExtractor(Extractor):
    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        self._length, self._style = int(about["max_length"]), Style(**about["style"])
        self._model, self._tokenizer, self.relations = open_model(folder)
        self.none = self.relations[int(about["none"])] if int(about["none"]) >= 0 else ""

    def extract(
        self, candidates: Sequence[Candidate], progress: Callable[[int], None]
    ) -> list[Found]:
        mentions = (
            (e.text, e.head, e.tail, e.head_type, e.tail_type)
            for e in (c.example for c in candidates)
        )
        packed = tokenise(mentions, self._tokenizer, self._style.blinding, self._length)
        out: dict[int, Found] = {}
        order = np.argsort(packed.lengths, kind="stable")
        for b in range(0, len(order), _BATCH):
            rows = order[b : b + _BATCH]
            span = np.arange(int(packed.lengths[rows].max()))
            real = span < packed.lengths[rows][:, None]
            where = np.where(real, packed.at[rows][:, None] + span, 0)
            ids = np.where(real, packed.ids[where], self._tokenizer.pad_token_id).astype(np.int64)
            flags = np.where(real, packed.flags[where], 0).astype(np.int64)
            with torch.inference_mode():
                logits = self._model(here(ids), here(real), here(flags))
                p = there(F.softmax(logits, dim=-1))
            for row, values in zip(rows, p):
                out[int(row)] = self._found((candidates[int(row)],), values)
            progress(len(rows))
        return [out[i] for i in range(len(candidates))]


class BagExtractor(Extractor):
    """The PCNN: sentences that name the same two entities are one bag and are judged together."""

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        self.relations, self.none = tuple(about["relations"]), about["relations"][0]
        self._rule, self._length, knobs = (
            about["bag_rule"],
            int(about["max_length"]),
            about["knobs"],
        )
        self._hashed = int(knobs["hash_words"]) if about["vocabulary"] == "hashed" else 0
        self._known: dict[str, int] = {}
        if not self._hashed:
            words = (folder / "vocabulary.txt").read_text("utf-8").split("\n")
            self._known = {w: i for i, w in enumerate(words)}
        weights = saved.read_weights(folder)
        word_dim = (
            weights["word.weight"].shape[1] if "word.weight" in weights else int(knobs["word_dim"])
        )
        network = PCNN(
            int(about["vocabulary_size"]),
            len(self.relations),
            word_dim=word_dim,
            sums=knobs.get("encoder") == "sums",
        )
        self._model = saved.loaded(network, folder)

    def _word(self, word: str) -> int:
        return (
            hashed_word(word, self._hashed)
            if self._hashed
            else self._known.get(word.lower(), UNKNOWN)
        )

    def _words(self, c: Candidate) -> tuple[list[int], int, int]:
        """Word numbers, and where head and tail begin. An entity's ends are ends of words too."""
        e = c.example
        cuts = sorted({0, len(e.text), *e.head, *e.tail})
        spans = [
            (a + m.start(), m[0])
            for a, b in zip(cuts, cuts[1:])
            for m in _WORD.finditer(e.text[a:b])
        ]
        starts = [at for at, _ in spans]

        def place(at: int) -> int:
            return next((k for k, start in enumerate(starts) if start >= at), len(starts) - 1)

        return [self._word(w) for _, w in spans][: self._length], place(e.head[0]), place(e.tail[0])

    def extract(
        self, candidates: Sequence[Candidate], progress: Callable[[int], None]
    ) -> list[Found]:
        bags: dict[tuple[str, str], list[Candidate]] = {}
        for c in candidates:
            e = c.example
            key = (e.text[slice(*e.head)].lower(), e.text[slice(*e.tail)].lower())
            bags.setdefault(key, []).append(c)
        out = []
        for own in bags.values():
            with torch.inference_mode():
                vectors = torch.cat(
                    [self._encode(own[b : b + _BATCH]) for b in range(0, len(own), _BATCH)]
                )
                bag = torch.zeros(len(own), dtype=torch.long)
                p = there(bag_scores(self._rule, self._model.out, vectors, bag, 1)[0])
                telling = F.softmax(self._model.out(vectors), dim=-1)[:, int(p.argmax())]
            order = sorted(range(len(own)), key=lambda i: -float(telling[i]))
            out.append(self._found(tuple(own[i] for i in order), p))
            progress(len(own))
        return out

    def _encode(self, some: Sequence[Candidate]) -> torch.Tensor:
        rows = [self._words(c) for c in some]
        longest = max(len(words) for words, _, _ in rows)
        words = torch.full((len(rows), longest), PAD)
        for i, (numbers, _, _) in enumerate(rows):
            words[i, : len(numbers)] = torch.tensor(numbers)
        lengths = torch.tensor([len(numbers) for numbers, _, _ in rows])
        heads, tails = torch.tensor([h for _, h, _ in rows]), torch.tensor([t for _, _, t in rows])
        return self._model.encode(words, lengths, heads, tails)


_ARCHITECTURES: dict[str, type[Extractor] | type[TextExtractor]] = {
    "sentence-encoder": SentenceExtractor,
    "pcnn": BagExtractor,
    "document-encoder": DocumentExtractor,
    "pointer-ner": NerExtractor,
    "tagger": TaggerExtractor,
}


def model_folder(path: Path) -> tuple[Path, dict[str, Any]]:
    """The model in `path`, a run's folder or its model/, and its config.json."""
    folder = path / "model" if (path / "model" / "config.json").is_file() else path
    if not path.is_dir():
        raise UserError(f'"{path}" is not a folder; give a run folder, or the model/ in one.')
    try:
        about = json.loads((folder / "config.json").read_text("utf-8"))
        kind = about["architecture"]
    except FileNotFoundError:
        raise UserError(
            f'"{path}" has no model in it: there is no config.json; is the run finished?'
        ) from None
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f'"{folder / "config.json"}" does not describe a model that a run of ours left.'
        ) from None
    return folder, about | {"architecture": kind}


def open_extractor(path: Path) -> Extractor | TextExtractor:
    folder, about = model_folder(path)
    kind = about["architecture"]
    if kind not in _ARCHITECTURES:
        raise UserError(
            f'"{folder}" is a {kind} model, which extract cannot use.{nearest(str(kind), _ARCHITECTURES)}'
        )
    if saved.is_per_silo(folder):
        raise UserError(f'"{folder}" holds a model for each silo, not one that extract can use.')
    try:
        return _ARCHITECTURES[kind](folder, about)  # type: ignore[call-arg]
    except FileNotFoundError as e:
        raise UserError(
            f'The model in "{folder}" is not whole: {Path(e.filename).relative_to(folder)} is missing.'
        ) from None
    except (KeyError, TypeError, OSError) as e:
        raise UserError(f'The model in "{folder}" cannot be opened: {e}.') from None
    except RuntimeError as e:  # torch, of weights that do not fit
        first = str(e).strip().splitlines()[-1].strip()
        raise UserError(
            f'The weights in "{folder}" are not those of its config.json: {first}'
        ) from None
