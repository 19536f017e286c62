"""Replace the K×K convolutions of a network by another operator, on a copy, with a receipt."""

from __future__ import annotations

import copy
import fnmatch
import inspect
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from torch import Tensor, nn

from attnlab._checked import where_in_message
from attnlab._errors import OptionError, SelectionError, SiteError, check_options, unknown_name
from attnlab._imported import imported, is_path
from attnlab.evolution.attention_layer import ChannelAttention2d, LocalAttention2d
from attnlab.evolution.dynamic import DynamicConv2d
from attnlab.evolution.involution import Involution2d
from attnlab.evolution.operator import Operator as Layer
from attnlab.evolution.window import Window
from attnlab.surgery.ordinary import making_ordinary_tensors

if TYPE_CHECKING:
    from attnlab.surgery.receipt import Receipt

Operator = str | type[Layer] | Callable[[nn.Conv2d], nn.Module]
Where = str | Sequence[str] | Callable[[str, nn.Conv2d], bool] | None

REPLACEMENTS: dict[str, type[nn.Module]] = {
    "involution": Involution2d,
    "local_attention": LocalAttention2d,
    "channel_attention": ChannelAttention2d,
    "dynamic": DynamicConv2d,
}

TOO_FAR = 1e3
"""The change of the output, and the number of times its size, up to which replaced layers draw no
warning. Both, because an output of zeros has no size."""


class ReplaceWarning(UserWarning):
    """A replaced network whose output is out of all proportion."""


@making_ordinary_tensors
def replace(
    model: nn.Module,
    operator: Operator,
    where: Where = None,
    example: Tensor | tuple[object, ...] | Mapping[str, object] | None = None,
    **options: object,
) -> tuple[nn.Module, Receipt]:
    """A copy of `model` whose convolutions at `where` are `operator`, and what that did.

    `operator` is "involution", "local_attention", "channel_attention" or "dynamic"; `options` go to
    its constructor; channels and stride come from the convolution, and its size unless
    `kernel_size` is given. Your own is a subclass of `Operator`, or its name as in
    "my_operators.MyOperator", which `attnlab.save` can write into a file; it is built as
    `MyOperator(in_channels, out_channels, kernel_size=, stride=, padding=, dilation=, bias=,
    **options)`. Or it is a function that is given the convolution and builds what takes its place.
    `where` is None (every convolution larger than 1×1 with one group that can be replaced, stems
    that read fewer than 8 channels left out), a pattern such as "layer3.*.conv2", a list of module
    names, or a predicate of name and convolution. A convolution that `where` names but the operator
    cannot replace is an error.

    Involution starts linear here (`start="paper"` is the authors' start). A change of the output by
    more than a thousand, and a thousand times its size, is a `ReplaceWarning`.
    """
    from attnlab.surgery.history import Replaced, record_event, record_start
    from attnlab.surgery.original import Original
    from attnlab.surgery.receipt import Receipt

    start = time.perf_counter()
    operator = _named(operator)
    label, build = _builder(operator, options)
    sites = _select(model, operator, label, where)
    original = Original.of(model, example, start)
    changed = copy.deepcopy(model)
    record_start(changed, example)
    _exchange(changed, sites, build)
    record_event(changed, Replaced(_name_for_files(operator), list(sites), dict(options)))
    after, counted = original.answer_of(changed), not original.work_depends_on_values
    figures = original.figures(changed, after, after.macs if counted else None)
    _warn_if_too_far(label, figures["max_change"], figures["relative_change"])
    linear = operator == "involution" and options.get("start", "linear") == "linear"
    action, notes = f"replace by {label}", _notes(linear, counted)
    return changed, Receipt(action=action, sites=tuple(sites), notes=notes, **figures)


def exchange_convolutions(
    network: nn.Module, operator: str, sites: Sequence[str], options: Mapping[str, object]
) -> None:
    """Put an operator into `network` as `replace` did, at the convolutions with these names."""
    named = _named(operator)
    label, build = _builder(named, dict(options))
    _exchange(network, _select(network, named, label, sites), build)


