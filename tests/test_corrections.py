"""The stiffness and ASR papers' formulas as printed, where a counterexample can be run.

The rows are those of docs/explanation/corrections.md; the operator paper's are in
tests/evolution/test_corrections.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import attnlab
from attnlab.gates import build_gate
from attnlab.instruments.dynamics import stiffness_aware_index, stiffness_index
from attnlab.instruments.stiffness import nsi
from attnlab.surgery.insertion import attachments

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", ["claims.md", "corrections.md"])
def test_the_tests_that_the_pages_name_are_there(page: str) -> None:
    text = (ROOT / "docs" / "explanation" / page).read_text(encoding="utf-8")
    defined = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    named = re.findall(r"`(test_\w+)(…?)`", text)
    assert named
    for name, shortened in named:
        assert any(each == name or (shortened and each.startswith(name)) for each in defined), name
    for file in re.findall(r"`((?:tests|benchmarks|examples)/[\w./]+)`", text):
        assert (ROOT / file).exists(), file


def test_section24_se_needs_pooling_and_a_sigmoid() -> None:
    """W₁ ReLU(W₂ f), as printed, is a map of any values; a gate is below 1, one per channel."""
    torch.manual_seed(0)
    branch = 5 * torch.randn(2, 32, 4, 4, dtype=torch.float64)
    gate = build_gate("se", 32).double()
    first, second = (p for p in gate.parameters() if p.ndim == 2)
    printed = torch.einsum(
        "cr,brhw->bchw", second, torch.einsum("rc,bchw->brhw", first, branch).relu()
    )
    assert printed.min() < 0
    assert printed.max() > 1
    assert (printed - printed.mean((2, 3), keepdim=True)).abs().max() > 0.1
    value = gate(branch)
    assert value.shape == (2, 32, 1, 1)
    assert 0 < value.min() < value.max() < 1


def test_section24_a_small_gate_does_not_make_nsi_large() -> None:
    """Dividing the step by the gate leaves the branch: of the first step, whatever the gate."""
    torch.manual_seed(0)
    net, _ = attnlab.insert(attnlab.create("resnet20"), "ie", where="blocks:1.0")
    ((_, attachment),) = attachments(net)
    images = torch.randn(4, 3, 32, 32)
    found = {}
    for logit in (-4.0, 0.0, 4.0):
        with torch.no_grad():
            for name, parameter in attachment.gate.named_parameters():
                parameter.fill_(logit if name.endswith("bias") else 0.0)
        with attnlab.capture(net.eval()) as steps, torch.no_grad():
            net(images)
        found[logit] = {c: nsi(steps.norms, c)[:, 0] for c in ("paper", "branch")}
    for logit, values in found.items():
        torch.testing.assert_close(values["paper"], found[0.0]["paper"])
        size = torch.tensor(logit).sigmoid()
        torch.testing.assert_close(values["branch"], size * values["paper"])


def test_eq9_the_branch_is_not_the_change_where_a_relu_follows() -> None:
    torch.manual_seed(0)
    shortcut = torch.rand(4, 8)  # after a ReLU itself
    branch = torch.randn(4, 8)
    change = (shortcut + branch).relu() - shortcut
    assert (change - branch).abs().max() > 0.1
    torch.testing.assert_close(change, torch.maximum(branch, -shortcut))


def test_theorem2_fails_where_the_jacobian_is_not_symmetric() -> None:
    """u' = (v, 0): both eigenvalues are 0, so SI · √(c + Q) is 0, and SAI is not."""
    matrix = torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    state = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    assert stiffness_index(lambda u: matrix @ u, state).item() == 0
    assert stiffness_aware_index(lambda u: matrix @ u, state).item() == pytest.approx(0.8)


def test_theorem2_is_off_by_three_for_a_cubic() -> None:
    """u' = −u³: one symmetric, negative, distinct eigenvalue, so c = 1, Q = 0 and SAI "≈" SI."""
    state = torch.tensor([[0.5], [2.0], [100.0]], dtype=torch.float64)
    index = stiffness_index(lambda u: -(u**3), state)
    aware = stiffness_aware_index(lambda u: -(u**3), state)
    torch.testing.assert_close(index / aware, torch.full((3,), 3.0, dtype=torch.float64))


def test_theorem2_needs_neither_distinct_nor_negative_eigenvalues() -> None:
    torch.manual_seed(0)
    vectors = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q
    eigenvalues = torch.tensor([-7.0, 7.0, 2.0, 2.0], dtype=torch.float64)
    matrix = vectors * eigenvalues @ vectors.T
    state = torch.randn(1, 4, dtype=torch.float64)
    share = (state @ vectors).square() / state.square().sum()
    index = stiffness_index(lambda u: matrix @ u, state)
    aware = stiffness_aware_index(lambda u: matrix @ u, state)
    # c + Q = Σ λ² α² / SI², with the shares of both eigenvectors of ±SI in c.
    torch.testing.assert_close(aware, index * (eigenvalues.square() * share).sum().sqrt() / 7)


def test_asr_transformer_printed_scores_are_between_channels() -> None:
    """With tokens as columns, as in W x, (W_Q x)(W_K x)ᵀ has no tokens left."""
    width, depth, tokens = 6, 4, 10
    x = torch.randn(width, tokens)
    query, key = torch.randn(2, depth, width).unbind()
    assert ((query @ x) @ (key @ x).T).shape == (depth, depth)
    assert ((query @ x).T @ (key @ x)).shape == (tokens, tokens)


def test_asr_transformer_fold_fails_behind_an_output_projection() -> None:
    torch.manual_seed(0)
    tokens, width = 5, 8
    x = torch.randn(tokens, width, dtype=torch.float64)
    score = torch.randn(tokens, tokens, dtype=torch.float64).softmax(1)
    value, output = torch.randn(2, width, width, dtype=torch.float64).unbind()
    gate = torch.rand(width, dtype=torch.float64)
    torch.testing.assert_close((score @ x @ value.T) * gate, score @ x @ (gate[:, None] * value).T)
    right = (score @ x @ value.T @ output.T) * gate
    printed = score @ x @ (gate[:, None] * value).T @ output.T
    assert (printed - right).abs().max() > 0.1
    torch.testing.assert_close(score @ x @ value.T @ (gate[:, None] * output).T, right)


def test_asr_srm_of_a_vector_has_no_batch_and_no_variance() -> None:
    """ψ is one value per channel: SRM's BatchNorm and its standard deviation need more."""
    vector = torch.full((1, 8, 1, 1), 0.1)
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        nn.BatchNorm2d(8).train()(vector)
    with pytest.warns(UserWarning, match="degrees of freedom"):
        assert vector.flatten(2).var(2).isnan().all()
