"""Pictures whose style is learned: two made in code, or a file of the user's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from attnlab._errors import InputError, nearest
from attnlab._seeds import stream
from attnlab.data.decode import decoded
from attnlab.data.pictures import as_tensor, scaled

SIDE = 256
SMALLEST = 32
"""Of a picture's short side: less has no texture to learn."""
_SUPERSAMPLED = 2
"""Drawn larger by this and scaled down, so that edges are smooth."""

_DUSK = ("#0b1f4b", "#1f4e8c", "#3f8fb8", "#f2c14e", "#f08a24", "#c8412b", "#f7e8c0")
_GLASS = ("#b3212e", "#e0702a", "#f0c23b", "#2f7d4f", "#1f5fa8", "#5b2d82", "#e8e0c8")


def strokes() -> Image.Image:
    """Thick brush strokes along a field of two whirls, dark to light."""
    numbers = stream(0, "painting", "strokes")
    side = SIDE * _SUPERSAMPLED
    canvas = Image.new("RGB", (side, side), _DUSK[0])
    draw = ImageDraw.Draw(canvas)
    whirls = ((0.3, 0.35, 1.0), (0.72, 0.62, -1.0))
    for x, y, colour, length, width in torch.rand(2600, 5, generator=numbers).tolist():
        line = [(x * side, y * side)]
        for _ in range(6 + int(10 * length)):
            angle = _direction(line[-1][0] / side, line[-1][1] / side, whirls)
            line.append((line[-1][0] + 7 * math.cos(angle), line[-1][1] + 7 * math.sin(angle)))
        # Colours follow the height, with some chance: a sky over a field.
        place = min(0.999, max(0.0, 0.75 * y + 0.5 * (colour - 0.5) + 0.1))
        draw.line(
            line, fill=_DUSK[int(place * len(_DUSK))], width=5 + int(9 * width), joint="curve"
        )
    return canvas.resize((SIDE, SIDE), Image.Resampling.LANCZOS)


def glass() -> Image.Image:
    """Stained glass: cells of few colours between dark lines."""
    numbers = stream(0, "painting", "glass")
    points = SIDE * torch.rand(90, 2, generator=numbers).numpy()
    colours = torch.randint(len(_GLASS), (90,), generator=numbers).numpy()
    rows, columns = np.mgrid[:SIDE, :SIDE]
    places = np.stack([columns, rows], axis=-1)[:, :, None, :] + 0.5
    distance = np.sqrt(((places - points) ** 2).sum(-1))
    first, second = np.partition(distance, 1, axis=2)[:, :, :2].transpose(2, 0, 1)
    palette = np.array([_rgb(colour) for colour in _GLASS], dtype=np.float64)
    light = 1.1 - 0.4 * first / first.max()
    cells = palette[colours[distance.argmin(2)]] * light[..., None]
    lead = np.clip((second - first - 3) / 2, 0, 1)[..., None]
    return Image.fromarray(np.clip(cells * lead + 24 * (1 - lead), 0, 255).astype(np.uint8))


PAINTINGS: dict[str, Callable[[], Image.Image]] = {"strokes": strokes, "glass": glass}
"""Those made in code, by name."""


def painting_file(style: str) -> Path | None:
    """The file that `style` names; None where it is one of `PAINTINGS`."""
    if style in PAINTINGS:
        return None
    path = Path(style)
    if not path.is_file():
        raise InputError(
            f"There is no style picture {style!r}.{nearest(style, PAINTINGS)} Expected the path of "
            f"a picture, or one of attnlab's own: {', '.join(PAINTINGS)}."
        )
    return path


def read_painting(style: str, size: int) -> Tensor:
    """The picture (3, H, W), pixels 0 to 1, its short side scaled to `size`."""
    file = painting_file(style)
    picture = PAINTINGS[style]() if file is None else decoded(file)
    if min(picture.size) < SMALLEST:
        raise InputError(
            f"The style picture {style!r} is {picture.width}×{picture.height}, expected at least "
            f"{SMALLEST}×{SMALLEST}: there is no texture to learn in less."
        )
    return as_tensor(scaled(picture, size))


def _direction(x: float, y: float, whirls: tuple[tuple[float, float, float], ...]) -> float:
    across, along = 0.6, 0.15
    for centre_x, centre_y, turn in whirls:
        dx, dy = x - centre_x, y - centre_y
        weight = turn / (0.04 + dx * dx + dy * dy)
        across, along = across - weight * dy, along + weight * dx
    return math.atan2(along, across)


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))
