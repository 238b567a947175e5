"""Every equation of FedED, FedCMC and their baselines against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from methods import fedatt, fedcmc, feded, fedlc, fedprox, fedrs, moon, scaffold
from tests.methods.small import gradient_of

LN2 = math.log(2)


# FedCMC


def test_similarity_is_the_mean_cosine_to_the_other_rows() -> None:
    theta = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]], np.float32)
    r = 1 / math.sqrt(2)
    assert fedcmc.similarities(theta) == pytest.approx([(0 + r) / 2, (0 + r) / 2, r])


def test_with_two_classes_both_similarities_are_equal_so_one_silo_supplies_both_rows() -> None:
    d = fedcmc.similarities(np.array([[1.0, 2.0], [-1.0, 0.5]], np.float32))
    assert d[0] == d[1]
    other = np.array([0.3, 0.3], np.float32)
    won = fedcmc.winners({0: other, 1: d}, 2, "major", np.random.default_rng(0))
    assert won.tolist() == [1, 1]


def test_winner_has_the_lowest_similarity_and_ties_go_to_the_lowest_silo() -> None:
    said = {4: np.array([0.5, 0.1, 0.2]), 2: np.array([0.4, 0.3, 0.2]), 7: np.full(3, np.nan)}
    rng = np.random.default_rng(0)
    assert fedcmc.winners(said, 3, "major", rng).tolist() == [2, 4, 2]
    assert fedcmc.winners(said, 3, "minor", rng).tolist() == [4, 2, 2]
    # never the one without examples
    many = {silo: np.tile(d, 100) for silo, d in said.items()}
    assert set(fedcmc.winners(many, 300, "random", rng).tolist()) == {2, 4}
    assert fedcmc.winners({7: np.full(3, np.nan)}, 3, "major", rng).tolist() == [fedcmc.NOBODY] * 3


class _Rows(nn.Module):
    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.classifier = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        self.classifier.weight.data = weight.clone()


def test_major_loss_by_hand_and_its_second_term_trains_the_encoder_only() -> None:
    model = _Rows(torch.zeros(2, 2))
    h = torch.tensor([[1.0, 0.0]], requires_grad=True)
    major = torch.tensor([[LN2, 0.0], [0.0, 0.0]], requires_grad=True)
    label = torch.tensor([1])
    # CE over (0, 0) is log 2; over (log 2, 0) the true class has probability 1/3.
    value = fedcmc.major_loss(model.classifier, h, label, major.detach(), 0.5)
    assert value.item() == pytest.approx(LN2 + 0.5 * math.log(3))
    value.backward()
    live = gradient_of(model.classifier.weight).clone()
    model.zero_grad()
    F.cross_entropy(model.classifier(h.detach()), label).backward()
    # equation 17: the live classifier has CE gradients only
    assert torch.equal(live, gradient_of(model.classifier.weight))
    # d/dh of 0.5 CE(h M^T) is 0.5 (p_0 M_0) = 0.5 * 2/3 * log 2 in the first coordinate; CE's own
    # is zero here.
    assert gradient_of(h)[0].tolist() == pytest.approx([0.5 * 2 / 3 * LN2, 0.0])


def test_a_classifier_row_is_pulled_by_its_own_class_and_pushed_by_the_others_by_p() -> None:
    """Equations 4 and 5, with p as the pushing coefficient (the paper prints 1 - p there)."""
    model = _Rows(torch.tensor([[LN2, 0.0], [0.0, 0.0]]))
    h, label = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
    # p of class 0: 2/3 for the first example, 1/2 for the second. Sums over examples, as equation 4
    # has it.
    F.cross_entropy(model.classifier(h), label, reduction="sum").backward()
    step = -gradient_of(model.classifier.weight)
    assert step[0].tolist() == pytest.approx([(1 - 2 / 3) * 1.0, -1 / 2 * 1.0])
    assert step[1].tolist() == pytest.approx([-(1 / 3) * 1.0, (1 - 1 / 2) * 1.0])


# FedED


def test_teacher_is_the_softmax_of_the_mean_at_temperature() -> None:
    z = np.array([[math.log(0.5), math.log(0.25), math.log(0.25)]])
    assert feded.teacher(z, 1.0)[0] == pytest.approx([0.5, 0.25, 0.25])
    root = np.sqrt([0.5, 0.25, 0.25])
    assert feded.teacher(z, 2.0)[0] == pytest.approx(root / root.sum())


@pytest.mark.parametrize(
    ("classes", "tau", "cap"), [(9, 1.0, 0.2536), (2, 1.0, 0.7311), (9, 0.1, 0.9996)]
)
def test_literal_probabilities_cap_the_teacher(classes: int, tau: float, cap: float) -> None:
    """Silos that are all perfectly sure: the teacher is not, and cannot be."""
    sure = np.eye(classes)[:1]
    q = feded.teacher(sure, tau)
    assert q[0, 0] == pytest.approx(math.exp(1 / tau) / (math.exp(1 / tau) + classes - 1))
    assert q[0, 0] == pytest.approx(cap, abs=1e-4)


@given(st.lists(st.lists(st.floats(-6, 6), min_size=4, max_size=4), min_size=1, max_size=5))
def test_averaging_log_softmax_equals_averaging_logits(rows: list[list[float]]) -> None:
    logits = torch.tensor(rows, dtype=torch.float64)
    by_logits = feded.teacher(logits.mean(0, keepdim=True).numpy(), 1.5)
    by_log_p = feded.teacher(F.log_softmax(logits, -1).mean(0, keepdim=True).numpy(), 1.5)
    assert np.allclose(by_logits, by_log_p, atol=1e-12)


def test_distillation_loss_by_hand() -> None:
    logits, label = torch.zeros(1, 2), torch.tensor([0])
    q = torch.tensor([[0.75, 0.25]])
    kl = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)  # teacher first
    paper = feded.distil_loss(logits, label, q, feded.Options())
    assert float(paper) == pytest.approx(LN2 + kl)
    hinton = feded.distil_loss(logits, label, q, feded.Options(loss="hinton", tau=2.0, lam=0.25))
    assert float(hinton) == pytest.approx(0.75 * LN2 + 0.25 * 4 * kl)
    alone = feded.distil_loss(logits, label, q, feded.Options(loss="kl"))
    assert float(alone) == pytest.approx(kl)


def test_paper_loss_keeps_the_student_at_temperature_one() -> None:
    logits, q = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.5, 0.5]])
    at_one = F.kl_div(F.log_softmax(logits, -1), q, reduction="batchmean") + F.cross_entropy(
        logits, torch.tensor([0])
    )
    got = feded.distil_loss(logits, torch.tensor([0]), q, feded.Options(tau=4.0))
    assert float(got) == pytest.approx(float(at_one))


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("form", ["logits", "probs"])
def test_codes_lose_at_most_half_a_step(bits: int, form: str) -> None:
    o = feded.Options(logit_bits=bits, form=form)
    log_p = F.log_softmax(
        torch.randn(50, 7, generator=torch.Generator().manual_seed(1)) * 9, -1
    ).numpy()
    low, high = (-20.0, 0.0) if form == "logits" else (0.0, 1.0)
    true = np.clip(log_p if form == "logits" else np.exp(log_p), low, high)
    coded = feded.encode(log_p, o)
    assert coded.nbytes == log_p.size * bits // 8
    step = (high - low) / (2**bits - 1) if bits < 32 else 1e-5
    assert np.abs(feded.decode(coded, o) - true).max() <= step / 2 + 1e-6
    assert (
        feded.encode(np.array([[-50.0, 0.0]], np.float32), feded.Options(logit_bits=32))[0, 0]
        == -20.0
    )


# FedAtt


def test_attention_by_hand_and_the_farthest_weighs_most() -> None:
    """The quotient of e is softmax, whatever the common level."""
    for level in (0.0, 0.5, -0.2):
        e = [fedatt.attention(np.array([s]), np.array([level]))[0] for s in (0.0, LN2)]
        assert [x / sum(e) for x in e] == pytest.approx([1 / 3, 2 / 3])
    far = fedatt.attention(np.array([1000.0, -1000.0]), np.array([0.0, 0.0]))
    assert far == pytest.approx([math.exp(1), math.exp(-1)])  # bounded, so that nothing overflows


def test_norms_are_frobenius_or_spectral() -> None:
    update = {
        "m": np.array([[3.0, 0.0], [0.0, 4.0]], np.float32),
        "v": np.array([1.0, 2.0, 2.0], np.float32),
    }
    assert fedatt.norms(update).tolist() == [5.0, 3.0]
    assert fedatt.norms(update, "spectral").tolist() == [4.0, 3.0]


# FedRS, FedLC, MOON, FedProx, SCAFFOLD


def test_fedrs_scales_missing_classes_and_leaves_the_bias_outside() -> None:
    s = fedrs.restriction(np.array([5, 0, 1]), 0.5)
    assert s.tolist() == [1.0, 0.5, 1.0]
    layer = nn.Linear(1, 3)
    layer.weight.data, layer.bias.data = (
        torch.tensor([[2.0], [4.0], [6.0]]),
        torch.tensor([0.1, 0.2, 0.3]),
    )
    assert fedrs.restricted_logits(layer, torch.tensor([[1.0]]), s)[0].tolist() == pytest.approx(
        [2.1, 2.2, 6.3]
    )
    bare = nn.Linear(1, 3, bias=False)
    bare.weight.data = layer.weight.data
    assert fedrs.restricted_logits(bare, torch.tensor([[1.0]]), s)[0].tolist() == pytest.approx(
        [2.0, 2.0, 6.0]
    )


def test_fedlc_margins_are_larger_for_rare_classes_and_missing_ones_leave_the_softmax() -> None:
    m = fedlc.margins(np.array([16, 1, 0]), 0.5)
    assert m.tolist() == pytest.approx([0.25, 0.5, math.inf])
    value = F.cross_entropy(torch.zeros(1, 3) - m, torch.tensor([0]))
    # e^-0.25 / (e^-0.25 + e^-0.5): the true class stays in the denominator, the missing one does
    # not stand there.
    assert value.item() == pytest.approx(
        -math.log(math.exp(-0.25) / (math.exp(-0.25) + math.exp(-0.5)))
    )


def test_moon_contrast_by_hand() -> None:
    x, g, p = torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 3.0]])
    assert float(moon.contrasts(x, g, p, 0.5).mean()) == pytest.approx(math.log(1 + math.exp(-2)))


def test_moon_contrast_with_equal_references_is_log_two_without_gradient() -> None:
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    g = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
    value = moon.contrasts(x, g, g, 0.5).mean()
    value.backward()
    assert value.item() == pytest.approx(LN2)
    assert float(gradient_of(x).abs().max()) < 1e-7


def test_proximal_term_by_hand() -> None:
    model = nn.Linear(2, 1)
    model.weight.data, model.bias.data = torch.tensor([[1.0, 2.0]]), torch.tensor([3.0])
    start = {"weight": np.zeros((1, 2), np.float32), "bias": np.array([1.0], np.float32)}
    value = fedprox.proximal(model, start, 0.1)
    assert value.item() == pytest.approx(0.05 * (1 + 4 + 4))
    value.backward()
    assert gradient_of(model.weight)[0].tolist() == pytest.approx([0.1, 0.2])  # mu (w - w_t)


def test_scaffold_correction_adds_c_minus_c_i_to_the_gradient() -> None:
    model = nn.Linear(2, 1, bias=False)
    scaffold.corrected(model, {"weight": np.array([[0.5, -0.25]], np.float32)}).backward()
    assert gradient_of(model.weight)[0].tolist() == [0.5, -0.25]
