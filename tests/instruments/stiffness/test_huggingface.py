"""Hugging Face encoders, built from a configuration: no download."""

from __future__ import annotations

import pytest
import torch
import transformers

from attnlab.instruments.stiffness.capture import capture
from attnlab.instruments.stiffness.measure import stiffness

SMALL = {
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 48,
}


@pytest.mark.parametrize("kind", ["ViT", "DeiT", "Dinov2", "Beit"])
def test_vision_encoders(kind):
    configuration = getattr(transformers, f"{kind}Config")(image_size=32, patch_size=8, **SMALL)
    model = getattr(transformers, f"{kind}Model")(configuration).eval()
    with capture(model) as steps, torch.no_grad():
        model(torch.randn(2, 3, 32, 32))
        assert steps.norms.shortcut.shape == (2, 6)
        assert steps.plan.describe() == "1 stage of 6 steps"


def test_text_encoder_from_dictionaries():
    model = transformers.BertModel(transformers.BertConfig(vocab_size=50, **SMALL)).eval()
    batches = [{"input_ids": torch.randint(0, 50, (4, 7))} for _ in range(2)]
    result = stiffness(model, batches)
    assert result.inputs == 8
    assert result.plan == "1 stage of 6 steps"
    assert result.tns > 0
