"""Ultralytics without a network: no update is looked for, no font or weights are fetched, no event
is sent, no tracker is started, and the settings file of the user is neither read nor written."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from attnlab._errors import OptionError
from attnlab._folders import cache_folder

_OFF = ("sync", "clearml", "comet", "dvc", "mlflow", "raytune", "tensorboard", "wandb")
"""Settings of theirs that send something, or start another program."""


def import_offline() -> None:
    """Import Ultralytics, or raise `OptionError`. If it was not imported before, it finds a folder
    of ours for its settings, and that there is no network."""
    if "ultralytics" not in sys.modules:
        os.environ["YOLO_OFFLINE"] = "True"
        os.environ["YOLO_AUTOINSTALL"] = "False"
        if "YOLO_CONFIG_DIR" not in os.environ:
            folder = cache_folder() / "ultralytics" / "config"
            folder.mkdir(parents=True, exist_ok=True)
            os.environ["YOLO_CONFIG_DIR"] = str(folder)
    try:
        import attnlab.bridges.ultralytics  # noqa: F401 (lets networks keep gates)
    except ImportError as error:
        raise OptionError(
            f"Task 'ultralytics' needs Ultralytics, which cannot be imported ({error}). pip "
            f'install "attnlab[ultralytics]" installs it.'
        ) from error


@contextmanager
def offline(*, quiet: bool = True) -> Iterator[None]:
    """Ultralytics with all of this off, also if it was imported online before; as before
    afterwards. `quiet`: only its warnings are shown."""
    import_offline()
    from ultralytics import utils
    from ultralytics.data import utils as data_utils
    from ultralytics.utils import LOGGER, SETTINGS
    from ultralytics.utils.events import events

    before = {name: SETTINGS[name] for name in _OFF if name in SETTINGS}
    level = LOGGER.level
    online, enabled, check_font = utils.ONLINE, events.enabled, data_utils.check_font
    try:
        # Not by their own methods, which write the file.
        dict.update(SETTINGS, dict.fromkeys(before, False))
        utils.ONLINE, events.enabled = False, False
        data_utils.check_font = lambda *_, **__: None
        if quiet:
            LOGGER.setLevel(max(level, logging.WARNING))
        yield
    finally:
        LOGGER.setLevel(level)
        dict.update(SETTINGS, before)
        utils.ONLINE, events.enabled = online, enabled
        data_utils.check_font = check_font
