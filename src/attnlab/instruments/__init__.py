"""What is measured of a network: one folder each, with its result, its figures and its page."""

from typing import TYPE_CHECKING

from attnlab._folders import reached

if TYPE_CHECKING:
    from attnlab.instruments import classes as classes
    from attnlab.instruments import corruptions as corruptions
    from attnlab.instruments import details as details
    from attnlab.instruments import dynamics as dynamics
    from attnlab.instruments import maps as maps
    from attnlab.instruments import noise as noise
    from attnlab.instruments import pictures as pictures
    from attnlab.instruments import place as place
    from attnlab.instruments import removal as removal
    from attnlab.instruments import speed as speed
    from attnlab.instruments import stiffness as stiffness
    from attnlab.instruments import stripe as stripe

__getattr__, __dir__ = reached(
    __name__,
    "classes",
    "corruptions",
    "details",
    "dynamics",
    "maps",
    "noise",
    "pictures",
    "place",
    "removal",
    "speed",
    "stiffness",
    "stripe",
)
