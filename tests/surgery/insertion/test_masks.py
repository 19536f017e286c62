"""Who inside of a network is told of padding."""

from __future__ import annotations

import pytest
from torch import Tensor, nn

from attnlab.residuals.padding import MaskArgument, mask_argument
from attnlab.surgery.insertion._masks import is_inside, padding_masks_inside


class Told(nn.Module):
    """A part that torch's name for padding tells of it."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        del key_padding_mask
        return x


class Outer(nn.Module):
    """A network of such parts, which is told by another name."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.ab = Told(Told()), nn.Sequential(Told()), nn.Tanh(), Told()
        self.num_prefix_tokens = 2

    def forward(self, x: Tensor, patch_valid: Tensor | None = None) -> Tensor:
        del patch_valid
        return x


def test_the_outermost_parts_that_are_told() -> None:
    assert padding_masks_inside(Outer()) == ["a", "b.0", "ab"]
    assert padding_masks_inside(nn.Sequential(Told())) == []  # it takes nothing but its input
    assert padding_masks_inside(Told()) == []
    assert mask_argument(Outer()) == MaskArgument("patch_valid", ("x", "patch_valid"), 2)


@pytest.mark.parametrize(
    ("name", "inside"), [("a", True), ("a.b", True), ("ab", False), ("", False), ("b.a", False)]
)
def test_parts_by_name(name: str, inside: bool) -> None:
    assert is_inside(name, "a") is inside
