"""Pictures of one's own through the network of a finished run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attnlab._errors import InputError, OptionError
from attnlab._files import write_whole
from attnlab.data import Batch, Facts
from attnlab.data.pictures import as_tensor, decoded, png, scaled
from attnlab.subject.run import load_network, read_facts, read_task
from attnlab.surgery.folding import has_constant_gates
from attnlab.surgery.folding.fold import fold
from attnlab.tasks import Task, build_task


class Applied(NamedTuple):
    """One picture, and what was written of it."""

    picture: Path
    written: Path
    folded: Path | None
    """Written by the network without its gates, if these are constant."""
    folded_change: float | None
    """The largest difference of a pixel (0 to 1) that folding makes, before rounding."""


def apply_run(
    run: str | Path, pictures: Sequence[str | Path], out: str | Path, *, size: int | None = None
) -> list[Applied]:
    """Write what the network of `run` makes of each of `pictures`, one at a time, to
    `out`/NAME.png; where its gates are constant, also to `out`/NAME-folded.png without them.

    Args:
        run: the folder of a finished run whose task makes pictures.
        pictures: image files.
        out: folder to write to.
        size: what the short side of each is scaled to; as it is when None.
    """
    files = _files(pictures)
    if size is not None and size < 1:
        raise OptionError(f"Expected size to be at least 1 but got {size}.")
    folder = Path(run)
    task, facts = _drawing_task(folder)
    network = load_network(folder)
    plain: nn.Module | None = None
    done = []
    for file in files:
        given = _inputs(file, size, facts)
        made = _made(task, network, given, file)
        if plain is None and has_constant_gates(network):
            plain, _ = fold(network, example=given)
        written = write_whole(Path(out) / f"{file.stem}.png", png(made))
        if plain is None:
            done.append(Applied(file, written, None, None))
            continue
        again = _made(task, plain, given, file)
        beside = write_whole(Path(out) / f"{file.stem}-folded.png", png(again))
        done.append(Applied(file, written, beside, float((made - again).abs().max())))
    return done


def _drawing_task(folder: Path) -> tuple[Task, Facts]:
    """The task of a run and what its data were; refused where it makes no pictures."""
    config, facts = read_task(folder), read_facts(folder)
    task = build_task(config, facts)
    if type(task).pictures is Task.pictures:
        raise InputError(
            f"{str(folder)!r} is a run of the task {type(task).__name__}, which makes no pictures. "
            f"Expected one of `attnlab style train` or of a study of style transfer."
        )
    return task, facts


def _files(pictures: Sequence[str | Path]) -> list[Path]:
    """Before any work: all must be there, and no two may be written to one file."""
    files = [Path(picture) for picture in pictures]
    if not files:
        raise InputError("Expected at least one picture but got none.")
    for file in files:
        if not file.is_file():
            raise InputError(f"There is no picture {str(file)!r}. Expected image files.")
    names = [name for file in files for name in (file.stem, f"{file.stem}-folded")]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(
            f"Two of the pictures would be written to {twice[0]}.png. Give them one after the "
            f"other, to different folders."
        )
    return files


def _inputs(file: Path, size: int | None, facts: Facts) -> Tensor:
    picture = decoded(file)
    pixels = as_tensor(picture if size is None else scaled(picture, size))
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (facts.mean, facts.std))
    return ((pixels - mean) / std)[None]


def _made(task: Task, network: nn.Module, given: Tensor, file: Path) -> Tensor:
    try:
        with torch.inference_mode():
            found = task.pictures(network, Batch(given, None))
    except InputError as error:
        raise InputError(f"{str(file)!r}: {error}") from error
    assert found is not None
    return found.outputs[0]
