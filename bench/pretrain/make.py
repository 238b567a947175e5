"""`sottovoce pretrain`: make the small encoders that are shipped, again, from nothing but this
repository.

Text comes from the built-in generators and is public by construction; no sentence of it can occur
in a task (see `corpora.sentence.generate`). Everything is decided by a `Plan`: the same plan gives
the same bytes on the same kind of machine with the same torch. Other processors add floats in
another order, so a different hash there says nothing.

A checkpoint is one entry in `PLANS`, a kind of network one maker in `MAKERS`; all share vocabulary
and file layout.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.pretrain import bart as pretrain_bart
from config.errors import UserError, nearest
from corpora.document import generate as document_synthetic
from corpora.ner import generate as ner_synthetic
from corpora.sentence import generate as sentence_synthetic
from models.backbone import PRETRAINED

__all__ = ["MAKERS", "PLANS", "SOURCES", "Plan", "check", "make", "text_of"]

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LONGEST_PART = 8
Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    kind: str
    vocabulary: int = 8_000  #: pieces at most
    layers: int = 2
    width: int = 128
    heads: int = 4
    positions: int = 512
    #: source -> sentences, or documents, drawn from it
    sentences: Mapping[str, int] | None = None
    epochs: int = 6
    batch: int = 64
    lr: float = 1e-3
    masked: float = 0.15  #: share of pieces to be guessed
    seed: int = 20_201_116


#: Where pretraining text comes from: (how many, seed) -> texts.
SOURCES: Mapping[str, Callable[[int, int], Iterator[str]]] = {
    "sentence": sentence_synthetic.pretraining_text,
    "ner": ner_synthetic.pretraining_text,
    "document": document_synthetic.pretraining_text,
}
PLANS: Mapping[str, Plan] = {
    "bert": Plan("bert", sentences={"sentence": 50_000}),
    # Whole documents: a sentence reaches few of the positions, and attention that is not local
    # there never becomes so.
    "document": Plan("bert", vocabulary=6_000, sentences={"document": 14_000}, epochs=5, batch=24),
    "bart": Plan(
        "bart", vocabulary=4_000, positions=256, sentences={"ner": 30_000}, epochs=5, masked=0.3
    ),
}


def text_of(plan: Plan) -> list[str]:
    return [
        line
        for name, count in (plan.sentences or {}).items()
        for line in SOURCES[name](count, plan.seed)
    ]


def make(plan: Plan, folder: Path, say: Say = lambda line: None) -> str:
    """Write the checkpoint into `folder`; returns the SHA-256 over its weights and vocabulary."""
    from transformers.utils import logging

    torch.set_num_threads(1)  # the order in which floats are added is part of the result
    lines = text_of(plan)
    say(f"{len(lines)} texts")
    tokenizer = _wordpiece(plan, lines)
    say(f"vocabulary of {len(tokenizer)} pieces")
    network = MAKERS[plan.kind](plan, tokenizer, lines, say)
    folder.mkdir(parents=True, exist_ok=True)
    logging.disable_progress_bar()
    network.half().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    sha = _sha256(folder)
    manifest = {
        "plan": asdict(plan),
        "sha256": sha,
        "text_sha256": hashlib.sha256("\n".join(lines).encode()).hexdigest(),
        "torch": torch.__version__,
        "machine": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")
    return sha


def check(kind: str, say: Say) -> bool:
    """Make a shipped checkpoint again, elsewhere, and compare hashes."""
    plan, shipped = _plan(kind), PRETRAINED / kind
    try:
        expected = json.loads((shipped / "manifest.json").read_text("utf-8"))
    except OSError:
        raise UserError(
            f"There is no checkpoint in {shipped} to check; make it with: sottovoce pretrain"
        ) from None
    if _sha256(shipped) != expected["sha256"]:
        say(f"{shipped}: the files are not those the manifest was written for")
        return False
    place = Path(tempfile.mkdtemp(prefix="sottovoce-pretrain-"))
    try:
        again = make(plan, place, say)
        manifest = json.loads((place / "manifest.json").read_text("utf-8"))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    say(f"shipped {expected['sha256'][:16]}, made again {again[:16]}")
    for what in ("machine", "torch", "text_sha256"):
        if manifest[what] != expected[what]:
            say(f"{what} differs: {expected[what]} then, {manifest[what]} now")
    return bool(again == expected["sha256"])


def run(kind: str, again: bool, say: Say) -> int:
    """The command: make the shipped checkpoint of `kind`, or check it."""
    if again:
        same = check(kind, say)
        say("the same" if same else "NOT the same")
        return 0 if same else 1
    began = time.monotonic()
    sha = make(_plan(kind), PRETRAINED / kind, say)
    say(f"{PRETRAINED / kind}: {sha} in {time.monotonic() - began:.0f} s")
    return 0


def _plan(kind: str) -> Plan:
    if kind not in PLANS:
        raise UserError(f'There is no plan to pretrain "{kind}".{nearest(kind, PLANS)}')
    return PLANS[kind]


def _sha256(folder: Path) -> str:
    digest = hashlib.sha256()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()


def _vocabulary(
    plan: Plan, lines: list[str], words_of: Callable[[str], list[str]]
) -> dict[str, int]:
    """Special tokens, characters, the most frequent words, then the parts that the other words have
    most in common.

    The trainer of `tokenizers` breaks ties by the order of a hash map, differently in every
    process; this one is decided by the text alone.
    """
    count = Counter(w for line in lines for w in words_of(line))
    # Every printable ASCII character is a piece, so that no English word is ever unknown.
    letters = [chr(c) for c in range(33, 127) if not chr(c).isupper()]
    pieces = [*SPECIAL, *letters, *(f"##{c}" for c in letters)]
    by_count = sorted(count, key=lambda w: (-count[w], w))
    whole = [w for w in by_count if len(w) > 1][: plan.vocabulary // 4]
    parts: Counter[str] = Counter()
    for word in set(count) - set(whole):
        for i in range(len(word)):
            for j in range(i + 2, min(len(word), i + _LONGEST_PART) + 1):
                parts[word[i:j] if i == 0 else f"##{word[i:j]}"] += count[word] * (j - i - 1)
    common = sorted(parts, key=lambda p: (-parts[p], p))
    chosen = list(dict.fromkeys([*pieces, *whole, *common]))[: plan.vocabulary]
    return {piece: i for i, piece in enumerate(chosen)}


def _wordpiece(plan: Plan, lines: list[str]) -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    normalizer, splitter = (
        normalizers.BertNormalizer(lowercase=True),
        pre_tokenizers.BertPreTokenizer(),
    )

    def words_of(line: str) -> list[str]:
        return [w for w, _ in splitter.pre_tokenize_str(normalizer.normalize_str(line))]

    vocabulary = _vocabulary(plan, lines, words_of)
    core = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    core.normalizer, core.pre_tokenizer = normalizer, splitter
    core.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(
        tokenizer_object=core, mask_token="[MASK]", model_max_length=plan.positions, **names
    )


def _bert(plan: Plan, tokenizer: Any, lines: list[str], say: Say) -> Any:
    """Masked-language modelling: of the chosen pieces 80 % are hidden, 10 % replaced, 10 % left."""
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(plan.seed)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=plan.width,
        num_hidden_layers=plan.layers,
        num_attention_heads=plan.heads,
        intermediate_size=4 * plan.width,
        max_position_embeddings=plan.positions,
    )
    model = BertForMaskedLM(config)
    rows = [
        np.array(r[: plan.positions], np.int64)
        for r in tokenizer(lines, verbose=False)["input_ids"]
    ]

    def loss(batch: list[np.ndarray], rng: np.random.Generator) -> torch.Tensor:
        longest = max(map(len, batch))
        ids = np.zeros((len(batch), longest), np.int64)
        for i, row in enumerate(batch):
            ids[i, : len(row)] = row
        real = ids != 0
        chosen = real & (ids >= len(SPECIAL)) & (rng.random(ids.shape) < plan.masked)
        what = rng.random(ids.shape)
        shown = np.where(chosen & (what < 0.8), SPECIAL.index("[MASK]"), ids)
        random = rng.integers(len(SPECIAL), len(tokenizer), ids.shape)
        shown = np.where(chosen & (what >= 0.9), random, shown)
        hidden = model.bert(
            input_ids=torch.from_numpy(shown),
            attention_mask=torch.from_numpy(real.astype(np.int64)),
        ).last_hidden_state
        # Scores over the vocabulary only where there is something to guess: the rest would be most
        # of the work.
        at = torch.from_numpy(chosen)
        return torch.nn.functional.cross_entropy(model.cls(hidden[at]), torch.from_numpy(ids)[at])

    _train(plan, model, rows, loss, say)
    return model.bert


def _bart(plan: Plan, tokenizer: Any, lines: list[str], say: Say) -> Any:
    torch.manual_seed(plan.seed)
    pad, begin, end, mask = (SPECIAL.index(t) for t in ("[PAD]", "[CLS]", "[SEP]", "[MASK]"))
    tokens = {"pad": pad, "begin": begin, "end": end}
    model = pretrain_bart.build(
        len(tokenizer), plan.layers, plan.width, plan.heads, plan.positions, tokens
    )
    rows = [
        np.array(r[: plan.positions], np.int64)
        for r in tokenizer(lines, verbose=False)["input_ids"]
    ]
    _train(plan, model, rows, pretrain_bart.reconstruction(model, pad, mask, plan.masked), say)
    return model.model


def _train(plan: Plan, model: Any, rows: list[np.ndarray], loss: Any, say: Say) -> None:
    """AdamW with a linear warm-up and decay over length-sorted batches, in an order decided by the
    seed.
    """
    rng = np.random.default_rng(plan.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=plan.lr, weight_decay=0.01)
    by_length = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    batches = [by_length[i : i + plan.batch] for i in range(0, len(rows), plan.batch)]
    total, step = plan.epochs * len(batches), 0
    model.train()
    for epoch in range(plan.epochs):
        seen = 0.0
        for b in rng.permutation(len(batches)):
            step += 1
            for group in optimizer.param_groups:
                group["lr"] = plan.lr * min(step / (0.05 * total), (total - step + 1) / total)
            value = loss([rows[i] for i in batches[b]], rng)
            if not math.isfinite(float(value.detach())):
                continue  # a batch in which nothing was chosen
            optimizer.zero_grad(set_to_none=True)
            value.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            seen += float(value.detach())
        say(f"epoch {epoch + 1} of {plan.epochs}: loss {seen / len(batches):.3f}")
    model.eval()


MAKERS: Mapping[str, Callable[[Plan, Any, list[str], Say], Any]] = {"bert": _bert, "bart": _bart}
