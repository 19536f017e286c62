"""Attention maps: does a head's map depend on the input?"""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on

if TYPE_CHECKING:
    from attnlab.instruments.maps.measure import mean_maps as mean_maps
    from attnlab.instruments.maps.measure import sinks as sinks
    from attnlab.instruments.maps.result import HeadMap as HeadMap
    from attnlab.instruments.maps.result import LayerMaps as LayerMaps
    from attnlab.instruments.maps.result import MapsResult as MapsResult

__getattr__, __dir__ = handed_on(
    __name__,
    measure=("mean_maps", "sinks"),
    result=("HeadMap", "LayerMaps", "MapsResult"),
)
