"""The result of a network on corrupted images."""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on

if TYPE_CHECKING:
    from attnlab.instruments.corruptions.measure import measure_corruptions as measure_corruptions
    from attnlab.instruments.corruptions.result import CorruptionsResult as CorruptionsResult

__getattr__, __dir__ = handed_on(
    __name__, measure=("measure_corruptions",), result=("CorruptionsResult",)
)
