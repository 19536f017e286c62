"""Which classes a network takes for which."""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on

if TYPE_CHECKING:
    from attnlab.instruments.classes.measure import measure_classes as measure_classes
    from attnlab.instruments.classes.result import ClassesResult as ClassesResult

__getattr__, __dir__ = handed_on(__name__, measure=("measure_classes",), result=("ClassesResult",))
