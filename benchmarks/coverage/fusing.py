"""How much of a network `attnlab.fuse` merges, against timm's and torch's own tools."""

from __future__ import annotations

import copy
import gc
import re
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

import attnlab
from attnlab._files import write_whole
from attnlab.surgery.change import largest_change, relative_to
from benchmarks._common import Table, settings, write_json


class _Norms(TorchFunctionMode):
    """Counts the BatchNorms of a run: a traced network has some that are not modules."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        del types
        self.count += function in (torch.batch_norm, F.batch_norm)
        return function(*args, **(kwargs or {}))


@dataclass
class Tool:
    """What one tool made of one network."""

    norms: int | None = None
    """BatchNorms that a run still computes; None if the tool failed."""
    change: float | None = None
    """max |Δy| / max |y| in float32."""
    failed: str = ""

    def shown(self) -> str:
        if self.norms is None or self.change is None:
            return f"fails: {self.failed}"
        wrong = " (wrong)" if not self.change < 1e-3 else ""
        return f"{self.norms}, {self.change:.0e}{wrong}"


@dataclass
class FusedRow:
    """One network."""

    network: str
    norms: int
    tools: dict[str, Tool] = field(default_factory=dict)
    float64_change: float | None = None
    merged: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    """Why something stays, and how often."""


def fuse(only: str = "", json: Path | None = None, markdown: Path | None = None) -> None:
    """BatchNorms left and the change of the output (float32, relative) after `attnlab.fuse`, timm's
    `reparameterize_model`, `torch.fx`'s `fuse` and the quantiser's `fuse_fx`. Norms have statistics
    as after training: with those of a new network, a norm that a tool drops would hardly show.

    Args:
        only: a pattern of names.
        json: write all numbers here.
        markdown: renew the table of this page.
    """
    rows = []
    for name in settings("fusing")["networks"]:
        if not re.search(only, name):
            continue
        row = _row(name)
        rows.append(row)
        print(_shown(row), flush=True)
        gc.collect()
    columns = ["network", "BatchNorms", "attnlab", *TOOLS, "stays, because"]
    table = Table("BatchNorms left, change of the output", columns, [_shown(row) for row in rows])
    table.print()
    if json is not None:
        write_json(json, {"rows": [asdict(row) for row in rows]})
    if markdown is not None:
        text = markdown.read_text(encoding="utf-8")
        found = re.sub(r"(?ms)^\| network \| BatchNorms.*?\n(?=\n)", table.markdown() + "\n", text)
        write_whole(markdown, found)


def _row(name: str) -> FusedRow:
    torch.manual_seed(0)
    network, images = _built(name)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with _Norms() as norms:
            expected = _numbers(network(images))
        row = FusedRow(name, norms.count)
        fast, receipt = attnlab.fuse(network, example=images)
        row.float64_change = receipt.float64_change
        for kind in ("block", "branches", "norm", "scale"):
            row.merged[kind] = receipt.count(kind)
        for each in receipt.left:
            row.left[each.reason] = row.left.get(each.reason, 0) + 1
        row.tools["attnlab"] = _judged(lambda _: fast, network, images, expected)
        for tool, run in TOOLS.items():
            row.tools[tool] = _judged(run, network, images, expected)
    return row


def _judged(
    run: Callable[[nn.Module], nn.Module],
    network: nn.Module,
    images: Tensor,
    expected: list[Tensor],
) -> Tool:
    try:
        changed = run(copy.deepcopy(network))
        with _Norms() as norms:
            found = _numbers(changed(images))
    except Exception as error:  # another package's tool may raise anything
        return Tool(failed=type(error).__name__)
    if [each.shape for each in found] != [each.shape for each in expected]:
        return Tool(failed="another output")
    largest, size, _ = largest_change(list(zip(expected, found, strict=True)))
    return Tool(norms.count, float("inf") if largest is None else relative_to(largest, size))


def _built(name: str) -> tuple[nn.Module, Tensor]:
    """The network with statistics as after training, and images."""
    library, _, rest = name.partition(":")
    if library == "ultralytics":
        from ultralytics.nn.tasks import DetectionModel

        network: nn.Module = DetectionModel(f"{rest}.yaml", verbose=False)
        size = 64
    else:
        network = attnlab.create(name)
        shape: Any = getattr(network, "pretrained_cfg", {}).get("input_size", (3, 64, 64))
        size = 32 if ":" not in name else shape[1]
    generator = torch.Generator().manual_seed(1)
    for module in network.modules():
        if isinstance(module, _BatchNorm) and module.running_mean is not None:
            assert module.running_var is not None
            module.running_mean.normal_(0, 0.3, generator=generator)
            module.running_var.uniform_(0.5, 2, generator=generator)
    return network.eval(), torch.randn(2, 3, size, size, generator=generator)


def _numbers(output: object) -> list[Tensor]:
    return [t for t in tree_leaves(output) if isinstance(t, Tensor) and t.is_floating_point()]


def _by_timm(network: nn.Module) -> nn.Module:
    from timm.utils import reparameterize_model

    return reparameterize_model(network)


def _by_fx(network: nn.Module) -> nn.Module:
    from torch.fx.experimental.optimization import fuse as fuse_conv_norm

    return fuse_conv_norm(network)


def _by_quantiser(network: nn.Module) -> nn.Module:
    from torch.ao.quantization.quantize_fx import fuse_fx

    return fuse_fx(network)


TOOLS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "timm reparameterize_model": _by_timm,
    "torch.fx fuse": _by_fx,
    "torch fuse_fx": _by_quantiser,
}


def _shown(row: FusedRow) -> list[str]:
    reasons = sorted(row.left.items(), key=lambda each: -each[1])[:2]
    left = "; ".join(f"{number}: {reason}" for reason, number in reasons)
    return [
        row.network,
        str(row.norms),
        *(row.tools[name].shown() for name in ("attnlab", *TOOLS)),
        left or "—",
    ]
