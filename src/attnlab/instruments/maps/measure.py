"""`maps(network, loader)`: does a transformer's attention depend on its input at all?"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d
from torch.utils._pytree import tree_leaves

from attnlab._checked import check_batches, check_module
from attnlab._errors import InputError, StepsNotFoundError
from attnlab.instruments.different import DifferentInputs
from attnlab.instruments.maps._attention import MapKey, MeanMap, distance, handling_maps
from attnlab.instruments.maps.result import HeadMap, LayerMaps, MapsResult
from attnlab.residuals.example import as_call, call, evaluating
from attnlab.residuals.inputs import Batches, Inputs, inputs_of, number_of_inputs
from attnlab.residuals.padding import mask_argument, padding_of_call
from attnlab.subject import Source, subject_of
from attnlab.surgery.change import image_changes

IMAGES = 32
"""How many images, unless the subject was opened with a limit: each head is a pass over them."""
LARGEST_PICTURE = 32
"""Queries and keys that the picture of a map shows at most; larger maps are averaged."""
_SAME = 1e-3
"""Attention that is computed step by step may differ from the fused one by rounding only."""
_OTHERS = 5
"""Passes besides one per head: the network as it is, means, step by step, spreads, all replaced."""


MapHandler = Callable[[MapKey, Tensor, Tensor | None], Tensor]
"""Given a map and which tokens are not padding, answers with the map to use."""
Teller = Callable[[int, int], None]
"""Called after a pass over the inputs, with how many are done and how many there will be."""


def maps(
    network: Source,
    loader: Batches | None = None,
    *,
    name: str | None = None,
    progress: bool | None = None,
) -> MapsResult:
    """Watch the attention maps of a transformer, head by head: their mean, how far those of single
    inputs are from it, and what the output makes of a head whose map is replaced by it.

    Measures only; the network is as before. Runs in eval mode without gradients, once for the
    means, once for the spread, and once more for each head, over 32 images unless the limit is
    another. The inputs are kept in memory and the maps not. Tokens that are padding by an
    `attention_mask` count nowhere.

    Args:
        network: a network with maps softmax(q kᵀ) v, such as transformers of timm and Hugging Face,
            as for `attnlab.open`.
        loader: batches in the place of the network's own images, as for `attnlab.stripe`.
        name: of the network, for the report.
        progress: show a progress bar; on a terminal when None.
    """
    began = time.perf_counter()
    subject = subject_of(network, loader)
    model = subject.network
    with _progress(progress) as tell, evaluating(model):
        runs = _Runs(model, _loaded(model, subject.inputs(IMAGES)), tell)
        found = _found(runs, name or subject.name)
    return subject.sign(replace(found, seconds=time.perf_counter() - began))


def mean_maps(network: nn.Module, loader: Batches) -> dict[str, Tensor]:
    """The mean attention map of every head over `loader`, (heads, queries, keys) in float64, by the
    name of the module that computes it."""
    check_module(network)
    check_batches(loader)
    runs = _Runs(network, _loaded(network, loader))
    with evaluating(network):
        return {str(key): mean.mean for key, mean in runs.means().items()}


def sinks(network: nn.Module, loader: Batches) -> dict[str, float]:
    """Return what share of its attention every layer spends on the first token, by the name of the
    module that computes it: the mean over heads, inputs and the queries of all other tokens. Where
    it is near 1, the first token is a sink of attention; of causal networks early queries have few
    other keys."""
    maps = mean_maps(network, loader)
    return {name: mean[:, 1:, 0].mean().item() for name, mean in maps.items() if mean.shape[1] > 1}


def _found(runs: _Runs, name: str) -> MapsResult:
    """Heads, their figures and the number of inputs, as the passes over the inputs show them."""
    plain = runs.plain_outputs()
    means = runs.means()
    own = runs.outputs(_replacing(means, {}))
    runs.check_same(plain, own)
    layers = _layers(runs, own, means)
    together = {key: list(range(len(mean.sum))) for key, mean in means.items()}
    replaced = runs.outputs(_replacing(means, together))
    return MapsResult(
        network=name,
        inputs=runs.inputs,
        different_inputs=runs.different.number,
        layers=layers,
        change=runs.relative(own, replaced),
        agreement=runs.agreement(own, replaced),
        notes=tuple(runs.notes()),
    )


def _loaded(model: nn.Module, batches: Batches) -> list[Inputs]:
    found = [inputs for batch in batches for inputs in inputs_of(batch, model)]
    if not found:
        raise InputError("Expected a loader with at least one batch but got an empty one.")
    return found


@contextmanager
def _progress(wanted: bool | None) -> Iterator[Teller | None]:
    """What tells on standard error how many passes are done, if that is wanted."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("passes over the images", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _layers(runs: _Runs, own: list[Tensor], means: dict[MapKey, MeanMap]) -> tuple[LayerMaps, ...]:
    """Measure every head, with one pass over the inputs for each figure."""
    spreads = runs.spreads(means)
    return tuple(
        LayerMaps(
            name=str(key),
            heads=tuple(
                HeadMap(
                    spread=spreads[key][head].item(),
                    structure=_structure(mean, head),
                    change=runs.change(own, means, {key: [head]}),
                    picture=_thumbnail(mean.mean[head]),
                )
                for head in range(len(mean.sum))
            ),
            queries=mean.sum.shape[1],
            keys=mean.sum.shape[2],
        )
        for key, mean in means.items()
    )


