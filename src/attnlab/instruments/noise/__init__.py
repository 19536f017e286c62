"""How much the result of a network falls when noise is added inside its norms."""

from attnlab.instruments.noise.response import NoiseResult as NoiseResult
from attnlab.instruments.noise.response import noise_response as noise_response
