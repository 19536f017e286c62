"""Repair a network that was changed: the original teaches it, on images without labels."""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on

if TYPE_CHECKING:
    from attnlab.surgery.repair.distil import Distil as Distil
    from attnlab.surgery.repair.distil import Lesson as Lesson
    from attnlab.surgery.repair.distil import distil as distil
    from attnlab.surgery.repair.result import Repair as Repair

__getattr__, __dir__ = handed_on(
    __name__, distil=("Distil", "Lesson", "distil"), result=("Repair",)
)
