"""`attnlab yolo`: Ultralytics with gates, from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from attnlab.cli._show import print_python
from attnlab.cli.driver import in_python


def yolo(
    mode: Annotated[Literal["train", "val", "export"], tyro.conf.Positional],
    model: Annotated[str, tyro.conf.Positional],
    settings: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    gate: str | None = None,
    where: str | None = None,
    start: Literal["paper", "identity"] = "paper",
    place: Literal["auto", "branch", "norm", "heads"] = "auto",
) -> None:
    """Train, validate or export a network of Ultralytics with gates in it. Their settings are given
    as their own command takes them, key=value.

    Examples:
      attnlab yolo train yolo11n.pt --gate se --start identity data=coco8.yaml epochs=3
      attnlab yolo train yolo11n.yaml --gate asr:se data=coco8.yaml epochs=100 seed=1
      attnlab yolo train runs/detect/train/weights/last.pt resume=True
      attnlab yolo val runs/detect/train/weights/best.pt data=coco8.yaml
      attnlab yolo export runs/detect/train/weights/best.pt format=onnx

    Args:
        mode: train, val or export.
        model: a .pt file, which may have gates already, or a .yaml.
        settings: key=value, as for the yolo command.
        gate: what to put into the steps; nothing where the file has gates.
        where: which steps, as for attnlab try --where.
        start: the paper's first values, or a start that leaves the output as it is.
        place: where on the branch of a step.
    """
    found = _settings(settings)
    yolo = _package()(model)
    lines = ["from ultralytics import YOLO", f"yolo = YOLO({model!r})"]
    from attnlab.bridges.ultralytics import with_attention  # also lets networks keep gates

    if gate is not None:
        chosen = {} if where is None else {"where": where}
        chosen |= {} if start == "paper" else {"start": start}
        chosen |= {} if place == "auto" else {"place": place}
        print(with_attention(yolo, gate, **chosen))
        lines.insert(1, "from attnlab.bridges.ultralytics import with_attention")
        lines.append(f"print(with_attention(yolo, {gate!r}{in_python(chosen)}))")
    result = getattr(yolo, mode)(**found)
    given = ", ".join(f"{name}={value!r}" for name, value in found.items())
    lines.append(f"yolo.{mode}({given})")
    if mode == "train":
        print(f"wrote {Path(yolo.trainer.save_dir)}")
    elif mode == "export":
        print(f"wrote {result}")
    print()
    print_python(*lines)


def _settings(given: tuple[str, ...]) -> dict[str, Any]:
    """`epochs=3` as a number, as their command reads it."""
    import ast

    from attnlab._errors import OptionError

    found: dict[str, Any] = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals or not name.isidentifier():
            raise OptionError(
                f"Expected settings of Ultralytics as key=value, such as epochs=3, but got "
                f"{each!r}."
            )
        if name in found:
            raise OptionError(f"The setting {name!r} is given twice.")
        try:
            found[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            found[name] = text
    return found


def _package() -> Any:
    from attnlab._errors import OptionError

    try:
        from ultralytics import YOLO
    except ImportError as error:
        raise OptionError(
            f"This needs Ultralytics, which cannot be imported ({error}). pip install "
            f'"attnlab[ultralytics]" installs it.'
        ) from error
    return YOLO
