"""What a network makes of images, for people to look at."""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on

if TYPE_CHECKING:
    from attnlab.instruments.pictures.measure import draw_pictures as draw_pictures
    from attnlab.instruments.pictures.result import KeptPicture as KeptPicture
    from attnlab.instruments.pictures.result import PicturesResult as PicturesResult

__getattr__, __dir__ = handed_on(
    __name__, measure=("draw_pictures",), result=("KeptPicture", "PicturesResult")
)
