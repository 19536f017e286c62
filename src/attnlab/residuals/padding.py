"""Which tokens of a batch are padding, and gates that look over all tokens but those.

A text network is told of padding by its `attention_mask`. A gate that looks over all tokens of a
sequence must not see padding, or the answer for a text would depend on the texts beside it. The
network that gates were inserted into reads the mask of its call and keeps it while it runs; the
gate is then computed of the tokens of each input alone, as if it came without padding.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from attnlab._errors import InputError, SiteError
from attnlab._types import Arguments, Function, Keywords
from attnlab.residuals.checkpointing import runs_again
from attnlab.residuals.example import Example, as_call, evaluating
from attnlab.residuals.graph import Graph
from attnlab.residuals.site import Site
from attnlab.residuals.steps import Step, StepKey

NAME = "attention_mask"
SEQUENCES = ("input_ids", "inputs_embeds")
"""What it tells of."""
_OTHER_NAMES = ("pixel_attention_mask", "patch_valid")
"""What image networks that take many sizes call it: Siglip2, and NaFlex of timm."""
_PADDING_NAMES = ("src_key_padding_mask", "key_padding_mask")
"""What torch's transformers call it: True, or a large negative number to add, is padding."""

Compute = Callable[[Tensor, Tensor | None], Tensor]
"""The step size of a branch and its shortcut, both (inputs, tokens, channels)."""


def signature_of(model: nn.Module) -> inspect.Signature | None:
    """The signature of the network's forward; None if Python cannot tell."""
    try:
        return inspect.signature(model.forward)
    except (TypeError, ValueError):
        return None


def _valid_tokens(named: Mapping[str, object]) -> Tensor | None:
    """(inputs, tokens), False where `attention_mask` says padding; None where nothing is padded.

    `named` are the arguments of a call by name.
    """
    mask = named.get(NAME)
    if isinstance(mask, Tensor):
        _check_mask(mask, named)
    else:
        mask = None
    second = named.get(f"decoder_{NAME}")
    padded = [m for m in (mask, second) if isinstance(m, Tensor) and not (m != 0).all()]
    if not padded:
        return None
    decoder = next((n for n, v in named.items() if n.startswith("decoder_") and _given(v)), None)
    if decoder is not None:
        raise _TwoSequencesError(
            f"The call has {decoder}: the network has an encoder and a decoder, with masks of "
            f"their own, and whose tokens a state holds cannot be told. Measure the encoder "
            f"alone: model.get_encoder()."
        )
    return padded[0] != 0


class _TwoSequencesError(InputError):
    """Padding in a call of an encoder and a decoder: whose it is, their parts are told."""


def _given(value: object) -> bool:
    return value is not None


def _check_mask(mask: Tensor, named: Mapping[str, object]) -> None:
    if mask.ndim != 2:
        raise InputError(
            f"Expected {NAME} of shape (inputs, tokens), 1 for a token and 0 for padding, but got "
            f"shape {tuple(mask.shape)}."
        )
    for name in SEQUENCES:
        sequence = named.get(name)
        if isinstance(sequence, Tensor) and sequence.shape[:2] != mask.shape:
            raise InputError(
                f"Expected {NAME} of shape {tuple(sequence.shape[:2])}, one value per token of "
                f"{name}, but got shape {tuple(mask.shape)}."
            )
    if not ((mask == 0) | (mask == 1)).all():
        raise InputError(
            f"Expected {NAME} of ones (tokens) and zeros (padding) but got values from "
            f"{mask.min().item():g} to {mask.max().item():g}."
        )


class _Told(NamedTuple):
    """What the call that runs in this thread tells of its padding."""

    valid: Tensor | InputError | None
    """(inputs, tokens), False where a token is padding; None where nothing is padded. An error
    where that cannot be told, for the gate that has to know."""
    mask: object
    """What told of it ..."""
    name: str
    """... and the argument that it was given as."""
    trains: bool
    """Whether a backward pass may follow."""
    part: bool
    """Whether a part of the network was told, whose tokens may be others (patches of images)."""


class _Call(threading.local):
    told: _Told | None = None
    """None outside of calls that tell of padding, and of those that could have told."""


