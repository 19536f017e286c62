"""The constant gates that a network has of its own: LayerScale, and numbers that scale branches.

What multiplies the end of a step's branch, and is the same for every input, is a gate that was
never inserted: a learned vector (LayerScale of ConvNeXt, CaiT, DINOv2, BEiT), one learned number
(ReZero, SkipInit) or a fixed one (`residual_multiplier` of Granite). The layer before takes it, and
what is left multiplies by 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.residuals.example import Run
from attnlab.residuals.graph import Graph, Node
from attnlab.residuals.site import Site, position_of
from attnlab.residuals.steps import Step, find_steps
from attnlab.surgery.double import exchange
from attnlab.surgery.folding._flow import Flow, replayed, viewed
from attnlab.surgery.folding._ids import Refusal

_CONFIGURED = {"residual_scale": ("scale_depth", lambda config: sqrt(config.num_hidden_layers))}
"""Of numbers that a layer does not have under the name of its configuration (MiniCPM3): the name
there, and the value with which the layer's is 1."""


@dataclass(frozen=True)
class Scale:
    """A multiplication at the end of a branch, by a parameter or an attribute of a module."""

    module: str
    attribute: str
    node: int
    """The multiplication in the recorded run, and what it scales."""
    source: int
    elements: Tensor
    """The numbers of the parameter's elements, laid out as they multiply."""
    alone: bool
    """Whether the module does nothing else."""
    uses: int = 1
    """Of a number: how often its module multiplies or divides by it in one run."""

    @property
    def name(self) -> str:
        return f"{self.module}.{self.attribute}".removeprefix(".")

    def ids(self, shape: tuple[int, ...]) -> Tensor:
        """The element of the scale that multiplies each element of a tensor of this shape."""
        return self.elements.expand(shape)

    def leaves(self, network: nn.Module) -> bool:
        """Return whether its module goes as a whole. In networks of Hugging Face all keys stay:
        what reads their folders would draw a missing scale anew."""
        return self.alone and not hasattr(network, "config")

    def take_out(self, network: nn.Module) -> None:
        """Let `network` multiply by 1 there, or not at all."""
        module = network.get_submodule(self.module)
        if self.leaves(network):
            exchange(network, module, nn.Identity())
        elif isinstance(value := getattr(module, self.attribute), Tensor):
            with torch.no_grad():
                value.fill_(1)
        else:
            setattr(module, self.attribute, 1.0)
            _configure(network, self.attribute)


def _configure(network: nn.Module, attribute: str) -> None:
    """Say it in the configuration too, from which the network is built again."""
    config: Any = getattr(network, "config", None)
    if config is None:
        return
    name, value = _CONFIGURED.get(attribute, (attribute, lambda _config: 1.0))
    setattr(config, name, value(config))


def together(network: nn.Module, scale: Scale) -> str:
    """Return what names all the scales that are one number: of a layer, or of the configuration
    from which all layers have it."""
    value = getattr(network.get_submodule(scale.module), scale.attribute)
    configured = hasattr(network, "config") and not isinstance(value, Tensor)
    return scale.attribute if configured else scale.name


def check_scaling_number(network: nn.Module, scale: Scale, places: int) -> None:
    """Refuse a number that multiplies elsewhere than at the `places` where it scales branches, and
    one that would come back when the network is read again from its folder."""
    config: Any = getattr(network, "config", None)
    value = getattr(network.get_submodule(scale.module), scale.attribute)
    if isinstance(value, Tensor):
        return
    if scale.uses > places:
        raise Refusal(
            f"the number {scale.name!r} also multiplies what is not the end of a step's branch, "
            f"where it must stay"
        )
    if config is None:
        return
    name, _ = _CONFIGURED.get(scale.attribute, (scale.attribute, None))
    if not isinstance(getattr(config, name, None), float | int):
        raise Refusal(
            f"the number {scale.name!r} comes from the network's configuration, which has no "
            f"{scale.attribute!r} that could be set to 1"
        )


