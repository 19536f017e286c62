"""How much the result of a network falls when noise is added inside its norms."""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on

if TYPE_CHECKING:
    from attnlab.instruments.noise.response import NoiseResult as NoiseResult
    from attnlab.instruments.noise.response import noise_response as noise_response

__getattr__, __dir__ = handed_on(
    __name__,
    response=(
        "NoiseResult",
        "noise_response",
    ),
)