_call = _Call()


@dataclass(frozen=True)
class MaskArgument:
    """The argument of a network's forward that tells which tokens are padding."""

    name: str
    names: tuple[str, ...]
    """Those of the positional arguments, in their order."""
    prefix: int = 0
    """How many tokens the network puts in front of those that the mask tells of."""

    @property
    def position(self) -> int:
        """Its place among the positional arguments."""
        return self.names.index(self.name)

    def without_padding(
        self, args: Arguments, kwargs: Mapping[str, object]
    ) -> tuple[Arguments, Keywords]:
        """The arguments of a call with a mask by which nothing is padding."""
        nothing = torch.zeros_like if self.name in _PADDING_NAMES else torch.ones_like
        return self.replaced(args, kwargs, nothing)

    def given(self, args: Arguments, kwargs: Mapping[str, object]) -> object:
        """The mask of a call, or None; NaFlex networks take all their inputs as one dictionary."""
        if kwargs.get(self.name) is not None:
            return kwargs[self.name]
        if len(args) > self.position:
            return args[self.position]
        several = (each for each in (*args, *kwargs.values()) if isinstance(each, Mapping))
        return next((each[self.name] for each in several if self.name in each), None)

    def replaced(
        self, args: Arguments, kwargs: Mapping[str, object], change: Callable[[Tensor], Tensor]
    ) -> tuple[Arguments, Keywords]:
        """The arguments of a call with its mask changed."""

        def changed(value: object) -> object:
            return change(value) if isinstance(value, Tensor) else value

        def argument(name: object, value: object) -> object:
            if name in (self.name, self.position):
                return changed(value)
            if isinstance(value, Mapping) and self.name in value:
                return {**value, self.name: changed(value[self.name])}
            return value

        named = {name: argument(name, value) for name, value in kwargs.items()}
        return tuple(argument(*each) for each in enumerate(args)), named

    def named(self, args: Arguments, kwargs: Mapping[str, object]) -> Keywords:
        """The arguments of a call by name."""
        return {**dict(zip(self.names, args, strict=False)), **kwargs}

    def valid(self, mask: object, args: Arguments, kwargs: Mapping[str, object]) -> Tensor | None:
        """(inputs, tokens), False where a token is padding; None where nothing is padded."""
        if self.name == NAME:
            return _valid_tokens({**self.named(args, kwargs), NAME: mask})
        if isinstance(mask, Tensor) and self.name in _PADDING_NAMES:
            mask = mask == 0
        if not isinstance(mask, Tensor) or bool((mask != 0).all()):
            return None
        if mask.ndim != 2:
            raise InputError(
                f"Expected {self.name} of shape (inputs, tokens) but got shape {tuple(mask.shape)}."
            )
        return nn.functional.pad(mask != 0, (self.prefix, 0), value=True)


def mask_argument(network: nn.Module) -> MaskArgument | None:
    """The argument by which `network` is told of padding, if it takes one that we know."""
    return next(iter(mask_arguments(network)), None)


def mask_arguments(network: nn.Module) -> tuple[MaskArgument, ...]:
    """All of them: a network of images and texts may have one for each, that of texts first."""
    return mask_arguments_of(signature_of(network), getattr(network, "num_prefix_tokens", 0))


def mask_arguments_of(
    signature: inspect.Signature | None, prefix: int = 0
) -> tuple[MaskArgument, ...]:
    """The same of a signature; `prefix` tokens come in front of those that NaFlex tells of."""
    names = () if signature is None else tuple(signature.parameters)
    both = "tgt_key_padding_mask" in names  # whose tokens a state holds could not be told
    return tuple(
        MaskArgument(name, names, prefix if name == "patch_valid" else 0)
        for name in (NAME, *_OTHER_NAMES, *(() if both else _PADDING_NAMES))
        if name in names
    )


def without_padding(
    network: nn.Module, arguments: Arguments, keywords: Mapping[str, object]
) -> tuple[Arguments, Keywords]:
    """The call with masks by which nothing is padding: a padded token changes nothing anywhere."""
    call: tuple[Arguments, Keywords] = arguments, dict(keywords)
    for argument in mask_arguments(network):
        call = argument.without_padding(*call)
    return call


