"""Pictures that a finished network makes of test images, for people to look at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from attnlab._errors import FoldError
from attnlab._files import write_whole
from attnlab.data.pictures import png
from attnlab.instruments.config import MeasureConfig
from attnlab.instruments.measurement import Finding, Measurement
from attnlab.results.pictures import FOLDER, Picture
from attnlab.subject import Subject
from attnlab.surgery.folding import has_constant_gates
from attnlab.surgery.folding.fold import fold


class Pictures(Measurement):
    """One image at a time; where gates are constant, also by the folded network, with the largest
    difference of a pixel (0 to 1) before rounding."""

    name = "pictures"

    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        return {"images": config.pictures} if config.pictures else None

    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> Finding:
        made = _made(subject, subject.network, config.pictures)
        if made is None:
            what = type(subject.task).__name__
            return Finding(None, (f"The task {what} makes no pictures.",))
        folded, notes = _folded(subject, config.pictures)
        pairs = zip(made, folded or made, strict=True)
        change = max(float((a - b).abs().max()) for (_, a), (_, b) in pairs)
        stored = []
        for number, (image, picture) in enumerate(made):
            kinds = {"input": image, "output": picture}
            if folded is not None:
                kinds["folded"] = folded[number][1]
            names = {kind: f"{FOLDER}/{number}-{kind}.png" for kind in kinds}
            for kind, pixels in kinds.items():
                write_whole(folder / names[kind], png(pixels))
            stored.append(Picture(**names).model_dump())
        return Finding({"pictures": stored, "folded_change": change if folded else None}, notes)


def _folded(
    subject: Subject, number: int
) -> tuple[list[tuple[Tensor, Tensor]] | None, tuple[str, ...]]:
    if not has_constant_gates(subject.network):
        return None, ()
    try:
        plain, _ = fold(subject.network, example=next(subject.inputs(1)))
    except FoldError as error:
        return None, (f"Not folded: {str(error).splitlines()[0]}",)
    return _made(subject, plain, number), ()


def _made(subject: Subject, network: nn.Module, number: int) -> list[tuple[Tensor, Tensor]] | None:
    """(image, picture) of each of `number` test images."""
    made = []
    with torch.inference_mode():
        for batch in replace(subject, batch_size=1).batches(number):
            found = subject.learned().pictures(network, batch)
            if found is None:
                return None
            made += list(zip(found.inputs, found.outputs, strict=True))
    return made
