"""Noise between the normalisation of a norm and its affine: constant, random, or of the batch."""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on

if TYPE_CHECKING:
    from attnlab.surgery.noise.attaching import NoiseReceipt as NoiseReceipt
    from attnlab.surgery.noise.attaching import attach as attach
    from attnlab.surgery.noise.attaching import carried as carried
    from attnlab.surgery.noise.attaching import detach as detach
    from attnlab.surgery.noise.attaching import noisy as noisy
    from attnlab.surgery.noise.config import NoiseConfig as NoiseConfig
    from attnlab.surgery.noise.kinds import During as During
    from attnlab.surgery.noise.kinds import Noise as Noise
    from attnlab.surgery.noise.kinds import batch as batch
    from attnlab.surgery.noise.kinds import constant as constant
    from attnlab.surgery.noise.kinds import random as random

__getattr__, __dir__ = handed_on(
    __name__,
    attaching=("NoiseReceipt", "attach", "carried", "detach", "noisy"),
    config=("NoiseConfig",),
    kinds=("During", "Noise", "batch", "constant", "random"),
)
