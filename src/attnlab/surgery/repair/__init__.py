"""Repair a network that was changed: the original teaches it, on images without labels."""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on

if TYPE_CHECKING:
    from attnlab.surgery.repair.distillation import Distil as Distil
    from attnlab.surgery.repair.distillation import Lesson as Lesson
    from attnlab.surgery.repair.distillation import distil as distil
    from attnlab.surgery.repair.result import Repair as Repair

__getattr__, __dir__ = handed_on(
    __name__, distillation=("Distil", "Lesson", "distil"), result=("Repair",)
)