def scales(network: nn.Module, run: Run) -> Iterator[tuple[Scale, Site, Tensor]]:
    """The constants other than 1 that scale branches of `network`, each with its site and its
    values."""
    graph = run.graph
    steps = find_steps(graph)
    parameters = dict(network.named_parameters())
    for node in graph.nodes:
        source = scaled_input(graph, node)
        if source is None:
            continue
        step, position = position_of(graph, node, steps)
        if step is None or position != "end":
            continue
        constant = _constant(network, graph, node, source, parameters)
        if constant is not None and bool((constant[1] != 1).any()):
            scale, value = constant
            yield scale, _site(step, scale), value.detach().cpu().double().flatten()


def scaled_input(graph: Graph, node: Node) -> int | None:
    """Return what `node` multiplies by something that does not depend on the input, outside of
    norms, if that is what it does."""
    if node.operation != "mul" or len(node.data_inputs) != 1:
        return None
    (source,) = node.data_inputs
    inside = (node.owner, node.call) in graph.norm_calls
    return None if inside or graph.nodes[source].shape != node.shape else source


def _constant(
    network: nn.Module, graph: Graph, node: Node, source: int, parameters: dict[str, nn.Parameter]
) -> tuple[Scale, Tensor] | None:
    """What multiplies `source` at `node`, if it is a parameter or an attribute of its module."""
    if len(node.inputs) == 2:
        return scale_by_parameter(network, graph, node, source, parameters)
    numbers = [each for each in node.arguments if isinstance(each, float)]
    if len(numbers) != 1:
        return None
    attributes = vars(network.get_submodule(node.owner))
    named = [
        name
        for name, value in attributes.items()
        if value is not None and value == numbers[0] and isinstance(value, float)
    ]
    if len(named) != 1:
        return None
    one = torch.zeros((), dtype=torch.long)
    uses = sum(
        each.owner == node.owner
        and each.operation in ("mul", "div")
        and any(type(number) is float and number == numbers[0] for number in each.arguments)
        for each in graph.nodes
    )
    scale = Scale(node.owner, named[0], node.index, source, one, alone=False, uses=uses)
    return scale, torch.tensor(numbers[0], dtype=torch.float64)


def scale_by_parameter(
    network: nn.Module,
    graph: Graph,
    node: Node,
    source: int,
    parameters: dict[str, nn.Parameter],
) -> tuple[Scale, Tensor] | None:
    """The parameter that multiplies `source` at `node`, as it is or viewed, if nothing else reads
    it."""
    others = [graph.nodes[index] for index in node.inputs if index != source]
    if len(others) != 1:
        return None
    factor, layouts = viewed(graph.nodes, others[0])
    if factor.name not in parameters:
        return None
    on_the_way = {each.index for each in (*layouts, factor)}
    readers = [n.index for n in graph.nodes if on_the_way & set(n.inputs)]
    if readers != [*(each.index for each in reversed(layouts)), node.index]:
        return None
    value = parameters[factor.name]
    elements = torch.arange(value.numel()).reshape(value.shape)
    flow = Flow(graph)
    for each in reversed(layouts):
        (elements,) = replayed(flow, each, each.inputs, [elements])
    module, _, attribute = factor.name.rpartition(".")
    alone = _does_nothing_else(graph, network, module, node)
    return Scale(module, attribute, node.index, source, elements, alone), value


def _does_nothing_else(graph: Graph, network: nn.Module, module: str, node: Node) -> bool:
    """Whether the module's one call is this multiplication of what it is given, and that only."""
    inside = [each for each in graph.nodes if each.data and each.owner == module]
    held = list(network.get_submodule(module).parameters())
    return inside == [node] and len(held) == 1 and (module, 0) in node.produced_by


def _site(step: Step, scale: Scale) -> Site:
    return Site(
        name=scale.module if scale.alone else step.name,
        stage=step.stage,
        block=step.block,
        part=step.part,
        kind=step.kind,
        host="output" if scale.alone else "addition",
        module=scale.module,
        home="",
        attribute="",
        shape=(scale.elements.numel(),),
        channel_axis=0,
        series=0,
        step=step,
        position="end",
    )
