"""What a run found; result.json of its directory."""

from __future__ import annotations

from pathlib import Path

from attnlab._strict import Strict


class StepStiffness(Strict):
    """NSI of one residual step."""

    label: str
    mean: float
    spread: float
    gated: bool


class GateStatistics(Strict):
    """One gate over images and channels. The stripe observation is that `image_spread` is far
    below `channel_spread`: the gate hardly depends on the image."""

    label: str
    mean: float
    image_spread: float
    """Standard deviation over images, mean over channels."""
    channel_spread: float
    """Standard deviation over channels of the mean over images."""


class RunResult(Strict):
    """The result is the last epoch of the recipe. The best epoch was chosen by looking at the test
    images, so it is there for comparison with papers that report it, and never the result."""

    run_id: str
    label: str
    epochs: int
    top1: float
    """Share of test images, last epoch."""
    top5: float | None
    """None where there are no more than five classes."""
    test_loss: float
    train_loss: float
    best_top1: float
    """Optimistic: the best epoch by test accuracy."""
    best_epoch: int
    """From 1."""
    parameters: int
    macs: int
    """Multiply-accumulates for one image."""
    train_images_per_second: float
    """Median over epochs, data included, evaluation left out."""
    inference_images_per_second: float | None
    data_share: float
    """Share of the training time that was spent on waiting for data."""
    seconds: float
    """All epochs with their evaluation."""
    tns: float | None = None
    """None without residual steps, or where it was not asked for."""
    tns_spread: float | None = None
    nsi: tuple[StepStiffness, ...] = ()
    gates: tuple[GateStatistics, ...] = ()
    folded_top1: float | None = None
    """None where nothing folds."""
    fold_error: float | None = None
    """Relative change of the output when folded in float64."""
    folded_parameters: int | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def load(cls, directory: str | Path) -> RunResult:
        """The result in a run's directory."""
        return cls(**_read(Path(directory) / "result.json"))


def _read(path: Path) -> dict:
    import json

    from attnlab._errors import InputError

    if not path.is_file():
        raise InputError(f"There is no {path}: the run is not finished, or not a run's directory.")
    loaded: dict = json.loads(path.read_text(encoding="utf-8"))
    return loaded
