"""Noise as settings, as in `noise = {kind = "constant", a = 0.8, b = 0.8}`."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from attnlab._errors import OptionError
from attnlab._strict import Strict
from attnlab.surgery.noise.kinds import BatchNoise, ConstantNoise, During, Noise, Per, RandomNoise

_NEEDS = {"constant": ("a", "b"), "random": ("sigma",), "batch": ("n",)}
_TAKES = {"constant": (), "random": ("per",), "batch": ()}
_EXAMPLES = {
    "constant": 'noise = { kind = "constant", a = 0.8, b = 0.8 }',
    "random": 'noise = { kind = "random", sigma = 0.3 }',
    "batch": 'noise = { kind = "batch", n = 8 }',
}


class NoiseConfig(Strict):
    """A noise in every norm of a network, and when it acts."""

    kind: Literal["constant", "random", "batch"]
    a: float | None = None
    """The factor of constant noise, x̂ ← a x̂ + b."""
    b: float | None = None
    sigma: float | None = None
    """The size of random noise, x̂ ← (1 + σ ε₁) x̂ + σ ε₂."""
    per: Per | None = None
    """What has a draw of its own under random noise; `channel` when left out."""
    n: int | None = None
    """The number of images that the statistics of batch noise are of."""
    during: During | None = None
    """`training`, `test` or `both`; when left out, constant noise always, the others in
    training."""

    @model_validator(mode="after")
    def _consistent(self) -> NoiseConfig:
        takes = (*_NEEDS[self.kind], *_TAKES[self.kind])
        for name in ("a", "b", "sigma", "per", "n"):
            given = getattr(self, name) is not None
            if given and name not in takes:
                raise OptionError(
                    f"{self.kind.capitalize()} noise has no setting {name!r}. It has: "
                    f"{', '.join((*takes, 'during'))}."
                )
            if not given and name in _NEEDS[self.kind]:
                raise OptionError(
                    f"{self.kind.capitalize()} noise needs {' and '.join(_NEEDS[self.kind])}, as "
                    f"in {_EXAMPLES[self.kind]}."
                )
        self.build()  # a value that cannot be is an error here
        return self

    def build(self) -> Noise:
        """Build the noise."""
        if self.kind == "constant":
            assert self.a is not None
            assert self.b is not None
            return ConstantNoise(self.a, self.b)
        if self.kind == "random":
            assert self.sigma is not None
            return RandomNoise(self.sigma, self.per or "channel")
        assert self.n is not None
        return BatchNoise(self.n)

    @property
    def label(self) -> str:
        """The name of the noise in tables: `constant (0.8, 0.8)`."""
        noise = self.build()
        usual = self.during in (None, noise.default_during)
        return noise.label if usual else f"{noise.label} in {self.during}"