def _thumbnail(mean: Tensor) -> tuple[tuple[float, ...], ...]:
    """A mean map (queries, keys) with at most 32 rows and columns, and four digits."""
    queries, keys = mean.shape
    size = min(queries, LARGEST_PICTURE), min(keys, LARGEST_PICTURE)
    small = adaptive_avg_pool2d(mean[None], size)[0]
    return tuple(tuple(float(f"{value:.4g}") for value in row) for row in small.tolist())


def _replacing(means: dict[MapKey, MeanMap], heads: dict[MapKey, list[int]]) -> MapHandler:
    def handler(key: MapKey, weights: Tensor, valid: Tensor | None) -> Tensor:
        if key not in heads:
            return weights
        changed = weights.clone()
        changed[:, heads[key]] = means[key].for_inputs(weights, valid)[:, heads[key]]
        return changed

    return handler


def _structure(mean: MeanMap, head: int) -> float:
    """How far the mean map is from attending to all keys alike."""
    rows = mean.mean[head]
    there = (mean.count > 0).double()
    rows = rows / rows.sum(1, keepdim=True).clamp(min=1e-300)
    even = there / there.sum(1, keepdim=True).clamp(min=1)
    return ((rows - even).abs() * there).sum(1).mean().item() / 2


class _Runs:
    """A network, its batches, and what is measured of them."""

    def __init__(
        self,
        model: nn.Module,
        batches: list[Inputs],
        progress: Teller | None = None,
    ) -> None:
        self.model = model
        self.batches = batches
        self.progress = progress
        self.passes = 0
        self.heads: int | None = None
        mask = mask_argument(model)
        calls = [as_call(model, batch) for batch in batches]
        self.valid = [padding_of_call(mask, *c) for c in calls]
        self.sizes = [number_of_inputs(*c) for c in calls]
        self.inputs = sum(self.sizes)
        self.different = DifferentInputs()
        for arguments, keywords in calls:
            self.different.see(arguments, keywords)

    def plain_outputs(self) -> list[Tensor]:
        """The network's first output of real numbers, batch by batch."""
        found = [self._output(batch) for batch in self.batches]
        self._passed()
        return found

    def outputs(self, handler: MapHandler) -> list[Tensor]:
        """Run the network on every batch with each of its maps going through `handler`, and return
        its first output of real numbers."""
        found = []
        for batch, valid, size in zip(self.batches, self.valid, self.sizes, strict=True):

            def checked(
                key: MapKey, weights: Tensor, valid: Tensor | None = valid, size: int = size
            ) -> Tensor:
                _check_shape(key, weights, valid, size)
                return handler(key, weights, valid)

            with handling_maps(self.model, checked):
                found.append(self._output(batch))
        self._passed()
        return found

    def _passed(self) -> None:
        self.passes += 1
        if self.progress is not None and self.heads is not None:
            self.progress(self.passes, self.heads + _OTHERS)

    def _output(self, batch: Inputs) -> Tensor:
        leaves = tree_leaves(call(self.model, batch))
        for leaf in leaves:
            if isinstance(leaf, Tensor) and leaf.is_floating_point():
                return leaf.double()
        raise InputError(
            f"{type(self.model).__name__} returned no tensor of real numbers, so what a map does "
            f"to its output cannot be said."
        )

    def means(self) -> dict[MapKey, MeanMap]:
        found: dict[MapKey, MeanMap] = {}

        def see(key: MapKey, weights: Tensor, valid: Tensor | None) -> Tensor:
            found.setdefault(key, MeanMap()).see(weights, valid)
            return weights

        self.outputs(see)
        if not found:
            raise StepsNotFoundError(
                f"{type(self.model).__name__} has no attention map to see: no softmax over keys "
                f"that multiplies values. (A convolutional network has none; torch's "
                f"MultiheadAttention and torchvision's ViT compute it inside one operation; linear "
                f"attention and attention that mixes its heads make no such map.)"
            )
        self.heads = sum(len(mean.sum) for mean in found.values())
        return {key: mean.without_padding() for key, mean in found.items()}

    def spreads(self, means: dict[MapKey, MeanMap]) -> dict[MapKey, Tensor]:
        """Mean distance of the inputs' maps from their mean, by head."""
        sums = {key: torch.zeros(len(mean.sum), dtype=torch.float64) for key, mean in means.items()}

        def see(key: MapKey, weights: Tensor, valid: Tensor | None) -> Tensor:
            mean = means[key].for_inputs(weights, valid)
            sums[key] += distance(weights, mean, valid).sum(0).cpu()
            return weights

        self.outputs(see)
        return {key: total / self.inputs for key, total in sums.items()}

    def change(
        self, own: list[Tensor], means: dict[MapKey, MeanMap], heads: dict[MapKey, list[int]]
    ) -> float:
        return self.relative(own, self.outputs(_replacing(means, heads)))

    def relative(self, before: list[Tensor], after: list[Tensor]) -> float:
        """`mean_image_change`, padding left out."""
        total = 0.0
        for one, other, valid in zip(before, after, self.valid, strict=True):
            if valid is not None and one.ndim == 3 and one.shape[:2] == valid.shape:
                one, other = (t * valid[..., None].to(t) for t in (one, other))
            total += image_changes(one, other).sum().item()
        return total / self.inputs

    def agreement(self, before: list[Tensor], after: list[Tensor]) -> float | None:
        """Share of inputs whose largest output is the same one; None where outputs are not rows."""
        if any(output.ndim != 2 for output in before):
            return None
        pairs = zip(before, after, strict=True)
        return sum(int((a.argmax(1) == b.argmax(1)).sum()) for a, b in pairs) / self.inputs

    def check_same(self, plain: list[Tensor], own: list[Tensor]) -> None:
        """Refuse a network that answers differently when its attention is computed step by step."""
        difference = self.relative(plain, own)
        if not difference <= _SAME:
            raise InputError(
                f"{type(self.model).__name__} answers differently when its attention is computed "
                f"step by step (relative difference {difference:.2g}), so its maps are not those "
                f"that it uses."
            )

    def notes(self) -> list[str]:
        tokens = sum(v.numel() for v in self.valid if v is not None)
        padded = sum(int((~v).sum()) for v in self.valid if v is not None)
        if not padded:
            return []
        share = 100 * padded / tokens
        return [f"Padding, {share:.0f} % of the tokens of padded batches, counts nowhere."]


def _check_shape(key: MapKey, weights: Tensor, valid: Tensor | None, inputs: int) -> None:
    if len(weights) != inputs:
        raise InputError(
            f"Expected the maps of {str(key)!r} to be of {inputs} inputs but got {len(weights)}: "
            f"windows lie along the batch, as in Swin, and each would need a mean of its own."
        )
    if valid is not None and (tuple(weights.shape[2:]) != (valid.shape[1],) * 2):
        raise InputError(
            f"Expected the maps of {str(key)!r} to be between the {valid.shape[1]} tokens of "
            f"attention_mask but got {weights.shape[2]} queries and {weights.shape[3]} keys."
        )
