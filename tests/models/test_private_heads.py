"""What a head reads that is trained with noise: of words the language model's own encoder, of distant
sentences what stands beside the entities.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from config.errors import UserError
from config.load import load
from methods.common.training import parameters
from methods.tasks.load import load_task
from models.tagger import Tagger
from tests.models.test_tuning import SMALL, _task

pytestmark = pytest.mark.slow


def test_under_a_budget_entities_have_a_head_on_the_language_models_encoder() -> None:
    private = {"dp": "record", "epsilon": "8"}
    task = _task("ner", **private)
    model = task.new_model(1)
    assert isinstance(model, Tagger) and model.standard is not None
    assert model.backbone.config.is_encoder_decoder  # the built-in language model, not the encoder
    assert set(parameters(model)) == {"classifier.weight", "classifier.bias"}
    # what is standardised by built-in text is of like size in the task's own words
    batch = task.batch(task.subset(np.arange(30)), np.arange(30))
    words = model.read(batch.inputs.ids, batch.inputs.real)[batch.inputs.first]
    assert abs(float(words.mean())) < 0.3 and 0.5 < float(words.std()) < 2
    # features that were computed once are those that the encoder gives
    pieces = torch.tensor(task.batch(task.subset(np.arange(1)), np.arange(1)).inputs.ids.shape)
    assert pieces[-1] == model.backbone.config.d_model
    for words_of_user in ({"train": "bias"}, {"options.network": "pointer", "train": "bias"}):
        assert not isinstance(_task("ner", **private, **words_of_user).new_model(0), Tagger)
    adversarial = SMALL["ner"] | {"method": "fadv_ganin"} | private
    assert not isinstance(load_task(load(None, adversarial)).new_model(0), Tagger)
    with pytest.raises(UserError, match="SEQ2SEQ"):
        _task("ner", **private, encoder="random", seq2seq="random")


def test_sums_of_words_leave_out_the_entities_and_what_public_text_hardly_has() -> None:
    task = _task("distant", dp="record", epsilon="8")
    model = task.new_model(0)
    batch = task.batch(task.subset(np.arange(20)), np.arange(20))
    before = model.pooled(*batch.inputs)
    other = batch.words.clone()
    rows = torch.arange(20)
    other[rows, batch.head_at] = other[rows, batch.tail_at] = 5
    assert torch.equal(before, model.pooled(other, *batch.inputs[1:]))
    silent = ~model.word.weight.any(dim=1)
    assert 0.1 < float(silent.float().mean()) < 0.95
