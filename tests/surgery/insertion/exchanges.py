"""Exchange modules of random networks with gates, and say by hand what must come of it.

The same exchange is made in a plain copy of the network, whose modules are multiplied by what the
gates' formulas give, written out here. A gate whose place does not run there any more is lost; then
the network with gates has to refuse, and otherwise to give the same output.

`python -m tests.surgery.insertion.exchanges` prints the table of docs/how-to/tools.md.
"""

from __future__ import annotations

import copy
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

import attnlab
from attnlab._errors import GateLostError, SiteError
from attnlab.residuals import Site
from attnlab.residuals.attachment import Attachment
from attnlab.surgery.insertion import attachments
from attnlab.surgery.insertion._hosted import hosted_by
from attnlab.surgery.insertion._outputs import HOOK

CHANNELS = 4
NETWORKS = 30
EXCHANGES = 20
"""Of each network."""
OF_STEPS = ("asr:se", "se", "eca", "step")
OF_MODULES = ("asr:se", "se", "eca")
Factor = Callable[[Tensor, Tensor | None], Tensor]
"""What a gate is for a branch and the state that it is added to, which only a step gate reads."""


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 1)
        self.norm = nn.BatchNorm2d(CHANNELS)

    def forward(self, x):
        return torch.tanh(self.norm(self.conv(x)))


class Residual(nn.Module):
    """Its branch is what a module returns; or only its addition shows it. The reference can
    multiply it."""

    def __init__(self, branch: nn.Module, *, hidden: bool) -> None:
        super().__init__()
        self.branch = branch
        self.hidden = hidden
        self.factors: list[Factor] = []
        self.runs = 0

    def forward(self, x):
        branch = self.branch(x)
        if self.hidden:
            branch = torch.tanh(branch)
        for factor in self.factors:
            branch = branch * factor(branch, x)
            self.runs += 1
        return x + branch


