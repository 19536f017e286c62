"""Who inside of a network is given a mask of its tokens: parts, and modules inside of blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from attnlab._errors import SiteError
from attnlab._types import Arguments, Keywords
from attnlab.residuals.example import Example, as_call, evaluating
from attnlab.residuals.padding import PADDING_NAMES, MaskArgument, mask_argument, signature_of
from attnlab.residuals.site import Site

_Masks = Sequence[tuple[str, str, tuple[int, ...]]]
"""The modules that are given a mask of tokens, with its name and shape."""


def refuse_hidden_mask(
    network: nn.Module, example: Example | None, label: str, sites: Sequence[Site]
) -> None:
    """Raise `SiteError` if only a module inside of the block of one of `sites` is given a mask of
    its tokens, so that it would not be known when a gate acts there."""
    if mask_argument(network) is not None:
        return
    masks = _masks_given(network, example)
    for site in sites:
        block = site.name or type(network).__name__
        for name, mask, shape in () if _is_told(site, masks) else masks:
            # Others are of another sequence (the pixels that a decoder's queries look at).
            if shape == _tokens_at(site) and (not site.name or is_inside(name, site.name)):
                raise SiteError(
                    f"{label!r} looks over all tokens and must not see padding, but the {mask} is "
                    f"only known inside {name!r}, not to {block!r}. Use a gate that is the same "
                    f"for every input, such as 'asr:se'."
                )


def sites_told(network: nn.Module, example: Example | None, sites: Sequence[Site]) -> list[Site]:
    """Those of `sites` that lie in a part of `network` which is given a mask of their tokens in a
    call on the example."""
    masks = _masks_given(network, example)
    return [site for site in sites if _is_told(site, masks)]


def _is_told(site: Site, masks: _Masks) -> bool:
    tokens = _tokens_at(site)
    return any(shape == tokens and is_inside(site.module, part) for part, _, shape in masks)


def _tokens_at(site: Site) -> tuple[int, ...]:
    """(inputs, tokens) of the state."""
    return site.shape[:1] + site.shape[2:] if site.channel_axis == 1 else site.shape[:2]


def padding_masks_inside(network: nn.Module) -> list[str]:
    """The parts of a network, which has arguments beside its input, that torch's names for padding
    say may be told of it; the outermost of each."""
    signature = signature_of(network)
    if signature is None or len(signature.parameters) < 2:
        return []
    found: list[str] = []
    for name, module in network.named_modules():
        argument = mask_argument(module)
        inside = any(is_inside(name, other) for other in found)
        if name and not inside and argument is not None and argument.name in PADDING_NAMES:
            found.append(name)
    return found


def is_inside(name: str, module: str) -> bool:
    """Whether `name` is that of a module or of a part of it."""
    return name == module or name.startswith(f"{module}.")


def _masks_given(network: nn.Module, example: Example | None) -> _Masks:
    """Those that are given one in a call on the example."""
    given: list[tuple[str, str, tuple[int, ...]]] = []

    def looking(name: str, argument: MaskArgument) -> Callable[..., None]:
        def look(module: nn.Module, args: Arguments, kwargs: Keywords) -> None:
            del module
            mask = argument.given(args, kwargs)
            if isinstance(mask, Tensor) and mask.ndim == 2:
                given.append((name, argument.name, tuple(mask.shape)))

        return look

    handles = []
    for name, module in network.named_modules():
        argument = mask_argument(module)
        if name and argument is not None:
            look = looking(name, argument)
            handles.append(module.register_forward_pre_hook(look, with_kwargs=True))
    if not handles:
        return given
    try:
        arguments, keywords = as_call(network, example)
        with evaluating(network):
            network(*arguments, **keywords)
    finally:
        for handle in handles:
            handle.remove()
    return given
