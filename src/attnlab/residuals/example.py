"""Run a network once, on a given example or on one made from what the model says about itself."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, shape_wrapper

from attnlab._errors import InputError
from attnlab._tokens import example_tokens
from attnlab._types import Arguments, Keywords
from attnlab.residuals.graph import Graph
from attnlab.residuals.listing import list_modules
from attnlab.residuals.recorder import record

Example = Tensor | Arguments | Mapping[str, object]
"""An input, positional inputs, or keyword inputs of a network."""
_SHORT = 16
"""Tokens of an example for a network that does not say how many it takes."""


@runtime_checkable
class DeclaresInputSize(Protocol):
    """A network that says what it takes: (channels, height, width)."""

    input_size: tuple[int, int, int]


@runtime_checkable
class DeclaresTokens(Protocol):
    """A network that takes tokens (batch, context), whole numbers below the vocabulary's size."""

    vocabulary: int
    context: int


@dataclass(frozen=True)
class Run:
    """What one run of a network showed."""

    graph: Graph
    output: object
    macs: int
    """Multiply-accumulates of convolutions and matrix products, for the whole example."""
    input_shape: tuple[int, ...]
    gate_macs: int = 0
    """Those among them of gates that attnlab inserted."""


@contextmanager
def unfused() -> Iterator[None]:
    """Without torch's fused transformer layers."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


class MacCounter(TorchDispatchMode):
    """Counts the multiply-accumulates of convolutions, matrix products and attention while entered,
    by torch's own formulas; see `macs`.

    `torch.utils.flop_counter.FlopCounterMode` also attributes them to modules through gradient
    hooks, which fails on a network that hands a parameter to a module (CaiT's class token) without
    gradients. torch's fused transformer layers have no formula, so they are off while counting.
    """

    def __init__(self) -> None:
        super().__init__()
        self._operations = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would wrap `__torch_dispatch__` so that nothing in it is compiled. Nothing is, and
        the wrapper takes twice as long as most operations of a small network."""
        return False

    @property
    def macs(self) -> int:
        return self._operations // 2

    def __enter__(self) -> MacCounter:
        # Not `unfused`, whose machinery takes as long as two layers: this is entered for each gate.
        self._fused = torch.backends.mha.get_fastpath_enabled()
        if self._fused:
            torch.backends.mha.set_fastpath_enabled(False)
        super().__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._fused:
            torch.backends.mha.set_fastpath_enabled(True)
        super().__exit__(kind, error, traceback)

    def __torch_dispatch__(
        self,
        function: OpOverload,
        types: object,
        args: Arguments = (),
        kwargs: Keywords | None = None,
    ) -> object:
        del types
        output = function(*args, **(kwargs or {}))
        formula = flop_registry.get(function._overloadpacket)
        if formula is not None:
            self._operations += _operations(formula, args, kwargs or {}, output)
        return output


_OF_SHAPES = shape_wrapper(lambda: 0).__code__


def _operations(
    formula: Callable[..., int], args: Arguments, keywords: Keywords, output: object
) -> int:
    """What torch's formula says of a call. Most take shapes, which torch finds by its pytrees: that
    takes longer than a small convolution, so here they are read off."""
    given = (output, *args, *keywords.values())
    lists = [each for each in given if type(each) in (list, tuple)]
    nested = any(isinstance(each, Tensor) for several in lists for each in several)  # type: ignore[attr-defined]
    if nested or getattr(formula, "__code__", None) is not _OF_SHAPES:
        return formula(*args, **keywords, out_val=output)
    shapes = tuple([_shape(each) for each in args])
    named = tuple([(name, _shape(each)) for name, each in keywords.items()])
    return _of_shapes(formula, shapes, named, _shape(output))


def _shape(value: object) -> Hashable:
    if type(value) is list:
        return tuple(value)
    return value.shape if isinstance(value, Tensor) else value


# Blocks repeat their shapes, and some formulas call others that take their shapes from pytrees.
@lru_cache(maxsize=1024)
def _of_shapes(
    formula: Callable[..., int],
    shapes: tuple[Hashable, ...],
    named: tuple[tuple[str, Hashable], ...],
    output: Hashable,
) -> int:
    return int(formula.__wrapped__(*shapes, **dict(named), out_shape=output))  # type: ignore[attr-defined]


def run_once(model: nn.Module, example: Example | None = None) -> Run:
    """Run `model` in eval mode without gradients; its modes and the random state are kept."""
    arguments, keywords = as_call(model, example)
    shape = input_shape(arguments, keywords)
    _check_inputs(arguments, keywords)
    with evaluating(model), running_eagerly(), MacCounter() as counter:
        try:
            graph, output = record(model, arguments, keywords, lambda: counter.macs)
        except (RuntimeError, TypeError, ValueError, AssertionError, NotImplementedError) as error:
            raise _failed_run(model, shape, example is None, error) from error
    return Run(graph, output, counter.macs, shape, graph.counted_in_wholes)


def uncompiled(model: nn.Module) -> nn.Module:
    """The network inside what `torch.compile` returned; another network as it is."""
    inner = model._modules.get("_orig_mod") if type(model).__name__ == "OptimizedModule" else None
    return model if inner is None else inner


@contextmanager
def running_eagerly() -> Iterator[None]:
    """Have compiled networks run as they are written: in a compiled graph nothing can be watched.

    Where nothing is compiled, nothing is imported: torch._dynamo takes seconds.
    """
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def measure(model: nn.Module, example: Example | None = None) -> tuple[object, int]:
    """The output of `model` and its multiply-accumulates, run as by `run_once`."""
    with evaluating(model), MacCounter() as counter:
        output = call(model, example)
    return output, counter.macs


def call(model: nn.Module, example: Example | None) -> object:
    """The output of `model`, in the mode that it is in."""
    arguments, keywords = as_call(model, example)
    return model(*arguments, **keywords)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode, no gradients, own random state; everything is as before afterwards."""
    training = [module for _, module in list_modules(model) if module.training]
    if training:  # it sets an attribute of every module, which takes as long as a small layer
        model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            yield
    finally:
        for module in training:
            module.training = True


def as_call(model: nn.Module, example: Example | None) -> tuple[Arguments, Keywords]:
    """Positional and keyword arguments for `model`."""
    if example is None:
        example = example_input(model)
    if isinstance(example, Tensor):
        return (example,), {}
    if isinstance(example, Mapping):
        return (), dict(example)
    if not isinstance(example, tuple | list):
        raise InputError(
            f"Expected the example to be a tensor, a tuple of inputs or a dictionary of them but "
            f"got {type(example).__name__}."
        )
    return tuple(example), {}


def example_input(model: nn.Module, batch: int = 1) -> Tensor:
    """A random input of the size, dtype and device that `model` says it takes, the same each time;
    tokens if it says that it takes them.

    Sizes are asked of attnlab's and anybody's `input_size`, timm's patch embedding and pretrained
    configuration, and Hugging Face's configuration; else 3×224×224.
    """
    tokens = token_input(model)
    if tokens is not None:
        return example_tokens(*tokens, batch).to(next(model.parameters()).device)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn((batch, *_declared_size(model)), generator=generator)
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    return images if parameter is None else images.to(parameter.device, parameter.dtype)


def token_input(model: nn.Module) -> tuple[int, int] | None:
    """Return how many tokens there can be and how long an example is, of a network that says so:
    anybody's `vocabulary` and `context`, or Hugging Face's configuration; None for networks of
    images."""
    if isinstance(model, DeclaresTokens):
        return model.vocabulary, model.context
    if getattr(model, "main_input_name", None) != "input_ids":
        return None
    vocabulary = getattr(getattr(model, "config", None), "vocab_size", None)
    return (vocabulary, _SHORT) if isinstance(vocabulary, int) else None


def _declared_size(model: nn.Module) -> tuple[int, ...]:
    if isinstance(model, DeclaresInputSize):
        return tuple(model.input_size)
    size = (3, 224, 224)
    configuration = getattr(model, "pretrained_cfg", None)  # timm
    if isinstance(configuration, Mapping) and configuration.get("input_size"):
        size = tuple(configuration["input_size"])
    for module in (*model.children(), model):  # timm's, when built for another size
        sides = getattr(module, "img_size", None)
        if isinstance(sides, tuple) and _reads_images(module, size[0]):
            return (size[0], *sides)
    image_size = getattr(getattr(model, "config", None), "image_size", None)  # Hugging Face
    if image_size is not None:
        sides = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
        return (getattr(model.config, "num_channels", 3), *sides)
    return size


def _reads_images(module: nn.Module, channels: int) -> bool:
    """Whether the first convolution takes images: a patch embedding after a stem (Visformer) knows
    the size of the stem's output."""
    first = next((m for m in module.modules() if isinstance(m, nn.Conv2d)), None)
    return first is None or first.in_channels == channels


def input_shape(arguments: Arguments, keywords: Keywords) -> tuple[int, ...]:
    """The shape of the first tensor of a call."""
    for value in (*arguments, *keywords.values()):
        if isinstance(value, Tensor):
            return tuple(value.shape)
    return ()


def check_finite_weights(model: nn.Module, change: float | None) -> None:
    """Raise an error if outputs could not be compared because of weights that are not finite."""
    if change is not None and math.isfinite(change):
        return
    for name, parameter in model.named_parameters():
        if parameter.is_meta or not parameter.is_floating_point():
            continue
        if not parameter.isfinite().all():
            raise InputError(
                f"The weights {name!r} of {type(model).__name__} have values that are not finite, "
                f"so nothing can be said about its outputs. Did its training diverge?"
            )


def _check_inputs(arguments: Arguments, keywords: Keywords) -> None:
    """Refuse examples on which nothing can be seen."""
    for value in tree_leaves((arguments, keywords)):
        if not isinstance(value, Tensor):
            continue
        if not value.numel():
            raise InputError(
                f"Expected an example with at least one value but got one of shape "
                f"{tuple(value.shape)}."
            )
        if value.is_floating_point() and not value.is_meta and not value.isfinite().all():
            number = int((~value.isfinite()).sum())
            raise InputError(
                f"Expected an example of finite values but {number} of its {value.numel()} are NaN "
                f"or infinite."
            )


def _failed_run(
    model: nn.Module, shape: tuple[int, ...], made_up: bool, error: Exception
) -> InputError:
    parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    lines = [
        f"{type(model).__name__} ({parameter.dtype} on {parameter.device}) does not run on an "
        f"example of shape {shape}: {_first_line(error)}"
    ]
    if (parameter.dtype, parameter.device.type) == (torch.float16, "cpu"):
        lines.append(
            "Many CPU operations do not take float16. Insert into model.float() (or "
            "model.bfloat16()) and call .half() on the result, or move the model to a GPU first."
        )
    elif made_up:
        lines.append("The example was made up. Pass one that fits: example=torch.randn(1, ...).")
    return InputError("\n".join(lines))


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
