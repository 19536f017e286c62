"""What lies beside a run's JSON files, tensors and pictures: read, or refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attnlab.results.damage import DamagedFileError, reading


def check_tensors(path: Path, remedy: str) -> None:
    """Whether the size of the file fits what it says that it holds; the numbers are not read."""
    from safetensors import safe_open

    with _tensors(path, remedy), safe_open(path, "np"):
        pass


def check_picture(path: Path, remedy: str) -> None:
    from PIL import Image

    if not path.is_file():
        raise DamagedFileError(path, "it is not there", remedy)
    try:
        with Image.open(path) as picture:
            picture.verify()
    # ImportError: Ultralytics, once imported, looks for a package that reads what Pillow does not.
    except (OSError, SyntaxError, ValueError, ImportError, Image.DecompressionBombError):
        raise DamagedFileError(path, "it is not a whole picture", remedy) from None


@contextmanager
def _tensors(path: Path, remedy: str) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        with reading(path, remedy):
            yield
    except SafetensorError as error:
        raise DamagedFileError(path, str(error).rstrip("."), remedy) from None
