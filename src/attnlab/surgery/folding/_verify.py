"""Check a fold where it can be checked: in float64, at every site and at the output."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from math import inf

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from attnlab._errors import AttnlabError, FoldError, InputError
from attnlab.residuals import SeenStep, Step, Watchable, watchable
from attnlab.residuals.example import Example
from attnlab.residuals.graph import Graph
from attnlab.residuals.listing import list_modules
from attnlab.residuals.selection import Call
from attnlab.residuals.steps import find_steps
from attnlab.residuals.watching import watchable_in, watching
from attnlab.surgery.answer import Answer, answer
from attnlab.surgery.change import Change, change_between, largest_change
from attnlab.surgery.double import (
    EXACT,
    MOST_PARAMETERS,
    Absent,
    coarsest_type,
    copied,
    double_copy,
    double_example,
    resolved_by,
)
from attnlab.surgery.folding._fuse import merge_layers
from attnlab.surgery.folding._ids import along
from attnlab.surgery.folding._places import PlaceKey
from attnlab.surgery.folding._plan import offsets, values
from attnlab.surgery.folding._surgery import Surgery
from attnlab.surgery.folding._taps import Tap, Taps, tapped
from attnlab.surgery.folding._walk import Scaling
from attnlab.surgery.original import Original

_DOES_NOT_RUN = (RuntimeError, TypeError, ValueError, AssertionError, AttnlabError)


class _Keeps(Taps):
    """Keeps what passes `places`; gates with a tap are held."""

    def __init__(self, taps: Mapping[str, Tap], places: Set[PlaceKey]) -> None:
        super().__init__(taps)
        self.places = places
        self.tensors: dict[PlaceKey, Tensor] = {}

    def step_seen(self, seen: SeenStep) -> None:
        if seen.step.key in self.places:
            self.passed(seen.step.key, seen.branch.detach())

    def passed(self, place: PlaceKey, tensor: Tensor) -> None:
        """`tensor` is what the network has at `place`."""
        self.tensors[place] = tensor.clone()

    def behind(self, module: str) -> Callable[..., None]:
        """A hook that shows the module's output."""

        def hook(_module: nn.Module, _arguments: object, output: Tensor) -> None:
            self.passed(module, output.detach())

        return hook


class _Compares(_Keeps):
    """Compares what passes `places` with what was kept there, and lets go of both."""

    def __init__(self, kept: dict[PlaceKey, Tensor], places: Set[PlaceKey]) -> None:
        super().__init__({}, places)
        self.kept = kept
        # Infinite if there is nothing to compare: what is not known does not pass.
        self.errors: dict[PlaceKey, float] = dict.fromkeys(places, inf)

    def passed(self, place: PlaceKey, tensor: Tensor) -> None:
        self.errors[place] = _error(self.kept.get(place), tensor)


def check_exact(
    model: nn.Module, surgery: Surgery, original: Original, *, fuse: bool
) -> tuple[dict[PlaceKey, float], float | None, list[str]]:
    """Fold a float64 copy and compare: errors by place, relative change of the output, notes.

    The comparison is with the network whose gates are held at the constants that were folded. A
    network that does not run in float64 is compared in its own precision. Of one that returns a
    set, what the calls of `original` return is compared: what it selects from.
    """
    example = original.example
    if original.parameters > MOST_PARAMETERS:
        reason = f"it has more than {MOST_PARAMETERS:,} parameters"
    else:
        exact = double_copy(model, surgery.leaving(model))
        given = double_example(exact, example)
        try:
            parts = _parts(given, original.run.graph)
            errors, change = _compare(exact, surgery, original, parts, fuse=fuse)
            if len(parts) > 1 and not _agree(surgery, errors, change, EXACT):
                exact = double_copy(model, surgery.leaving(model))
                errors, change = _compare(exact, surgery, original, [given], fuse=fuse)
        except (RuntimeError, TypeError, InputError) as error:
            cause = str(error.__cause__ or error).splitlines()[0]
            reason = f"it does not run in float64: {cause}"
        else:
            most = EXACT
            notes: list[str] = []
            if not _agree(surgery, errors, change, EXACT):
                most, notes = _resolved(exact, surgery, given)
            _require(surgery, errors, change, most, "float64")
            return errors, change.relative, [*notes, *_selected(change, most, "float64")]
    own = copied(model, surgery.leaving(model))
    errors, change = _compare(own, surgery, original, [example], fuse=fuse)
    parameter = next(p for p in model.parameters() if p.is_floating_point())
    precision = str(parameter.dtype).removeprefix("torch.")
    most = min(1e4 * torch.finfo(parameter.dtype).eps, 0.3)
    _require(surgery, errors, change, most, precision)
    notes = [f"checked in {precision} only (to {most:.0e}), because {reason}"]
    return {}, None, [*notes, *_selected(change, most, precision)]


