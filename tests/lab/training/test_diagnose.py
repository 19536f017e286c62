"""A loss that is no longer finite stops the run and names step and layer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.lab.training.small import quiet, run, small
from torch import nn

from attnlab.lab.training import NonFiniteLossError, one_epoch
from attnlab.lab.training import loop as loops
from attnlab.lab.training.diagnose import non_finite_loss
from attnlab.lab.training.diagnose import offending_layer as _offending_layer
from attnlab.lab.training.finite import At, LossWatch


class Exploding(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(-x.abs() - 1)


def offending_layer(model: nn.Module, images: torch.Tensor) -> str:
    return _offending_layer(model, images, lambda: model(images))


def network(*layers: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 4), *layers, nn.Linear(4, 2))


IMAGES = torch.ones(2, 3, 2, 2)


def test_the_layer_that_makes_it() -> None:
    sentence = offending_layer(network(nn.ReLU(), Exploding(), nn.ReLU()), IMAGES)
    assert sentence.startswith(
        "The first layer whose output is not finite is '3' (Exploding); its largest input was "
    )


def test_the_layer_whose_weights_are_it() -> None:
    model = network(nn.ReLU())
    assert isinstance(model[1], nn.Linear)
    model[1].bias.data[0] = float("nan")
    assert offending_layer(model, IMAGES) == (
        "The first layer that is not finite is '1' (Linear): its bias is not, since an earlier "
        "step."
    )


def test_neither() -> None:
    assert offending_layer(network(), IMAGES * float("inf")) == (
        "The images themselves are not finite."
    )
    assert offending_layer(network(), IMAGES) == (
        "Every layer's output is finite: only the loss itself is not."
    )


def test_what_is_said_of_a_loss_that_was_seen_later() -> None:
    model = network()
    for later, said in (
        (0, ""),
        (1, " It was seen 1 step later."),
        (2, " It was seen 2 steps later."),
    ):
        error = non_finite_loss(
            model, IMAGES, lambda: model(IMAGES), float("inf"), 3, 7, 0.05, later
        )
        assert str(error).startswith(
            f"The loss is inf at step 7 of epoch 3 (learning rate 0.05).{said} Every layer's "
            f"output is finite: only the loss itself is not. The run stopped;"
        )
    error = non_finite_loss(model, IMAGES, lambda: model(IMAGES), float("inf"), 3, 7, 0.05)
    assert "It was seen" not in str(error)


def test_the_largest_input_is_that_of_the_layer_and_without_a_sign() -> None:
    model = nn.Sequential(nn.Flatten(), Exploding())
    sentence = offending_layer(model, torch.tensor([[1.0, -7.25], [2.0, 3.0]]))
    assert sentence == (
        "The first layer whose output is not finite is '1' (Exploding); its largest input was 7.25."
    )


def test_inputs_of_which_one_is_not_finite() -> None:
    model = network()
    sentence = _offending_layer(
        model, {"a": IMAGES, "b": [IMAGES * float("nan"), 3]}, lambda: model(IMAGES)
    )
    assert sentence == "The images themselves are not finite."


def test_no_hook_survives() -> None:
    model = network(Exploding())
    offending_layer(model, IMAGES)
    assert not any(module._forward_hooks for module in model.modules())


def test_a_run_that_diverges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second epoch on a rate that blows the weights up: the first is saved."""
    rate = one_epoch.learning_rate
    monkeypatch.setattr(
        one_epoch, "learning_rate", lambda recipe, epoch: 1e30 if epoch else rate(recipe, epoch)
    )
    with pytest.raises(NonFiniteLossError) as caught:
        run(small(3), tmp_path)
    message = str(caught.value)
    assert message.startswith("The loss is nan at step 2 of epoch 2 (learning rate 1e+30). The fir")
    assert "output is not finite is 'layer1.0.conv1' (Conv2d)" in message
    assert message.endswith(
        "The run stopped; the last checkpoint is from before. Lower lr, add warmup_epochs or clip, "
        "or use precision '32-true'."
    )
    saved = [path.name[:10] for path in (tmp_path / "checkpoints").iterdir()]
    assert saved == ["epoch-0001"]
    assert not (tmp_path / "result.json").exists()


