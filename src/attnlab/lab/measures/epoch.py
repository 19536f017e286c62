"""What is measured after every epoch, where that is asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from attnlab._errors import InputError, StepsNotFoundError
from attnlab._spread import evenly_spread
from attnlab.data import Data
from attnlab.instruments.maps import sinks
from attnlab.instruments.measurement import MeasureConfig
from attnlab.instruments.stiffness import Captured, nsi, tns, usable
from attnlab.instruments.stiffness.plan import Plan, plan_steps
from attnlab.instruments.stripe import gate_means, gate_values
from attnlab.residuals import SeenGate
from attnlab.residuals.attachment import CarryAttachment
from attnlab.residuals.example import call, evaluating
from attnlab.residuals.gates import has_gates
from attnlab.residuals.inputs import Inputs, Loaded, head, inputs_of
from attnlab.residuals.watching import Watchable, watching
from attnlab.subject import Subject
from attnlab.surgery.insertion import attachments
from attnlab.tasks import Task

_CHANNELS = 64
"""Channels of a gate whose means are kept epoch by epoch."""
_BATCH = 256


class EpochMeasure:
    """Measures a network while it trains: TNS, and by depth the norm of the state, NSI, gates, the
    gain of carries and attention sinks. For `train(each_epoch=...)`.

    The steps are found once, by one recorded run. After that an epoch costs a forward over the
    images that are asked for, one with attention computed step by step if there are attention
    maps, and one more if there are gates.
    """

    def __init__(self, config: MeasureConfig) -> None:
        asked = config.every_epoch
        self.images = config.images if isinstance(asked, bool) else asked
        self._found: tuple[nn.Module, Plan | None] | None = None
        self._attends = True

    def __call__(
        self, network: nn.Module, task: Task, data: Data, device: torch.device
    ) -> dict[str, object]:
        """The figures by the names that `EpochRecord` has."""
        subject = Subject("", network, data, task=task, batch_size=_BATCH, device=device)
        loaded = list(subject.inputs(self.images))
        inputs = [each for batch in loaded for each in inputs_of(batch, network)]
        plan = self._plan(network, inputs[0])
        record: dict[str, object] = {"tns": None}
        if plan is not None:
            record = by_depth(network, plan, inputs)
        if has_gates(network):
            first = list(subject.inputs(1))
            record |= _gates(network, loaded, first, None if plan is None else plan.found)
        found = self._sinks(network, loaded) if plan is not None else {}
        return {**record, "sink": found} if found else record

    def _plan(self, network: nn.Module, first: Inputs) -> Plan | None:
        if self._found is None or self._found[0] is not network:
            try:
                plan: Plan | None = plan_steps(network, head(first, 1))
            except StepsNotFoundError:
                plan = None
            self._found, self._attends = (network, plan), True
        return self._found[1]

    def _sinks(self, network: nn.Module, batches: Sequence[Loaded]) -> dict[str, float]:
        if not self._attends:
            return {}
        try:
            return _short(sinks(network, batches))
        except (InputError, StepsNotFoundError):  # no attention maps, or none that can be seen
            self._attends = False
            return {}


def by_depth(network: nn.Module, plan: Plan, inputs: Sequence[Inputs]) -> dict[str, object]:
    """TNS, and by the labels of the steps what `EpochRecord` has of each; the steps of `network`
    are those of `plan`."""
    seen = _Seen(plan)
    norms, rates = [], []
    with evaluating(network), watching(network, seen, found=plan.found):
        for each in inputs:
            call(network, each)
            found = seen.norms
            norms.append(found.shortcut.double().cpu())
            rates.append(nsi(found).double().cpu())
    rate, stages = torch.cat(rates), plan.stages
    counted = usable(rate, stages)
    if not counted.any():  # a network that diverged
        return {"tns": None}
    rate, state = rate[counted], torch.cat(norms)[counted]
    labels = [span.first.label for span in plan.spans]
    record: dict[str, object] = {"tns": tns(rate, stages).mean().item()}
    record["state_norm"] = _short(dict(zip(labels, state.mean(0).tolist(), strict=True)))
    record["nsi"] = _short(dict(zip(labels, rate.mean(0).tolist(), strict=True)))
    return {**record, **seen.gate_moments(), **_carries(network)}


class _Seen(Captured):
    """What the epoch showed, with the mean and the spread of the gates that attnlab inserted at the
    ends of branches."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._moments: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])

    def gate_seen(self, seen: SeenGate) -> None:
        super().gate_seen(seen)
        if seen.gate.kind == "inserted" and seen.step is not None and seen.position == "end":
            value = seen.value.detach().double()
            moments = self._moments[seen.step.label]
            moments[0] += value.numel()
            moments[1] += value.sum().item()
            moments[2] += value.square().sum().item()

    def gate_moments(self) -> dict[str, dict[str, float]]:
        """Over all values of a gate, of all its inputs, channels and tokens; nothing without."""
        if not self._moments:
            return {}
        means = {label: total / n for label, (n, total, _) in self._moments.items()}
        spreads = {
            label: max(squares / n - means[label] ** 2, 0.0) ** 0.5
            for label, (n, _, squares) in self._moments.items()
        }
        return {"gate_mean": _short(means), "gate_spread": _short(spreads)}


def _carries(network: nn.Module) -> dict[str, dict[str, float]]:
    with torch.no_grad():
        found = {
            each.site.label: each.carry().double().mean().item()
            for _, each in attachments(network)
            if isinstance(each, CarryAttachment)
        }
    return {"carry": _short(found)} if found else {}


def _gates(
    network: nn.Module, batches: Sequence[Loaded], first: Sequence[Loaded], found: Watchable | None
) -> dict[str, dict[str, list[float]]]:
    """The mean gates of some channels by the name of the gate, and those of the first image."""
    try:
        means = gate_means(network, batches, found=found)
        image = gate_values(network, first, found=found)
    except StepsNotFoundError:
        return {}
    return {
        "gates": {name: _some(mean) for name, mean in means.items()},
        "image_gates": {name: _some(values[0]) for name, values in image.items()},
    }


def _some(means: Tensor) -> list[float]:
    """Some channels, to what float32 holds: gates move by less than 1e-4 in late epochs."""
    chosen = means[evenly_spread(len(means), _CHANNELS)]
    return [float(f"{mean:.7g}") for mean in chosen.tolist()]


def _short(values: Mapping[str, float]) -> dict[str, float]:
    """Round to six digits."""
    return {name: float(f"{value:.6g}") for name, value in values.items()}
