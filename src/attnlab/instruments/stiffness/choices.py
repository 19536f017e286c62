"""What can be chosen about a measurement of stiffness. Apart from what measures, because a page
that shows a result needs these names and no network."""

from __future__ import annotations

from typing import Literal, get_args

Convention = Literal["state", "normed", "branch", "paper"]
CONVENTIONS: tuple[Convention, ...] = get_args(Convention)
Granularity = Literal["step", "block"]
GRANULARITIES: tuple[Granularity, ...] = get_args(Granularity)
Tokens = Literal["all", "class", "patch"]
TOKENS: tuple[Tokens, ...] = get_args(Tokens)
