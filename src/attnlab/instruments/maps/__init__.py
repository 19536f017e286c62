"""Attention maps: does a head's map depend on the input?"""

from attnlab.instruments.maps.measure import mean_maps as mean_maps
from attnlab.instruments.maps.result import HeadMap as HeadMap
from attnlab.instruments.maps.result import LayerMaps as LayerMaps
from attnlab.instruments.maps.result import MapsResult as MapsResult
