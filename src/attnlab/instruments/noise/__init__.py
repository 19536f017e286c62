"""How much the result of a network falls when noise is added inside its norms."""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on

if TYPE_CHECKING:
    from attnlab.instruments.noise.compare import compare_noise as compare_noise
    from attnlab.instruments.noise.measure import noise_response as noise_response
    from attnlab.instruments.noise.result import NoiseCurve as NoiseCurve
    from attnlab.instruments.noise.result import NoisePoint as NoisePoint
    from attnlab.instruments.noise.result import NoiseResult as NoiseResult

__getattr__, __dir__ = handed_on(
    __name__,
    compare=("compare_noise",),
    measure=("noise_response",),
    result=("NoiseCurve", "NoisePoint", "NoiseResult"),
)