def _exchange(
    network: nn.Module, sites: Mapping[str, nn.Conv2d], build: Callable[[nn.Conv2d], nn.Module]
) -> None:
    for name, convolution in sites.items():
        parent, _, child = name.rpartition(".")
        new = build(convolution).to(convolution.weight.device, convolution.weight.dtype)
        new.train(convolution.training)
        setattr(network.get_submodule(parent), child, new)


def own_operator(path: str) -> type[Layer]:
    """The class that "my_operators.MyOperator" names."""
    return imported("operator", path, Layer)


def build_own(
    own: type[Layer], in_channels: int, out_channels: int, window: Window, **options: object
) -> nn.Module:
    """A layer of your own class, for a window."""
    size, stride, dilation, padding = window
    geometry = {"kernel_size": size, "stride": stride, "padding": padding, "dilation": dilation}
    given = {"bias": False, **options, **geometry}
    build: Callable[..., nn.Module] = own  # every subclass has arguments of its own
    try:
        inspect.signature(own).bind(in_channels, out_channels, **given)
    except TypeError as error:
        raise OptionError(
            f"Expected {own.__name__} to be built as {own.__name__}(in_channels, out_channels, "
            f"kernel_size=, stride=, padding=, dilation=, bias=), but: {error}."
        ) from None
    return build(in_channels, out_channels, **given)


def _named(operator: Operator) -> Operator:
    """The class that a path names; anything else as it is."""
    if isinstance(operator, str) and is_path(operator):
        return own_operator(operator)
    return operator


def _is_own_class(operator: Operator) -> TypeGuard[type[Layer]]:
    return isinstance(operator, type) and issubclass(operator, Layer)


def _name_for_files(operator: Operator) -> str:
    """The name by which a file can have it; empty for what cannot be imported by one."""
    if isinstance(operator, str):
        return operator
    if not _is_own_class(operator) or operator.__module__ == "__main__":
        return ""
    inside = "." in operator.__qualname__  # of a function or of another class
    return "" if inside else f"{operator.__module__}.{operator.__qualname__}"


def _notes(linear: bool, counted: bool) -> tuple[str, ...]:
    notes = ["weights of the replaced layers are new"]
    if linear:
        notes.append("involution starts linear: its maps do not depend on the input yet")
    if not counted:
        notes.append(
            "MACs are not counted: how much the network computes depends on what it selects"
        )
    return tuple(notes)


def _warn_if_too_far(label: str, largest: float | None, relative: float | None) -> None:
    if largest is None or relative is None or min(largest, relative) < TOO_FAR:
        return  # not so for what is not a number
    moved = f"moved by {largest:.3g}, {relative:.3g} times its size"
    warnings.warn(
        f"Replaced by {label}, the output of the network "
        f"{moved if math.isfinite(largest) else 'is not finite'}. Norms that take no statistics of "
        "the batch (eval mode) do not bound an operator whose output grows with the square of its "
        'input. Give it a start that does (start="linear" for involution), or train before it is '
        "used in eval mode.",
        ReplaceWarning,
        stacklevel=3,
    )


def _builder(
    operator: Operator, options: dict[str, object]
) -> tuple[str, Callable[[nn.Conv2d], nn.Module]]:
    """The operator's name, and what makes the layer in the place of a convolution."""
    if _is_own_class(operator):
        own, names = operator, ("in_channels", "out_channels", "stride", "padding", "dilation")
        check_options(f"Operator {own.__name__!r}", own.__init__, options, skip=(*names, "bias"))
        return own.__name__, lambda convolution: _in_place_of(convolution, own, options)
    if not isinstance(operator, str):
        if options:
            raise OptionError(
                f"Options ({', '.join(options)}) are for operators given by name. Set them in the "
                f"function that builds yours."
            )
        function = cast("Callable[[nn.Conv2d], nn.Module]", operator)
        return getattr(operator, "__name__", type(operator).__name__), function
    if operator not in REPLACEMENTS:
        raise unknown_name("operator", operator, REPLACEMENTS)
    taken = ("channels", "in_channels", "out_channels", "stride", "padding", "dilation")
    build = REPLACEMENTS[operator]
    check_options(f"Operator {operator!r}", build.__init__, options, skip=taken)
    return operator, lambda convolution: _build(operator, convolution, options)


