"""An optimizer that follows its network through surgery: new parameters join it, and those that
went leave it with their momentum."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.optim import LBFGS, Optimizer

from attnlab._errors import OptionError


@contextmanager
def following(optimizer: Optimizer | None, network: nn.Module) -> Iterator[None]:
    """Inside, `network` itself is changed; afterwards `optimizer` has the parameters that it has
    then. New ones form a group of their own, with the settings of the first; those that do not
    train stay out. Nothing happens after an error, and nothing without an optimizer.
    """
    if optimizer is None:
        yield
        return
    before = _parameters(network)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if held.isdisjoint(before):
        raise OptionError(
            f"The optimizer has no parameter of {type(network).__name__}: it is that of another "
            f"network, or of a copy. Pass the one that was built from network.parameters()."
        )
    yield
    after = _parameters(network)
    _take_out(optimizer, {index for index in before if index not in after})
    new = [named for index, named in after.items() if index not in before]
    _add(optimizer, [(name, p) for name, p in new if p.requires_grad])


def check_optimizer(optimizer: object, inplace: bool) -> None:
    """Refuse what is not an optimizer, and one whose network is not the one that is changed."""
    if optimizer is None:
        return
    if not isinstance(optimizer, Optimizer):
        raise OptionError(
            f"Expected optimizer to be a torch.optim.Optimizer but got a "
            f"{type(optimizer).__name__}."
        )
    if isinstance(optimizer, LBFGS):
        raise OptionError(
            "LBFGS takes one group of parameters and keeps a list of them, so none can join or "
            "leave. Leave optimizer= out, and build LBFGS afterwards."
        )
    if not inplace:
        raise OptionError(
            "optimizer= is for inplace=True: a copy has parameters of its own, which the optimizer "
            "of the original does not train. Pass inplace=True, or build the optimizer afterwards."
        )


def _parameters(network: nn.Module) -> dict[int, tuple[str, nn.Parameter]]:
    return {id(p): (name, p) for name, p in network.named_parameters()}


def _take_out(optimizer: Optimizer, gone: set[int]) -> None:
    for group in optimizer.param_groups:
        kept = [place for place, p in enumerate(group["params"]) if id(p) not in gone]
        for p in group["params"]:
            if id(p) in gone:
                optimizer.state.pop(p, None)
        for names in ("params", "param_names"):
            if names in group:
                group[names] = [group[names][place] for place in kept]
    # In place, since schedulers hold the list; a group that was empty before is the user's affair.
    if gone:
        optimizer.param_groups[:] = [g for g in optimizer.param_groups if g["params"]]


def _add(optimizer: Optimizer, named: list[tuple[str, nn.Parameter]]) -> None:
    if not named:
        return
    first = optimizer.param_groups[0]
    settings = {key: v for key, v in first.items() if key not in ("params", "param_names")}
    params = named if "param_names" in first else [p for _, p in named]
    optimizer.add_param_group({**settings, "params": params})
