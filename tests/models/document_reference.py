"""FedLCC's document model once more, as slowly as it can be written: one document, one mention, one
pair at a time.

Shares with the real one the weights and the backbone, and nothing else: it marks, cuts into
windows, joins them and pools on its own, from the paper's equations.
"""

from __future__ import annotations

from typing import Any

import torch

from models.document_encoder import DocumentEncoder

__all__ = ["read_document"]


def _marked(
    text: str, entities: list[list[tuple[int, int]]], tokenizer: Any
) -> tuple[list[int], dict[int, int]]:
    """Pieces without [CLS] and [SEP], and where the star that opens at a character stands among
    them.
    """
    ids: list[int] = []
    opened: dict[int, int] = {}
    star = tokenizer.convert_tokens_to_ids("*")
    word = ""
    for i in range(len(text) + 1):
        closes = any(e == i for spans in entities for _, e in spans)
        opens = any(s == i for spans in entities for s, _ in spans)
        if (closes or opens or i == len(text)) and word:
            ids += tokenizer(word, add_special_tokens=False)["input_ids"]
            word = ""
        if closes:
            ids.append(star)
        if opens:
            opened[i] = len(ids)
            ids.append(star)
        if i < len(text):
            word += text[i]
    return ids, opened


def _backbone(model: DocumentEncoder, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    out = model.backbone(input_ids=torch.tensor([ids]), output_attentions=True)
    return out.last_hidden_state[0], out.attentions[-1][0]


def _encode(
    model: DocumentEncoder, ids: list[int], window: int, cls: int, sep: int
) -> tuple[Any, Any]:
    """Hidden states and attention of a document whose pieces begin with [CLS] and end with
    [SEP].
    """
    n = len(ids)
    if n <= window:
        return _backbone(model, ids)
    first, first_look = _backbone(model, [*ids[: window - 1], sep])
    last, last_look = _backbone(model, [cls, *ids[n - window + 1 :]])
    hidden, look = [], torch.zeros(first_look.shape[0], n, n)
    for i in range(n):
        found = []
        if i < window - 1:
            found.append(first[i])
        if i >= n - window + 1:
            found.append(last[i - (n - window + 1) + 1])
        hidden.append(torch.stack(found).sum(0) / len(found))
    for i in range(n):
        for j in range(n):
            if i < window - 1 and j < window - 1:
                look[:, i, j] += first_look[:, i, j]
            if i >= n - window + 1 and j >= n - window + 1:
                shift = n - window
                look[:, i, j] += last_look[:, i - shift, j - shift]
    return torch.stack(hidden), look / look.sum(dim=2, keepdim=True)


def read_document(
    model: DocumentEncoder,
    tokenizer: Any,
    text: str,
    entities: list[list[tuple[int, int]]],
    pairs: list[tuple[int, int]],
    *,
    window: int,
    limit: int,
) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
    """c and the logits of every pair, and the attention of every entity."""
    body, opened = _marked(text, entities, tokenizer)
    body = body[: limit - 2]
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    hidden, look = _encode(model, [cls, *body, sep], window, cls, sep)
    vectors, looks = [], []
    for spans in entities:
        stars = [opened[s] + 1 for s in dict.fromkeys(s for s, _ in spans) if opened[s] < len(body)]
        if not stars:
            vectors.append(torch.zeros(hidden.shape[1]))
            looks.append(torch.zeros(look.shape[0], look.shape[2]))
            continue
        total = torch.zeros(hidden.shape[1])
        for s in stars:
            total = total + torch.exp(hidden[s])
        vectors.append(torch.log(total))
        looks.append(sum(look[:, s] for s in stars) / len(stars))
    contexts, logits = [], []
    for h, t in pairs:
        q = torch.zeros(look.shape[2])
        for head in range(look.shape[0]):
            q = q + looks[h][head] * looks[t][head]
        a = q / (q.sum() + 1e-5)
        c = torch.zeros(hidden.shape[1])
        for i in range(len(a)):
            c = c + a[i] * hidden[i]
        z_s = torch.tanh(model.subject.weight @ torch.cat([vectors[h], c]) + model.subject.bias)
        z_o = torch.tanh(model.object.weight @ torch.cat([vectors[t], c]) + model.object.bias)
        features = []
        for g in range(0, len(z_s), model.block):
            features.append(
                torch.outer(z_s[g : g + model.block], z_o[g : g + model.block]).flatten()
            )
        contexts.append(c)
        logits.append(model.bilinear.weight @ torch.cat(features) + model.bilinear.bias)
    return contexts, logits, looks
