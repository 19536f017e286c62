"""Which of Ultralytics' settings a study may choose, and which are the run's own."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from attnlab._errors import OptionError, nearest
from attnlab.bridges.yolo_study.kinds import STRIDE, Kind
from attnlab.bridges.yolo_study.offline import import_offline
from attnlab.data import Value

_BY_THE_RUN = {
    **dict.fromkeys(("epochs", "batch"), "epochs and batch_size of the recipe"),
    **dict.fromkeys(("data", "fraction", "classes", "single_cls", "split"), "the study's data"),
    **dict.fromkeys(("model", "pretrained"), "the study's backbone"),
    "seed": "the study's seeds",
    **dict.fromkeys(
        ("time", "patience"), "no setting: all runs of a study have the same number of epochs"
    ),
    **dict.fromkeys(("resume", "save", "save_period"), "no setting: a run is taken up by itself"),
    **dict.fromkeys(("project", "name", "exist_ok", "save_dir"), "the run's folder"),
    **dict.fromkeys(("val", "plots"), "no setting: every epoch is validated, and pages are ours"),
}


def check_settings(given: Mapping[str, Value], own: Sequence[str], kind: Kind, what: str) -> None:
    """Refuse a setting that no study may choose, or that does nothing for networks of this kind;
    `own` are the task's own options."""
    valid = [*own, *kind.settings, *kind.validation]
    for name in given:
        if name in _BY_THE_RUN:
            raise OptionError(
                f"{what} takes no {name!r}: this is decided by {_BY_THE_RUN[name]}."
                if not _BY_THE_RUN[name].startswith("no ")
                else f"{what} takes no {name!r}: it is {_BY_THE_RUN[name]}."
            )
        if name not in valid and name in _theirs():
            raise OptionError(
                f"{what} takes no {name!r}, a setting of Ultralytics: it does nothing here, or "
                f"belongs to another of its commands. It takes: {', '.join(valid)}."
            )
        if name not in valid:
            raise OptionError(
                f"{what} has no option {name!r}.{nearest(name, valid)} It takes: "
                f"{', '.join(valid)}."
            )


def _theirs() -> Collection[str]:
    """The names of all settings of Ultralytics; none if it is not installed. It is imported only to
    tell what is wrong."""
    try:
        import_offline()
    except OptionError:
        return ()
    from ultralytics.cfg import DEFAULT_CFG_DICT

    found: Collection[str] = DEFAULT_CFG_DICT.keys()
    return found


def check_size(side: object) -> None:
    """Refuse a side of images that Ultralytics would change."""
    if not isinstance(side, int) or isinstance(side, bool) or side < STRIDE or side % STRIDE:
        whole = side if isinstance(side, int | float) else STRIDE
        raise OptionError(
            f"Expected imgsz to be a multiple of {STRIDE} but got {side!r}: Ultralytics would "
            f"take {max(1, math.ceil(whole / STRIDE)) * STRIDE}."
        )


def check_their_values(given: Mapping[str, Value], what: str) -> None:
    """Refuse values that Ultralytics refuses; it must be imported."""
    from ultralytics.cfg import get_cfg

    try:
        get_cfg(overrides=dict(given))
    except (TypeError, ValueError, SyntaxError) as error:
        raise OptionError(f"{what}: {error}") from None
    devices = str(given.get("device", ""))
    if "," in devices:
        raise OptionError(
            f"{what} trains a run in one process but device = {devices!r} names several. Name "
            f"one; several runs of a study train beside each other."
        )
