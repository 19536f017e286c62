"""int8 by torch's own way, torchao's pt2e, of the networks that `se_out.py --keep FOLDER` kept.

    pip install torchao
    python benchmarks/se_out_torchao.py RUN... --kept FOLDER --json se_out.json

The network is exported, `X86InductorQuantizer` says what becomes int8, one batch of training images
calibrates, and the result is lowered to oneDNN's int8 kernels, as the compiler does. Operators are
those of that graph. `se_out.py --json se_out.json` prints the table with the others.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from se_out import compared, images_of
from se_out_tables import by_network, int8
from se_out_variants import answers
from torch import Tensor, nn
from torch.fx import GraphModule
from torchao.quantization.pt2e.lowering import lower_pt2e_quantized_to_x86
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
    X86InductorQuantizer,
    get_default_x86_inductor_quantization_config,
)

import attnlab
from attnlab._files import write_whole

BATCH = 250
"""The lowered graph is for one size; `answers` takes so many at once."""
_NEITHER = ("quantized_decomposed.", "aten._assert")
"""Conversions, and checks that compute nothing."""


def main(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    kept: Path,
    json_file: Annotated[Path, tyro.conf.arg(name="json")] = Path("se_out.json"),
) -> None:
    """Quantise, measure on the test images, add to the file, print the table."""
    torch.set_num_threads(1)
    found = json.loads(json_file.read_text())
    for run in runs:
        train, test, classes = images_of(run)
        networks = {
            "with SE": attnlab.load(run),
            "SE out": attnlab.load(kept / f"{run.name}-out.safetensors"),
            "SE out, repaired": attnlab.load(kept / f"{run.name}-repaired.safetensors"),
        }
        found[run.name]["torchao"] = {}
        for name, network in networks.items():
            lowered = quantised(network.eval(), train[:BATCH])
            measured = compared(answers(network, test), answers(lowered, test), classes)
            found[run.name]["torchao"][name] = {**measured, **counted(lowered)}
            print(run.name, name, found[run.name]["torchao"][name], flush=True)
        write_whole(json_file, json.dumps(found, indent=1) + "\n")
    print(int8(by_network(found), "torchao"))


def quantised(network: nn.Module, calibration: Tensor) -> GraphModule:
    """Exported, observed on `calibration`, converted, and lowered for batches of that size."""
    exported = torch.export.export(network, (calibration,)).module()
    quantizer = X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(exported, quantizer)
    answers(prepared, calibration)
    return lower_pt2e_quantized_to_x86(convert_pt2e(prepared), (calibration,))


def counted(lowered: GraphModule) -> dict[str, Any]:
    """How many operators compute in int8, and which in float."""
    kinds = Counter(str(n.target) for n in lowered.graph.nodes if n.op == "call_function")
    kinds = Counter({kind: n for kind, n in kinds.items() if not kind.startswith(_NEITHER)})
    in_int8 = {kind: n for kind, n in kinds.items() if kind.startswith("onednn.q")}
    in_float = {kind: n for kind, n in kinds.items() if kind not in in_int8}
    return {
        "in_int8": sum(in_int8.values()),
        "in_float": sum(in_float.values()),
        "float_operators": dict(sorted(in_float.items())),
    }


if __name__ == "__main__":
    tyro.cli(main)