@pytest.mark.parametrize("save_steps", [None, 1])
def test_losses_that_are_asked_for_together(
    save_steps: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on an accelerator: the step is named, and what is saved is from before."""
    rate = one_epoch.learning_rate
    monkeypatch.setattr(
        one_epoch, "learning_rate", lambda recipe, epoch: 1e30 if epoch else rate(recipe, epoch)
    )
    monkeypatch.setattr(one_epoch.LossWatch, "of", lambda _: one_epoch.LossWatch(50))
    with pytest.raises(NonFiniteLossError) as caught:
        loops.train(small(3), tmp_path, threads=1, progress=quiet, save_steps=save_steps)
    message = str(caught.value)
    assert message.startswith("The loss is nan at step 2 of epoch 2 (learning rate 1e+30). ")
    assert ("It was seen" in message) == (save_steps is None)
    saved = sorted((tmp_path / "checkpoints").iterdir())
    for file in saved:
        weights = torch.load(file, weights_only=True)["network"]
        assert all(torch.isfinite(each).all() for each in weights.values())
    assert not (tmp_path / "result.json").exists()


def test_the_loop_asks_no_tensor_for_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of times does not grow with the number of steps."""
    counts = []
    monkeypatch.setattr(one_epoch.LossWatch, "of", lambda _: one_epoch.LossWatch(50))
    for number, batch_size in enumerate((30, 6)):
        asked: list[str] = []
        with monkeypatch.context() as patch:
            for name in ("item", "tolist", "__float__", "__bool__", "__int__"):
                really = getattr(torch.Tensor, name)
                patch.setattr(
                    torch.Tensor,
                    name,
                    lambda self, really=really, name=name, asked=asked: (
                        asked.append(name) or really(self)
                    ),
                )
            epoch = loops.train_epoch

            def counted(*given, epoch=epoch, asked=asked):  # type: ignore[no-untyped-def]
                asked.clear()
                found = epoch(*given)
                counts.append(len(asked))
                return found

            patch.setattr(loops, "train_epoch", counted)
            run(small(1, {"batch_size": batch_size}), tmp_path / str(number))
    assert counts[0] == counts[1]


def test_outputs_that_are_not_finite_on_test_images_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss of the last step was finite; the weights after it are not."""
    epoch = loops.train_epoch

    def broken(fabric, config, state, *rest):  # type: ignore[no-untyped-def]
        record = epoch(fabric, config, state, *rest)
        state.network.fc.bias.data[0] = float("nan")
        return record

    monkeypatch.setattr(loops, "train_epoch", broken)
    with pytest.raises(NonFiniteLossError) as caught:
        run(small(1), tmp_path)
    assert str(caught.value) == (
        "test loss is nan on the 30 test images of 'digits': the network's outputs are not finite "
        "there, though the training loss is. Lower lr, or add warmup_epochs or clip."
    )


def test_losses_of_an_accelerator_are_looked_at_together() -> None:
    """The error is of the first that is not finite, and says how many steps ago it was; what was
    looked at is not looked at again."""
    told: list[tuple[float, int, int]] = []

    def diagnosis(value: float, at: At, later: int) -> NonFiniteLossError:
        told.append((value, at.step, later))
        return NonFiniteLossError("lost")

    watch = LossWatch(3)
    for step in (1, 2, 3):
        watch.see(torch.tensor(1.0), At(1, step, 0.1), diagnosis)
    watch.look()
    for step, loss in ((4, 1.0), (5, float("inf"))):
        watch.see(torch.tensor(loss), At(1, step, 0.1), diagnosis)
    assert told == []
    with pytest.raises(NonFiniteLossError, match="lost"):
        watch.see(torch.tensor(float("nan")), At(1, 6, 0.1), diagnosis)
    assert told == [(float("inf"), 5, 1)]
    every = LossWatch.of(torch.device("cpu"))
    with pytest.raises(NonFiniteLossError):
        every.see(torch.tensor(float("nan")), At(1, 1, 0.1), diagnosis)
    assert told[1][1:] == (1, 0)
    later = LossWatch.of(torch.device("meta"))
    for step in range(1, 50):
        later.see(torch.tensor(float("nan")), At(1, step, 0.1), diagnosis)
    assert len(told) == 2
    with pytest.raises(NonFiniteLossError):
        later.see(torch.tensor(1.0), At(1, 50, 0.1), diagnosis)
    assert told[2][1:] == (1, 49)