def _agree(surgery: Surgery, errors: Mapping[PlaceKey, float], change: Change, most: float) -> bool:
    """Whether all is within `most`, written so that a NaN is not."""
    within = all(errors[p.key] <= most for p in surgery.places if p.folded)
    return within and change.relative is not None and change.relative <= most


def _resolved(
    exact: nn.Module, surgery: Surgery, example: Example | None
) -> tuple[float, list[str]]:
    """What a float64 copy that casts inside can resolve, and what to say of it: two right results
    differ by the rounding of the coarsest type that it passes. Of a weight to which the network
    adds 1 (Gemma's norms), that is the rounding of 1, however small their sum."""
    coarsest = coarsest_type(exact, example)
    if coarsest == torch.float64:
        return EXACT, []
    most = resolved_by(coarsest)
    parameters = dict(exact.named_parameters())
    for weight, offset in offsets(surgery.decided).items():
        largest = float((parameters[weight].detach() + offset).abs().max())
        most = max(most, 10 * torch.finfo(coarsest).eps * abs(offset) / max(largest, 1e-3))
    name = str(coarsest).removeprefix("torch.")
    return most, [f"checked to {most:.0e}, because the network casts to {name} inside"]


def _selected(change: Change, most: float, precision: str) -> list[str]:
    """What to say of a network that selects differently from the same."""
    if change.of_output is None or change.of_output <= most:
        return []
    return [
        f"in {precision} it selects differently from what is the same to {change.relative:.0e}, "
        f"as it does where scores tie"
    ]


_LARGE, _GRID = 128, 32
"""Images of so many pixels a side are cut to one that strides of 32 divide."""


def _parts(example: Example, graph: Graph) -> list[Example]:
    """A part of the images, if they can be cut, and the whole."""
    if not isinstance(example, Tensor) or example.ndim != 4:
        return [example]
    side = min(example.shape[2:])
    part = side // 2 // _GRID * _GRID if side >= _LARGE else side // 2 * _halves(graph)
    return [example[:, :, :part, :part].contiguous(), example] if part else [example]


def _halves(graph: Graph) -> bool:
    """Whether every map that a kernel of several pixels makes or reads has an even side of at least
    8 pixels. In half of the image it has 4: all of the kernel still meets pixels, and a channel
    that a relu cuts at some places is seen at others. In one pixel, what is right in the middle of
    a kernel alone would pass."""
    sides = {
        side
        for node in graph.nodes
        if node.kind == "convolution" and len(node.inputs) > 1
        if any(length > 1 for length in graph.nodes[node.inputs[1]].shape[2:])
        for map_shape in (node.shape, graph.nodes[node.inputs[0]].shape)
        for side in map_shape[2:]
    }
    return bool(sides) and all(side >= 8 and side % 2 == 0 for side in sides)


