"""See what a network multiplies by, in the products that its own modules make."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import NamedTuple

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from attnlab._errors import InputError
from attnlab._types import Arguments, Function, Keywords
from attnlab.residuals.form import ProductKey
from attnlab.residuals.operations import canonical

Teller = Callable[[Tensor, Tensor | None], Tensor]
"""Given a gate's value and what it multiplies, answers with the value to use."""


class ToldProduct(NamedTuple):
    """A product, and who is told of its multiplier."""

    key: ProductKey
    tell: Teller


def watch_products(cleaning: ExitStack, model: nn.Module, told: Iterable[ToldProduct]) -> None:
    """Tell of the multipliers of these products until `cleaning` is closed."""
    by_owner: dict[str, list[ToldProduct]] = defaultdict(list)
    for each in told:
        by_owner[each.key.owner].append(each)
    for name, products in by_owner.items():
        owner = _Owner(model.get_submodule(name), products)
        replace_method(cleaning, owner.module, "forward", owner.forward)
        # What the modules in it multiply is counted at these.
        for inner in owner.module.modules():
            if inner is not owner.module:
                cleaning.enter_context(inner.register_forward_pre_hook(owner.enter))
                after = inner.register_forward_hook(owner.leave, always_call=True)
                cleaning.enter_context(after)
        cleaning.enter_context(model.register_forward_pre_hook(owner.begin, prepend=True))


class _Owner:
    """A module that makes products of its own."""

    def __init__(self, module: nn.Module, products: list[ToldProduct]) -> None:
        self.module = module
        self.products = products
        self.original = module.forward
        self.calls = 0
        self.depth = 0
        """How many of the modules in it are running."""

    def begin(self, module: nn.Module, arguments: object) -> None:
        """A forward of the whole network begins."""
        del module, arguments
        self.calls = self.depth = 0

    def enter(self, module: nn.Module, arguments: object) -> None:
        del module, arguments
        self.depth += 1

    def leave(self, module: nn.Module, arguments: object, output: object) -> None:
        del module, arguments, output
        self.depth -= 1

    def forward(self, *args: object, **kwargs: object) -> object:
        now = [each for each in self.products if each.key.call == self.calls]
        self.calls += 1
        if not now:
            return self.original(*args, **kwargs)
        with _ProductWatch(self, now) as watch:
            output = self.original(*args, **kwargs)
        watch.check()
        return output


class _ProductWatch(TorchFunctionMode):
    """Recognises the products of one call of a module by their order."""

    def __init__(self, owner: _Owner, products: list[ToldProduct]) -> None:
        super().__init__()
        self.owner = owner
        self.depth = owner.depth
        self.products = products
        self.counts: Counter[str] = Counter()
        self.operations = {each.key.operation for each in products}

    def __torch_function__(
        self,
        function: Function,
        types: object,
        args: Arguments = (),
        kwargs: Keywords | None = None,
    ) -> object:
        del types
        keywords = kwargs or {}
        if self.owner.depth == self.depth:
            operation = canonical(getattr(function, "__name__", ""))
            if operation in self.operations:
                args, keywords = self._seen(operation, args, keywords)
        return function(*args, **keywords)

    def _seen(
        self, operation: str, args: Arguments, keywords: Keywords
    ) -> tuple[Arguments, Keywords]:
        number = self.counts[operation]
        self.counts[operation] += 1
        for key, tell in self.products:
            if (key.operation, key.number) != (operation, number):
                continue
            leaves, form = tree_flatten((args, keywords))
            places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
            if len(places) != 2:
                raise _other_path(key, f"product {number} has {len(places)} tensors instead of 2")
            leaves[places[key.operand]] = tell(
                leaves[places[key.operand]], leaves[places[1 - key.operand]]
            )
            args, keywords = tree_unflatten(leaves, form)
        return args, keywords

    def check(self) -> None:
        """Raise `InputError` unless the call made as many products as on the example."""
        for key, _ in self.products:
            if self.counts[key.operation] != key.products:
                raise _other_path(
                    key, f"made {self.counts[key.operation]} instead of {key.products}"
                )


def _other_path(key: ProductKey, what: str) -> InputError:
    return InputError(
        f"{key.owner!r} does not multiply as it did on the example ({key.operation}: {what}), so "
        f"its gates cannot be told. Pass an example that takes this path: example=..."
    )


def replace_method(
    cleaning: ExitStack, module: nn.Module, name: str, method: Callable[..., object]
) -> None:
    """Give one object its own method; taken off again, and what was there before put back."""
    attributes = module.__dict__
    if name in attributes:
        cleaning.callback(attributes.__setitem__, name, attributes[name])
    else:
        cleaning.callback(attributes.pop, name)
    attributes[name] = method