class Listed(nn.Module):
    def __init__(self, parts: list[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def features(self, x):
        for part in self.parts:
            x = part(x)
        return x

    def forward(self, x):
        return self.features(x)


class Aliased(nn.Module):
    """Has every module under two names, and runs those of the second."""

    def __init__(self, parts: list[nn.Module]) -> None:
        super().__init__()
        self.named = nn.ModuleDict({f"part{i}": part for i, part in enumerate(parts)})
        self.row = nn.Sequential(*parts)

    def features(self, x):
        return self.row(x)

    def forward(self, x):
        return self.features(x)


class Unused(nn.Module):
    """Keeps a module that it does not run."""

    def __init__(self, kept: nn.Module) -> None:
        super().__init__()
        self.kept = kept

    def forward(self, x):
        return x


def random_network(rng: random.Random, depth: int = 2) -> nn.Module:
    """Nested rows and lists of layers and residual blocks; some modules have two names, and some
    run twice."""
    parts = [_random_part(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    parts.append(Residual(Layer(), hidden=rng.random() < 0.5))  # at least one step
    if rng.random() < 0.2:
        parts.append(parts[0])
    made = rng.choice((_row, _row, Listed, Listed, Aliased))
    return made(parts)


def _row(parts: list[nn.Module]) -> nn.Module:
    return nn.Sequential(*parts)


def _random_part(rng: random.Random, depth: int) -> nn.Module:
    nested = depth > 0 and rng.random() < 0.5
    inner = random_network(rng, depth) if nested else Layer()
    return Residual(inner, hidden=rng.random() < 0.5) if rng.random() < 0.7 else inner


EXCHANGED_FOR = (
    "a copy of itself",
    "a plain one",
    "`nn.Identity()`",
    "another network's",
    "a row with itself in it",
    "one that keeps it and does not run it",
)
WHERE = (
    "a module after which a gate acts",
    "a module with gates inside",
    "a module with two names",
    "any other",
)


class Case(NamedTuple):
    """What was exchanged for what, and what the network with gates made of it."""

    what: str
    where: str
    by: str
    lost: int
    """Gates whose places do not run any more."""
    outcome: str
    """`equal`, `refused`, or what is wrong."""


def run_cases(networks: int = NETWORKS) -> list[Case]:
    """Random networks, in each of which one module after the other is exchanged; the same each
    time."""
    return [case for seed in range(networks) for case in _cases_of_a_network(seed)]


def _cases_of_a_network(seed: int) -> Iterator[Case]:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    plain = random_network(rng).eval().double()
    images = torch.randn(2, CHANNELS, 3, 3, dtype=torch.float64)
    gated = _gated(rng, plain, images)
    other, _ = attnlab.insert(random_like(plain), "asr:se", where=_allowed, example=images)
    factors = [_by_hand(each) for _, each in attachments(gated)]
    paths = [name for name, _ in plain.named_modules(remove_duplicate=False) if name]
    for _ in range(EXCHANGES):
        path = rng.choice(paths)
        runs = not isinstance(plain.get_submodule(path), nn.ModuleList | nn.ModuleDict)
        by = rng.choice(EXCHANGED_FOR if runs else (*EXCHANGED_FOR[:2], EXCHANGED_FOR[3]))
        through_attribute = rng.random() < 0.5
        made, reference = copy.deepcopy(gated), copy.deepcopy(plain)
        places = _places(reference, gated, factors)
        for network in (made, reference):
            _exchange(network, path, by, plain, other, through_attribute)
        outcome = _outcome(made, reference, places, images)
        yield Case(f"{path} of network {seed}", _where(gated, path), by, *outcome)


def random_like(network: nn.Module) -> nn.Module:
    """The same network with other weights."""
    made = copy.deepcopy(network)
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made


def _gated(rng: random.Random, plain: nn.Module, images: Tensor) -> nn.Module:
    """A copy with random gates at steps, after some modules, or both."""
    once = _called_once(plain, images)
    names = sorted(rng.sample(once, min(len(once), rng.randint(1, 3))))
    which = rng.choice(("steps", "names", "both"))
    network = plain
    if which != "names":
        gate = rng.choice(OF_STEPS)
        network, _ = attnlab.insert(network, gate, where=_allowed, example=images)
    if which != "steps" and names:
        network, _ = attnlab.insert(network, rng.choice(OF_MODULES), where=names, example=images)
    for _, attachment in attachments(network):  # not where they start, at which some are constant
        for parameter in attachment.parameters():
            nn.init.normal_(parameter)
    return network


def _by_hand(attachment: Attachment) -> Factor:
    """The formula of a gate."""
    gate = attachment.gate_module
    weights = {name: tensor.detach().clone() for name, tensor in gate.state_dict().items()}
    kind = type(gate).__name__
    if kind == "LearnedVectorGate":
        constant = attachment.constant()
        return lambda _branch, _state: constant[None, :, None, None]
    if kind == "SqueezeExcitation":
        w1, b1, w2, b2 = (
            weights[f"excitation.{layer}.{name}"]
            for layer in ("fc1", "fc2")
            for name in ("weight", "bias")
        )

        def excited(branch: Tensor, _state: Tensor | None) -> Tensor:
            hidden = torch.relu(branch.mean((2, 3)) @ w1.T + b1)
            return torch.sigmoid(hidden @ w2.T + b2)[:, :, None, None]

        return excited
    if kind == "EfficientChannelAttention":
        kernel = weights["conv.weight"]

        def convolved(branch: Tensor, _state: Tensor | None) -> Tensor:
            means = branch.mean((2, 3))[:, None]
            along = nn.functional.conv1d(means, kernel, padding=kernel.shape[2] // 2)
            return torch.sigmoid(along)[:, 0, :, None, None]

        return convolved
    assert kind == "StepAdaptor", kind
    conv, norm, ie = (
        {key.rpartition(".")[2]: w for key, w in weights.items() if f".{layer}." in key}
        for layer in ("conv", "norm", "ie")
    )

    def stepped(branch: Tensor, state: Tensor | None) -> Tensor:
        here, there = state.mean((2, 3)), (state + branch).mean((2, 3))
        value = conv["weight"][0] * here + conv["weight"][1] * there
        value = (value - norm["running_mean"]) / (norm["running_var"] + 1e-5).sqrt()
        value = value * norm["weight"] + norm["bias"]
        return torch.sigmoid(ie["weight"] * value + ie["bias"])[:, :, None, None]

    return stepped


def _allowed(site: Site) -> bool:
    return not site.refusal


def _called_once(network: nn.Module, images: Tensor) -> list[str]:
    calls: Counter[str] = Counter()
    handles = [
        module.register_forward_hook(lambda *_, name=name: calls.update([name]))
        for name, module in network.named_modules()
        if name
    ]
    network(images)
    for handle in handles:
        handle.remove()
    return [name for name in calls if calls[name] == 1]


class Place:
    """Where a gate acts in the reference: after a child of a module, or at its addition."""

    def __init__(self, keeper: nn.Module, name: str, factor: Factor) -> None:
        self.keeper, self.name, self.factor = keeper, name, factor
        self.runs = 0

    def act(self) -> None:
        """Multiply, from now on."""
        if not self.name:
            self.keeper.factors.append(self.factor)
            return
        child = self.keeper._modules[self.name]
        child._forward_hooks.pop(HOOK, None)  # a gate of the network that it came from
        child.register_forward_hook(self._multiply)

    def _multiply(self, module: nn.Module, arguments: object, output: Tensor) -> Tensor:
        del module, arguments
        self.runs += 1
        return output * self.factor(output, None)

    @property
    def acted(self) -> bool:
        return bool(self.runs if self.name else self.keeper.runs)


def _places(reference: nn.Module, gated: nn.Module, factors: list[Factor]) -> list[Place]:
    places = []
    for (_, attachment), factor in zip(attachments(gated), factors, strict=True):
        site, name = attachment.site, ""
        keeper = site.module
        if site.host == "output":
            keeper, _, name = keeper.rpartition(".")
        places.append(Place(reference.get_submodule(keeper), name, factor))
    return places


def _where(gated: nn.Module, path: str) -> str:
    module = gated.get_submodule(path)
    names = [n for n, m in gated.named_modules(remove_duplicate=False) if m is module]
    keepers = [
        gated.get_submodule(
            a.site.module.rpartition(".")[0] if a.site.host == "output" else a.site.module
        )
        for _, a in attachments(gated)
    ]
    if len(names) > 1:
        return WHERE[2]
    if any(keeper is each for keeper in keepers for each in module.modules()):
        return WHERE[1]
    return WHERE[0] if HOOK in module._forward_hooks else WHERE[3]


def _exchange(
    network: nn.Module, path: str, by: str, plain: nn.Module, other: nn.Module, attribute: bool
) -> None:
    own = network.get_submodule(path)
    new = {
        EXCHANGED_FOR[0]: lambda: copy.deepcopy(own),
        EXCHANGED_FOR[1]: lambda: copy.deepcopy(plain.get_submodule(path)),
        EXCHANGED_FOR[2]: nn.Identity,
        EXCHANGED_FOR[3]: lambda: copy.deepcopy(other.get_submodule(path)),
        EXCHANGED_FOR[4]: lambda: nn.Sequential(own),
        EXCHANGED_FOR[5]: lambda: Unused(own),
    }[by]()
    parent, _, name = path.rpartition(".")
    if attribute:
        setattr(network.get_submodule(parent), name, new)
    else:
        network.get_submodule(parent)._modules[name] = new


def is_fresh(network: nn.Module) -> bool:
    """Whether nothing changes for the modules that carry gates if they look anew."""
    carried = [hosted for each in network.modules() if (hosted := hosted_by(each)) is not None]
    before = [(hosted.only, hosted.marks) for hosted in carried]
    for hosted in carried:
        hosted.refresh()
    return before == [(hosted.only, hosted.marks) for hosted in carried]


def _outcome(
    gated: nn.Module, reference: nn.Module, places: list[Place], images: Tensor
) -> tuple[int, str]:
    for place in places:
        place.act()
    with torch.no_grad():
        want = reference(images)
        lost = sum(not place.acted for place in places)
        try:
            by_method = getattr(gated, "features", gated)  # as people run a network, too
            # What was looked at once is not looked at again.
            got = [run(images) for run in (by_method, gated, gated, by_method)]
        except GateLostError:
            return lost, "refused" if lost else "refused without a reason"
        except SiteError:  # another number of additions: which one is gated cannot be told
            return lost, "refused"
    if lost:
        return lost, f"answers without {lost} gates"
    if not all(torch.allclose(each, want) for each in got):
        return lost, "another output"
    if not is_fresh(gated):
        return lost, "equal, by what was carried before"
    return lost, "equal"


def table(cases: Iterable[Case]) -> list[str]:
    """The lines of the table of docs/how-to/tools.md."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for case in cases:
        counts[case.by, case.where][case.outcome] += 1
    lines = [f"| exchanged for | {' | '.join(WHERE)} |", "|---" * (len(WHERE) + 1) + "|"]
    for by in EXCHANGED_FOR:
        cells = [
            ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts[by, where].items()))
            for where in WHERE
        ]
        lines.append(f"| {by} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    print("\n".join(table(run_cases())))
