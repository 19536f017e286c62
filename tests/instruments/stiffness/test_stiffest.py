"""The stiffest step, by hand."""

from __future__ import annotations

import pytest
import torch

from attnlab import _errors
from attnlab.instruments.stiffness.total import stiffest, tns


def test_by_hand():
    stages = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    # Rectangles: step 3 has 4·1 = 4, step 6 has 6·0.5 = 3, the union 5 (see test_total).
    found = stiffest(torch.tensor([[9.0, 1, 1, 4, 9, 2, 6, 4]]), stages)
    assert found.step.item() == 3
    assert found.share.item() == pytest.approx(4 / 5)


def test_share_is_one_for_a_single_stage_and_never_more():
    z = torch.rand(40, 6).double()
    assert torch.allclose(stiffest(z, torch.zeros(6).long()).share, torch.ones(40).double())
    share = stiffest(z, torch.tensor([0, 0, 0, 1, 1, 1])).share
    assert ((share > 0) & (share <= 1 + 1e-12)).all()


def test_without_stiffness_the_largest_nsi_and_no_share():
    stages = torch.tensor([0, 0, 1, 1])
    z = torch.tensor([[5.0, 1.0, 5.0, 2.0]])
    assert tns(z, stages).item() == 0
    found = stiffest(z, stages)
    assert found.step.item() == 3
    assert found.share.isnan()


def test_nothing_kept():
    with pytest.raises(_errors.InputError) as error:
        stiffest(torch.rand(2, 3), torch.tensor([0, 1, 2]))
    assert str(error.value) == "No stage keeps a step: every stage has only its first."
