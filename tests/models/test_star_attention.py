"""Attention at the stars alone is the attention that is written out, forward and backward."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import UserError
from config.part import Part
from models.document_encoder import DocumentEncoder
from models.precision import set_precision
from models.star_attention import _InHalf, use_star_attention
from tests.methods.small_document import tiny_checkpoint, tiny_task


def _still(model: Any) -> Any:
    """In training mode, but nothing is dropped."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model.train()


def _both(window: int, precision: str = "float32") -> tuple[Any, Any, Any]:
    """A task, and two models with the same weights that compute in the two ways."""
    task = tiny_task(window=window)
    backbone = copy.deepcopy(tiny_checkpoint().backbone)
    set_precision(backbone, precision)
    torch.manual_seed(3)
    whole = DocumentEncoder(backbone, 2, block=8)
    with torch.no_grad():
        for layer in whole.backbone.encoder.layer:
            for part in (layer.attention.self.query, layer.attention.self.key):
                part.weight.normal_(std=0.3)
    stars = DocumentEncoder(backbone, 2, block=8, drop_attention=False)
    stars.load_state_dict(whole.state_dict())
    return task, _still(whole), _still(stars)


@pytest.mark.parametrize("window", [24, 64])
@pytest.mark.parametrize("size", [1, 6])
def test_the_same_logits_and_gradients(window: int, size: int) -> None:
    task, whole, stars = _both(window)
    data = task.data("train")
    assert (data.lengths > 24).any()
    for rows in (np.arange(size), np.arange(size) + 3):
        batch, labels = task.batch(data, rows)
        readings = [m.read(batch) for m in (whole, stars)]
        for what in ("logits", "context", "subject"):
            torch.testing.assert_close(*(getattr(r, what) for r in readings), rtol=1e-4, atol=1e-5)
        for m in (whole, stars):
            m.zero_grad()
            task.loss(m, (batch, labels)).backward()
        own = dict(stars.named_parameters())
        for name, p in whole.named_parameters():
            torch.testing.assert_close(p.grad, own[name].grad, rtol=1e-3, atol=1e-6)


def test_in_bfloat16_they_differ_by_its_rounding_alone() -> None:
    task, whole, stars = _both(64, "bfloat16")
    batch, _ = task.batch(task.data("train"), np.arange(6))
    exact = DocumentEncoder(tiny_checkpoint().backbone, 2, block=8)
    exact.load_state_dict(whole.state_dict())
    with torch.no_grad():
        a, b, c = (m.read(batch).context for m in (whole, stars, exact.eval()))
    error = float((a - c).abs().max())
    assert 0 < float((b - c).abs().max()) < 2 * error


@settings(max_examples=30)
@given(
    shape=st.tuples(*[st.integers(1, 4)] * 4),
    ends=st.lists(st.integers(1, 4), min_size=4, max_size=4),
)
def test_the_form_for_bfloat16_is_torchs(shape: tuple[int, ...], ends: list[int]) -> None:
    torch.manual_seed(sum(shape))
    given_ = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    windows, _, width, _ = shape
    real = torch.arange(width) < torch.tensor(ends[:windows])[:, None]
    mask = real[:, None, None].expand(windows, 1, width, width)
    query, key, value = given_
    slow = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=0.3)
    fast = _InHalf.apply(query, key, value, mask, 0.3)
    torch.testing.assert_close(slow, fast)
    wanted = [torch.autograd.grad((x**3).sum(), given_) for x in (slow, fast)]
    for a, b in zip(*wanted):
        torch.testing.assert_close(a, b)


def test_above_a_frozen_part_too() -> None:
    task = tiny_task(part=Part("top", 1), window=24, attention_dropout="none")
    model = task.new_model(0)
    batch = task.batch(task.data("train"), np.arange(4))
    assert batch[0].below is not None
    task.loss(model, batch).backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


def test_an_encoder_with_an_attention_of_its_own_is_refused() -> None:
    backbone = copy.deepcopy(tiny_checkpoint().backbone)
    backbone.config.model_type = "mpnet"
    with pytest.raises(UserError, match='"attention_dropout": none is for encoders such as BERT'):
        use_star_attention(backbone)
