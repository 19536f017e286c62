"""A network's guard: before each run, every gate that was inserted is still there and acts.

What a block can see, it sees itself (`_outputs`, `_additions`). What it cannot see is that it was
exchanged for another, or taken out. The network that gates were inserted into looks for that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from torch import nn

from attnlab._errors import GateLostError, SiteError
from attnlab.gates import InstanceEnhancementBatchNorm
from attnlab.residuals.attachment import Attachment
from attnlab.residuals.became import what_became_of
from attnlab.surgery.insertion._hosted import Hosted, hosted_by
from attnlab.surgery.insertion._outputs import HOOK, WHAT_TO_DO, OutputHook, gate_names


class Guard:
    """The gates of a network, the modules in which they act, and the way there."""

    def __init__(self) -> None:
        self.gates: list[Attachment] = []
        self.norms: dict[str, nn.Module] = {}
        """Norms with a gate inside (IEBN), by the names that they had at insertion."""
        self.looked = False
        """Whether what follows was found since the last gate came."""
        self.carried: list[Hosted] = []
        self.carriers: list[nn.Module] = []
        """The modules that carry something; they look after all their children."""
        self.ways: list[tuple[nn.Module, str]] = []
        """Of other modules, the names of those children that lead to a gate ..."""
        self.ends: list[nn.Module] = []
        """... and those children."""

    over_tokens = False
    """Whether a gate looks over all tokens, so that the padding of a call must be known."""
    mask_position: int | None = None
    """Which positional argument of the network is its `attention_mask`."""

    def add(self, gate: Attachment) -> None:
        """Guard one more gate, and the norms in it that have a gate inside."""
        self.gates.append(gate)
        self.add_norms(gate, gate.name)

    def add_norms(self, module: nn.Module, path: str = "") -> None:
        """Guard all norms in `module`, which is named `path`, that have a gate inside."""
        for name, each in module.named_modules(prefix=path):
            if isinstance(each, InstanceEnhancementBatchNorm):
                self.norms[name] = each
        self.looked = False

    def check(self, network: nn.Module) -> None:
        """Raise `GateLostError` unless all gates act; in a network that was re-arranged too."""
        if "_is_replica" in network.__dict__:
            raise SiteError(
                "nn.DataParallel runs copies of a network's modules without their gates. Use "
                "nn.parallel.DistributedDataParallel."
            )
        children = [hosted.children for hosted in self.carried]
        if (
            not self.looked
            or [parent._modules.get(name) for parent, name in self.ways] != self.ends
            or [carrier._modules for carrier in self.carriers] != children
            or not self._hooked()
        ):
            self.look(network)

    def _hooked(self) -> bool:
        """Some tools clear all hooks."""
        for hosted in self.carried:
            for hook in hosted.outputs.values():
                if hook.host._forward_hooks.get(HOOK) is not hook:
                    return False
        return True

    def look(self, network: nn.Module) -> None:
        """Let gates follow the modules where they act, and find all gates wherever they are now."""
        for module in network.modules():
            hosted = hosted_by(module)
            if hosted is not None:
                hosted.look(module)
        lost = lost_gates(network, self.gates)
        if lost:
            raise _lost_error(network, lost)
        for name in self._lost_norms(network):
            raise _lost_norm_error(network, name)
        self._find_ways(network)

    def without(self, network: nn.Module, gone: Collection[int]) -> Guard | None:
        """The guard when gates with these ids were taken off; None if there is nothing to guard."""
        inside = {id(m) for gate in self.gates if id(gate) in gone for m in gate.modules()}
        self.norms = {name: norm for name, norm in self.norms.items() if id(norm) not in inside}
        self.gates = [gate for gate in self.gates if id(gate) not in gone]
        if not self.gates and not self.norms:
            return None
        self.look(network)
        return self

    def forget_lost_norms(self, network: nn.Module) -> None:
        """Go on without the norms with a gate inside that are not in `network` any more."""
        for name in self._lost_norms(network):
            del self.norms[name]

    def _lost_norms(self, network: nn.Module) -> list[str]:
        there = {id(module) for module in network.modules()}
        return [name for name, norm in self.norms.items() if id(norm) not in there]

    def _find_ways(self, network: nn.Module) -> None:
        # New lists, not changed ones: other threads may be reading the old.
        modules = dict(network.named_modules())
        guarded = {id(each) for each in (*self.gates, *self.norms.values())}
        carrying = {path: hosted for path, m in modules.items() if (hosted := hosted_by(m))}
        ends = {*carrying, *(path for path, m in modules.items() if id(m) in guarded)}
        on_the_way = {part for path in ends if path for part in _beginnings(path)}
        # Who carries something follows an exchanged child at once, which a norm must not be.
        ways = [
            path
            for path, module in modules.items()
            if path in on_the_way
            and (
                path.rpartition(".")[0] not in carrying
                or isinstance(module, InstanceEnhancementBatchNorm)
            )
        ]
        self.ways = [(modules[path.rpartition(".")[0]], path.rpartition(".")[2]) for path in ways]
        self.ends = [modules[path] for path in ways]
        self.carriers = [modules[path] for path in carrying]
        self.carried = list(carrying.values())
        self.looked = True


def _beginnings(path: str) -> Iterator[str]:
    """`a`, `a.b` and `a.b.c` of `a.b.c`."""
    parts = path.split(".")
    for length in range(1, len(parts) + 1):
        yield ".".join(parts[:length])


def lost_gates(network: nn.Module, gates: list[Attachment]) -> list[Attachment]:
    """Those of `gates` that are not in `network` any more, or act nowhere in it."""
    there = {id(module) for module in network.modules()}
    acting = {id(gate) for module in network.modules() for gate in acting_in(module)}
    return [
        gate
        for gate in gates
        if not gate.removed and not (id(gate) in there and id(gate) in acting)
    ]


def acting_in(module: nn.Module) -> Iterator[Attachment]:
    """The gates that act at the additions of `module`, behind its output, or behind a child's."""
    hosted = hosted_by(module)
    if hosted is not None:
        for gated in hosted.additions:
            yield from gated.attachments
        for name, kept in hosted.outputs.items():
            if module._modules.get(name) is not None:
                yield from kept.attachments
    hook = module._forward_hooks.get(HOOK)
    if isinstance(hook, OutputHook) and hook.live:
        yield from hook.attachments


def _lost_norm_error(network: nn.Module, name: str) -> GateLostError:
    return GateLostError(
        f"The norm {name!r} had a gate inside (iebn), but it was {what_became_of(network, name)} "
        f"after insertion, and {type(network).__name__} would answer without the gate. {WHAT_TO_DO}"
    )


def _lost_error(network: nn.Module, lost: list[Attachment]) -> GateLostError:
    first = lost[0]
    at = first.site.module or type(network).__name__
    where = f"behind {at!r}" if first.site.host == "output" else f"at an addition of {at!r}"
    more = f", and {len(lost) - 1} more are lost as well" if len(lost) > 1 else ""
    return GateLostError(
        f"The {gate_names([first])} acted {where}, but a module on the way there was exchanged for "
        f"another after insertion, and {type(network).__name__} would answer without the gate"
        f"{more}. {WHAT_TO_DO}"
    )