def _compare(
    network: nn.Module,
    surgery: Surgery,
    original: Original,
    examples: Sequence[Example | None],
    *,
    fuse: bool,
) -> tuple[dict[PlaceKey, float], Change]:
    """Run `network`, fold it, and run it again: one copy of the weights serves both.

    The first of `examples` is taken on which the network calls the same modules as the original:
    what is proved there of the weights holds for images of any size, and on all of a large image
    a run in float64 takes as long as three in float32.
    """
    compared = _compared(surgery)
    places = {at for several in compared.values() for at in several}
    held = {gate.name: Tap(gate.constant) for place in surgery.places for gate in place.folded}
    own = dict(p.gate_of for p in surgery.places if p.folded and p.gate_of is not None)
    kept = _Keeps(held, places)
    # Steps and gates of a copy have the names of the original's. Nobody asks for steps where
    # inserted gates follow modules: finding them takes half as long as a small network's forward.
    asks = any(place.own for place in surgery.places) or not all(isinstance(p, str) for p in places)
    there = find_steps(original.run.graph) if asks else ()
    found = watchable_in(network, original.run, there, own)
    example, expected = _first_alike(network, kept, found, examples, original)
    surgery.perform(network)
    _scale_by_later(kept.tensors, surgery)
    comparing = _Compares(kept.tensors, places)
    steps = _steps_without_gates(surgery, found.steps)
    if own:  # the network lost modules, so its additions may be counted otherwise
        steps = watchable(network, example).steps
    folded = replace(found, steps=steps, gates=())
    after = _watched(network, comparing, folded, example, original.calls)
    errors = {key: max(comparing.errors[at] for at in several) for key, several in compared.items()}
    if fuse:
        merge_layers(network, example)
        after = answer(network, example, original.calls, counted=False)
    change = change_between(expected, after)
    if not original.calls and change.relative is not None and change.of_output is not None:
        # Nothing is selected, so all of the output must be there.
        change = replace(change, relative=change.of_output)
    return errors, change


def _scale_by_later(kept: dict[PlaceKey, Tensor], surgery: Surgery) -> None:
    """Give what was kept inside of another step's branch the gate of that step: it goes into the
    same parameters, so that the folded network has both there. `kept` is in the order of the run.
    """
    by_key = {place.key: place for place in surgery.places if place.scale is None}
    scalings = {key: surgery.decided.get(key) for key in kept if key in by_key}
    ordered = [(key, each) for key, each in scalings.items() if isinstance(each, Scaling)]
    takers: dict[str, list[int]] = defaultdict(list)
    for number, (_, scaling) in enumerate(ordered):
        for name in scaling.parameters:
            takers[name].append(number)
    for number, (key, first) in enumerate(ordered):
        sharing = {other for name in first.parameters for other in takers[name] if other > number}
        for later, second in (ordered[other] for other in sorted(sharing)):
            site = by_key[key].site
            factor = _factor_of(first, second, site.channels, values(by_key[later]))
            if factor is not None:
                shape = along(factor, site.channel_axis, kept[key].shape)
                kept[key] *= shape.to(kept[key])


def _factor_of(first: Scaling, second: Scaling, channels: int, gates: Tensor) -> Tensor | None:
    """What `second` multiplies each channel of `first` by, in a parameter that both scale; None if
    there is none, or if that differs within a channel."""
    name = next((name for name in first.parameters if name in second.parameters), None)
    if name is None:
        return None
    own, other = first.parameters[name].flatten(), gates[second.parameters[name].flatten()]
    scaled = (own >= 0) & (own < channels)
    factor = torch.ones(channels, dtype=gates.dtype)
    factor[own[scaled]] = other[scaled]
    return factor if torch.equal(factor[own[scaled]], other[scaled]) else None