def steps_beside(
    network: nn.Module, graph: Graph, example: Example | None, steps: Sequence[Step]
) -> list[StepKey]:
    """The steps whose states are not made of the sequence that the network's mask tells of: those
    of the images in a network of images and texts."""
    argument = mask_argument(network)
    if argument is None or argument.name != NAME:
        return []
    arguments, keywords = as_call(network, example)
    given = [each for each in tree_leaves((arguments, keywords)) if isinstance(each, Tensor)]
    inputs = [node.index for node in graph.nodes if node.operation == "input"]
    if len(inputs) != len(given):  # one tensor was given twice
        return []
    named = argument.named(arguments, keywords)
    sequences = [named[name] for name in SEQUENCES if isinstance(named.get(name), Tensor)]
    told = [
        node
        for node, tensor in zip(inputs, given, strict=True)
        if any(tensor is each for each in sequences)
    ]
    return [
        step.key
        for step in steps
        if told and not any(graph.computed_from(step.state_node, node) for node in told)
    ]


def padding_of_call(
    argument: MaskArgument | None, args: Arguments, kwargs: Mapping[str, object]
) -> Tensor | None:
    """(inputs, tokens), False where a call of a network with this mask argument says padding; None
    where nothing is padded."""
    if argument is None:  # one that takes whatever it is given may be told as well
        return _valid_tokens(kwargs)
    return argument.valid(argument.given(args, kwargs), args, kwargs)


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
        if name and not inside and argument is not None and argument.name in _PADDING_NAMES:
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


def knowing_padding(
    forward: Function, argument: MaskArgument | None, *args: object, **kwargs: object
) -> object:
    """`forward(*args, **kwargs)`, during which gates know the padding that the call tells of."""
    if argument is None:
        return forward(*args, **kwargs)
    return _told(forward, argument, argument.given(args, kwargs), _TwoSequencesError, args, kwargs)


def knowing_padding_of_method(
    method: Function, argument: MaskArgument | None, *args: object, **kwargs: object
) -> object:
    """The same of a method by which a network is run without its forward."""
    if argument is None or _call.told is not None:
        return method(*args, **kwargs)
    return _told(method, argument, argument.given(args, kwargs), InputError, args, kwargs)


def knowing_padding_of_part(
    forward: Function, argument: MaskArgument, *args: object, **kwargs: object
) -> object:
    """The same of a part of a network. Where it is given a mask of tokens, they may be others than
    those that the whole network is told of (the patches of an image beside a text); what it is
    given in another form is made of the network's mask, unless the part is called by itself."""
    mask, told = argument.given(args, kwargs), _call.told
    if told is not None and (
        mask is None or (mask is told.mask and told.part) or torch.jit.is_tracing()  # type: ignore[attr-defined]
    ):
        return forward(*args, **kwargs)
    # A call that the backward pass makes once more was looked at when it was first made.
    again = not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
    if (told is not None or again) and not _is_of_tokens(mask, args, kwargs):
        return forward(*args, **kwargs)
    return _told(forward, argument, mask, InputError, args, kwargs, part=True)


def _is_of_tokens(mask: object, args: Arguments, kwargs: Mapping[str, object]) -> bool:
    """Whether this is a mask of the tokens that a part is called with, one number for each."""
    if not isinstance(mask, Tensor) or mask.ndim != 2:
        return False
    given = next((each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)), mask)
    alike = given.shape[:2] == mask.shape
    return alike and bool(((mask == 0) | (mask == 1)).all())


def _told(
    forward: Function,
    argument: MaskArgument,
    mask: object,
    later: type[InputError],
    args: Arguments,
    kwargs: Keywords,
    *,
    part: bool = False,
) -> object:
    """`forward(*args, **kwargs)`, told of padding by this mask; errors of the kind `later` are left
    to the gate that has to know."""
    if mask is not None and torch.jit.is_tracing():  # type: ignore[attr-defined]
        raise SiteError(
            f"Gates that look over all tokens leave out those that are padding by {argument.name}, "
            f"which differs from call to call and cannot be traced. Trace without "
            f"{argument.name}, or use a gate that is the same for every input, such as 'asr:se'."
        )
    before = _call.told
    valid: Tensor | InputError | None
    try:
        valid = None if mask is None else argument.valid(mask, args, kwargs)
    except later as error:
        valid = error
    _call.told = _Told(valid, mask, argument.name, torch.is_grad_enabled(), part)
    try:
        return forward(*args, **kwargs)
    finally:
        _call.told = before