def _build(operator: str, convolution: nn.Conv2d, options: dict[str, Any]) -> nn.Module:
    options = {"kernel_size": convolution.kernel_size, **options}
    inputs, outputs = convolution.in_channels, convolution.out_channels
    stride = (convolution.stride[0], convolution.stride[1])
    dilation = (convolution.dilation[0], convolution.dilation[1])
    if operator == "involution":
        options = {"start": "linear", **options}
        return Involution2d(inputs, stride=stride, dilation=dilation, **options)
    bias = convolution.bias is not None
    if operator == "dynamic":
        return DynamicConv2d(
            inputs,
            outputs,
            stride=stride,
            padding=convolution.padding,  # type: ignore[arg-type]
            dilation=dilation,
            groups=convolution.groups,
            bias=bias,
            **options,
        )
    layer = REPLACEMENTS[operator]
    return layer(inputs, outputs, stride=stride, dilation=dilation, bias=bias, **options)


def _in_place_of(
    convolution: nn.Conv2d, own: type[Layer], options: Mapping[str, object]
) -> nn.Module:
    size = options.get("kernel_size", convolution.kernel_size)
    window = Window.centred(size, convolution.stride, convolution.dilation)  # type: ignore[arg-type]
    rest = {name: value for name, value in options.items() if name != "kernel_size"}
    bias = convolution.bias is not None
    inputs, outputs = convolution.in_channels, convolution.out_channels
    return build_own(own, inputs, outputs, window, bias=bias, **rest)


def _obstacle(operator: Operator, convolution: nn.Conv2d) -> str | None:
    """Why `operator` cannot take the place of `convolution`; a function may in any."""
    if not isinstance(operator, str) and not _is_own_class(operator):
        return None
    if convolution.padding_mode != "zeros" or isinstance(convolution.padding, str):
        return "its padding is not zeros given as numbers"
    if operator == "dynamic":
        return None
    if convolution.groups > 1:
        return f"it has {convolution.groups} groups"
    around = tuple(
        dilation * (size - 1) // 2
        for size, dilation in zip(convolution.kernel_size, convolution.dilation, strict=True)
    )
    if any(size % 2 == 0 for size in convolution.kernel_size) or convolution.padding != around:
        return f"its window is not centred (padding {convolution.padding})"
    if operator == "involution" and convolution.in_channels != convolution.out_channels:
        return (
            "involution keeps the number of channels, and it maps "
            f"{convolution.in_channels} to {convolution.out_channels}"
        )
    return None


def _select(model: nn.Module, operator: Operator, label: str, where: Where) -> dict[str, nn.Conv2d]:
    all_convolutions = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Conv2d) and max(module.kernel_size) > 1
    }
    if where is None:
        chosen = {
            name: convolution
            for name, convolution in all_convolutions.items()
            if convolution.in_channels >= 8
            and convolution.groups == 1
            and _obstacle(operator, convolution) is None
        }
    elif isinstance(where, str):
        chosen = {n: c for n, c in all_convolutions.items() if fnmatch.fnmatchcase(n, where)}
    elif callable(where):
        chosen = {n: c for n, c in all_convolutions.items() if where(n, c)}
    else:
        for name in where:
            if name not in all_convolutions:
                raise unknown_name("convolution", name, all_convolutions)
        chosen = {name: all_convolutions[name] for name in where}
    if not chosen:
        raise SelectionError(
            f"{where_in_message(where)} selects no convolution that could become {label}. "
            f"The network has {len(all_convolutions)} larger than 1×1: "
            f"{', '.join(list(all_convolutions)[:8])}."
        )
    for name, convolution in chosen.items():
        obstacle = _obstacle(operator, convolution)
        if obstacle is not None:
            raise SiteError(f"{name} cannot become {label}: {obstacle}.")
    return chosen