def _first_alike(
    network: nn.Module,
    kept: _Keeps,
    found: Watchable,
    examples: Sequence[Example | None],
    original: Original,
) -> tuple[Example | None, Answer]:
    """The first example on which the network takes the original's path, or the last; its answer."""
    *parts, whole = examples
    # Gates that are held do nothing that could differ.
    names = {id(m): name for name, m in list_modules(network) if not isinstance(m, Absent)}
    there = set(names.values())
    before = {name: n for name, n in original.run.graph.calls.items() if name in there}
    for part in parts:
        calls: Counter[str] = Counter()
        with suppress(*_DOES_NOT_RUN), _counting(names, calls):
            expected = _watched(network, kept, found, part, original.calls)
            if calls == before:
                return part, expected
    kept.tensors.clear()
    return whole, _watched(network, kept, found, whole, original.calls)


@contextmanager
def _counting(names: Mapping[int, str], calls: Counter[str]) -> Iterator[None]:
    """Count in `calls` how often each module is called, of those that have `names` by their ids."""

    def count(module: nn.Module, _arguments: object) -> None:
        name = names.get(id(module))
        if name is not None:
            calls[name] += 1

    handle = register_module_forward_pre_hook(count)
    try:
        yield
    finally:
        handle.remove()


def _compared(surgery: Surgery) -> dict[PlaceKey, Sequence[PlaceKey]]:
    """Where gated and folded network must agree: after the gates of each place, or after the
    layers that take its gate on their input. Of gates in front of an output projection, at the
    addition: that layer may take another gate of the branch as well."""
    found: dict[PlaceKey, Sequence[PlaceKey]] = {}
    for place in surgery.places:
        scaling = surgery.decided.get(place.key)
        if isinstance(scaling, Scaling):
            inside = place.site.host == "input"
            found[place.key] = () if inside else scaling.behind
            found[place.key] = found[place.key] or (place.seen_at,)
    return found


def _steps_without_gates(surgery: Surgery, steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps of the folded network: where a gate went from an addition, the one that it was
    inserted at. Which operand is the branch may differ, because a gate adds in an order of its own.
    """
    plain = {
        place.key: place.site.step
        for place in surgery.places
        if place.site.step is not None and not place.kept
    }
    return tuple(plain.get(step.key, step) for step in steps)


def _watched(
    network: nn.Module,
    keeps: _Keeps,
    found: Watchable,
    example: Example | None,
    calls: Sequence[Call],
) -> Answer:
    """The answer of one run, in which `keeps` is shown what it asks for."""
    with ExitStack() as hooks:
        for at in keeps.places:
            if isinstance(at, str):
                module = network.get_submodule(at)
                hooks.enter_context(module.register_forward_hook(keeps.behind(at)))
        asked = tuple(step for step in found.steps if step.key in keeps.places)
        hooks.enter_context(
            watching(network, keeps, found=tapped(replace(found, steps=asked), keeps.taps))
        )
        return answer(network, example, calls, counted=False)


def _error(before: Tensor | None, after: Tensor) -> float:
    if before is None or before.shape != after.shape:
        return inf
    error, size, _ = largest_change([(before, after)])
    return inf if error is None else error / size if size > 0 else error


def _require(
    surgery: Surgery,
    errors: dict[PlaceKey, float],
    change: Change,
    most: float,
    precision: str,
) -> None:
    # Written so that a NaN does not pass.
    wrong = [p for p in surgery.places if p.folded and not errors[p.key] <= most]
    if not wrong and change.relative is not None and change.relative <= most:
        return
    if change.relative is None:
        raise FoldError(
            f"The folded network cannot be compared with the original in {precision}, so it is not "
            f"handed out: {change.compared}. Pass an example on which it answers: example=..."
        )
    listed = "".join(f"\n  {place.name}: error {errors[place.key]:.1e}." for place in wrong)
    said = f"; {change.compared}" if change.compared else ""
    raise FoldError(
        f"The folded network differs from the original in {precision} (relative change of the "
        f"output {change.relative}{said}), so it is not handed out. Does the network compute "
        f"something else on each run, or read the gated tensor in a way that one run does not "
        f"show?{listed}"
    )