def has_padding(beside: bool) -> bool:
    """Whether the call that runs has padding. Of states `beside` those that the network's mask
    tells of, only what their part was told counts."""
    told = _call.told
    return told is not None and told.valid is not None and (told.part or not beside)


def of_valid_tokens(
    gate: nn.Module,
    name: str,
    compute: Compute,
    branch: Tensor,
    shortcut: Tensor | None,
    *,
    channel_axis: int,
) -> Tensor:
    """`compute` of each input without its padding; inputs that are padded alike go together.

    Where the gate varies from token to token, padded ones get its mean.
    """
    if channel_axis == 1:  # the tokens are last, as where convolutions are over them (SqueezeBERT)

        def turned(branch: Tensor, shortcut: Tensor | None) -> Tensor:
            return compute(branch.mT, None if shortcut is None else shortcut.mT).mT

        other = None if shortcut is None else shortcut.mT
        return of_valid_tokens(gate, name, turned, branch.mT, other, channel_axis=2).mT
    told = _call.told
    assert told is not None
    valid = told.valid
    assert valid is not None
    if isinstance(valid, InputError):
        raise valid
    if branch.ndim == 3 and branch.shape[1] == 1 < valid.shape[1]:
        return compute(branch, shortcut)  # one that was made of all tokens: a pooled state
    _check_gate(gate, name, told, valid, branch)
    patterns, groups = torch.unique(valid, dim=0, return_inverse=True)
    rows, values = [], []
    for number, pattern in enumerate(patterns):
        chosen = (groups == number).nonzero()[:, 0]
        rows.append(chosen)
        kept = pattern.nonzero()[:, 0]
        if len(kept) == 0:
            values.append(branch.new_ones(len(chosen), 1, branch.shape[2]))
            continue
        parts = [None if t is None else t[chosen][:, kept] for t in (branch, shortcut)]
        assert parts[0] is not None
        value = compute(parts[0], parts[1]).expand(len(chosen), -1, branch.shape[2])
        if value.shape[1] > 1:
            filled = value.mean(1, keepdim=True).expand(-1, branch.shape[1], -1)
            value = filled.index_copy(1, kept, value)
        elif len(kept) == 1 and branch.shape[1] > 1:
            value = value.expand(-1, branch.shape[1], -1)
        values.append(value)
    tokens = max(value.shape[1] for value in values)
    found = torch.cat([value.expand(-1, tokens, -1) for value in values])
    return found[torch.cat(rows).argsort()]


def _check_gate(gate: nn.Module, name: str, told: _Told, valid: Tensor, branch: Tensor) -> None:
    if branch.ndim != 3 or branch.shape[:2] != valid.shape:
        raise InputError(
            f"The gate {name!r} looks over all tokens, and which are padding is not known where "
            f"it acts: {told.name} has shape {tuple(valid.shape)} and its branch "
            f"{tuple(branch.shape)}. "
            f"Use a gate that is the same for every input, such as 'asr:se', or batches without "
            f"padding."
        )
    norms = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in gate.modules())
    if gate.training and norms:
        raise SiteError(
            f"The gate {name!r} ({type(gate).__name__}) normalises over the batch, and inputs that "
            f"are padded differently are not computed in one. Train on batches without padding, or "
            f"choose a gate without a batch norm, such as 'se'."
        )
    again = told.trains and not torch.compiler.is_compiling()
    if again and runs_again(_told.__code__):
        raise SiteError(
            f"The gate {name!r} leaves out the tokens that are padding by {told.name}, which is "
            f"not known any more when the backward pass runs its block once more (activation "
            f"checkpointing). Switch checkpointing off (for Hugging Face, "
            f"model.gradient_checkpointing_disable()), train on batches without padding, or choose "
            f"a gate that looks at each token alone, such as 'token' or 'asr:se'."
        )
