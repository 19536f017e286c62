"""Pictures that a network makes of its test images, for people to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attnlab._errors import DoesNotApplyError, FoldError
from attnlab._files import write_whole
from attnlab.data.pictures import png
from attnlab.instruments.measurement import MeasureConfig, Measurement
from attnlab.instruments.pictures.result import KeptPicture, PicturesResult
from attnlab.residuals.example import evaluating
from attnlab.subject import Source, Subject, subject_of
from attnlab.surgery.folding import has_constant_gates
from attnlab.surgery.folding.fold import fold

FOLDER = "pictures"


class _Made(NamedTuple):
    image: Tensor
    picture: Tensor


def draw_pictures(network: Source, folder: str | Path) -> PicturesResult:
    """Write what a network makes of its images, one at a time, to `folder`/pictures; where its
    gates are constant, also what the folded network makes of them.

    Args:
        network: a network whose task makes pictures, such as a run of style transfer, as for
            `attnlab.open`.
        folder: where to write.
    """
    began = perf_counter()
    subject = subject_of(network)
    with evaluating(subject.network):
        made = _made(subject, subject.network)
        folded, notes = _folded(subject)
    kept, change = [], None
    for number, (image, picture) in enumerate(made):
        again = None if folded is None else folded[number].picture
        kept.append(_kept(Path(folder), number, image, picture, again))
        if again is not None:
            change = max(change or 0.0, float((picture - again).abs().max()))
    return subject.sign(
        PicturesResult(tuple(kept), change, notes=notes, seconds=perf_counter() - began)
    )


def _kept(
    folder: Path, number: int, image: Tensor, picture: Tensor, folded: Tensor | None
) -> KeptPicture:
    kinds = {"input": image, "output": picture}
    if folded is not None:
        kinds["folded"] = folded
    names = {kind: f"{FOLDER}/{number}-{kind}.png" for kind in kinds}
    for kind, pixels in kinds.items():
        write_whole(folder / names[kind], png(pixels))
    return KeptPicture(**names)


def _folded(subject: Subject) -> tuple[Sequence[_Made] | None, tuple[str, ...]]:
    if not has_constant_gates(subject.network):
        return None, ()
    try:
        plain, _ = fold(subject.network, example=next(replace(subject, limit=1).inputs()))
    except FoldError as error:
        return None, (f"Not folded: {str(error).splitlines()[0]}",)
    return _made(subject, plain), ()


def _made(subject: Subject, network: nn.Module) -> list[_Made]:
    """Every image with the picture that `network` makes of it."""
    made = []
    with torch.inference_mode():
        for batch in replace(subject, batch_size=1).own_batches():
            found = subject.learned().pictures(network, batch)
            if found is None:
                what = type(subject.task).__name__
                raise DoesNotApplyError(f"The task {what} makes no pictures.")
            pairs = zip(found.inputs, found.outputs, strict=True)
            made += [_Made(image, picture) for image, picture in pairs]
    return made


class PicturesMeasurement(Measurement):
    """What the network makes of some test images, where its task makes pictures."""

    name = "pictures"

    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        return {"images": config.pictures} if config.pictures else None

    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> PicturesResult:
        return draw_pictures(replace(subject, limit=config.pictures), folder)
