"""A stranger's module that does the multiplying itself, as a gate.

Most public attention modules return `x ⊗ gate`. `Multiplied(module)` runs the module as it is and
returns the gate, which the insertion site multiplies; so it can be watched, measured and made
constant like any other. The gate is not recovered by dividing by the features, which are zero in
many places: the module's own products are followed while it runs, and the factor is computed next
to them by the same operations.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attnlab._errors import InputError, OptionError
from attnlab._types import Maps
from attnlab.gates._gate import BranchGate
from attnlab.gates._product import CHANGED, Followed, checked_value, follow_products, unobserved
from attnlab.gates._shared import Strength, ordered_like


class Multiplied(BranchGate):
    """The gate of `module`, whose output is its input times that gate.

    The module keeps its own state-dict keys, below `module.`. What it may do to its input on the
    way to the output: multiply and divide it by anything else, add and subtract such products,
    change the shape and the order of the axes and change them back. An output that is not such a
    product is refused, with what to do. `ranks` says how many spatial axes its maps may have, which
    the module does not. For `start="identity"` it gets one parameter, `strength`.
    """

    def __init__(self, module: nn.Module, ranks: tuple[int, ...] = (2,)) -> None:
        nn.Module.__init__(self)  # the number of channels is the module's own business
        if not isinstance(module, nn.Module):
            raise OptionError(
                "Expected Multiplied to get a module that returns its input times a gate, built "
                f"for its number of channels, but got {module!r}. For insert, write "
                "lambda channels: Multiplied(Module(channels))."
            )
        self.module = module
        self.ranks = tuple(ranks)
        self.strength = Strength()
        self.has_run = False

    def forward(self, branch: Maps) -> Maps:
        self.check_input(branch)
        if torch.compiler.is_compiling():
            if not self.has_run:
                raise InputError(
                    f"Multiplied({type(self.module).__name__}) has to run once before it is "
                    "compiled or exported: only then can it see whether the module writes to its "
                    "input. Call it, or the network that it is in, with an example."
                )
            return self._gate(branch)
        with unobserved():
            gate = self._gate(branch)
            self.has_run = True
            # A tensor that no one inside has seen, so that who records finds it made of the branch.
            return gate.view_as(gate)

    def check_input(self, features: Tensor) -> None:
        """Raise `InputError` unless `features` is of one of `ranks`; channels are the module's."""
        rank = features.dim() - 2
        if rank not in self.ranks:
            raise InputError(
                f"Multiplied({type(self.module).__name__}) takes maps of "
                f"{' or '.join(map(str, self.ranks))} spatial axes but got "
                f"{tuple(features.shape)}. If the module takes {rank}, build it with "
                f"ranks=({rank},)."
            )

    def start_constant(self) -> float:
        self.strength.start_zero()
        return 1.0

    def extra_repr(self) -> str:
        return f"ranks={self.ranks}"

    def _gate(self, branch: Tensor) -> Tensor:
        factor = self._factor(branch)
        if not isinstance(factor, Tensor):
            factor = branch.new_full((), factor)
        missing = branch.dim() - factor.dim()
        gate = factor.to(branch.dtype).reshape((1,) * missing + tuple(factor.shape))
        gate = self.strength(gate)
        return ordered_like(gate, branch) if gate.shape == branch.shape else gate

    def _factor(self, branch: Tensor) -> Tensor | float:
        given = follow_products(branch, 1.0, ())
        try:
            output = self.module(given)
            checked_value(given)
            if isinstance(output, Followed):
                checked_value(output)
        except InputError as error:
            if str(error) == CHANGED:
                raise self._refusal(branch, CHANGED) from error
            raise
        if not isinstance(output, Tensor):
            raise self._refusal(branch, f"it returned {type(output).__name__}, not a tensor")
        if output.shape != branch.shape:
            shape = tuple(output.shape)
            raise self._refusal(branch, f"it returned a tensor of shape {shape}")
        if not isinstance(output, Followed):
            raise self._refusal(branch, "its output is not its input times something")
        if output.arrangement:
            raise self._refusal(branch, "it returned its input with other axes or other pixels")
        return output.factor

    def _refusal(self, branch: Tensor, what: str) -> InputError:
        return InputError(
            f"Multiplied({type(self.module).__name__}) cannot read a gate: for a map of shape "
            f"{tuple(branch.shape)}, {what}. Only a module that returns its input times a gate has "
            "one; write other attention as a subclass of attnlab.gates.BranchGate that "
            "returns the gate."
        )
