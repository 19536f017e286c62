"""Photographs that EXIF says to turn before they are shown. Cameras store them lying; programs in
which boxes and masks are drawn show them upright. So an annotation belongs to one of the two, and
its size says to which."""

from __future__ import annotations

from PIL import ExifTags, Image

from attnlab._errors import InputError
from attnlab._words import counted

_LYING = 5
"""From this orientation on, height and width change places."""


def orientation(image: Image.Image) -> int:
    """1 if the picture is shown as it is stored, else how it is turned, up to 8. No pixel is read:
    an orientation that a PNG has after its pixels does not count."""
    if image.format == "PNG" and "exif" not in image.info:
        return 1
    found = image.getexif().get(ExifTags.Base.Orientation, 1)
    return found if found in range(2, 9) else 1


def shown_size(image: Image.Image) -> tuple[int, int]:
    """Width and height of the picture as it is shown."""
    width, height = image.size
    return (height, width) if orientation(image) >= _LYING else (width, height)


class Orientations:
    """Whether the annotations of a data set are of pictures as they are shown or as they are
    stored."""

    def __init__(self) -> None:
        self._shown: object = None
        self._stored: object = None
        self._turned = 0

    def fits(self, source: object, image: Image.Image, size: tuple[int, int]) -> bool:
        """Whether an annotation of this width and height is one of the image, shown or stored;
        `source` is what messages call it."""
        if orientation(image) == 1:
            return size == image.size
        self._turned += 1
        shown = shown_size(image)
        if shown != image.size:
            if size == shown:
                self._shown = self._shown or source
            elif size == image.size:
                self._stored = self._stored or source
        return size in (shown, image.size)

    def as_shown(self, what: str) -> bool:
        """The answer for all images of a part; sizes that tell nothing count as shown, which is
        how pictures are looked at when they are annotated."""
        if self._shown and self._stored:
            raise InputError(
                f"{what}: EXIF turns {str(self._shown)!r}, whose annotation has the size of the "
                f"picture as it is shown, and {str(self._stored)!r}, whose annotation has the size "
                f"as it is stored. Expected one of the two for all: store the pictures upright, "
                f"without an orientation."
            )
        return self._stored is None

    def notes(self, what: str) -> tuple[str, ...]:
        """Return what a reader of the results should know."""
        if not self._turned:
            return ()
        how = "are shown" if self.as_shown(what) else "are stored, and are not turned"
        return (
            f"{what}: EXIF turns {counted(self._turned, 'image')}; annotations are taken to be of "
            f"images as they {how}.",
        )
