"""int8 by onnxruntime's static quantisation and by torchao's pt2e: answers, and the operators that
stay in float."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from attnlab.surgery.folding.onnx import export_onnx
from benchmarks.se_out.variants import answers

_CONVERSIONS = ("QuantizeLinear", "DequantizeLinear")
_NEITHER = ("quantized_decomposed.", "aten._assert")
"""torchao's conversions, and checks that compute nothing."""


def write_int8(network: nn.Module, calibration: Tensor, folder: Path) -> tuple[Path, Path]:
    """Write the network as ONNX, in float and in int8."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self, name: str) -> None:
            self.batches = iter([{name: part.numpy()} for part in calibration.split(32)])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.batches, None)

    paths = {name: folder / f"{name}.onnx" for name in ("float", "ready", "int8")}
    export_onnx(network, calibration[:2], paths["float"])
    logging.getLogger().setLevel(logging.ERROR)  # advice to do what is done here
    quant_pre_process(paths["float"], paths["ready"])
    quantize_static(
        paths["ready"],
        paths["int8"],
        Reader(onnx.load(paths["float"]).graph.input[0].name),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        extra_options={"ActivationSymmetric": False},
    )
    return paths["float"], paths["int8"]


def session(path: Path, as_run: Path | None = None) -> onnxruntime.InferenceSession:
    """Load a file on one thread of the CPU; write the graph that it runs to `as_run`."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if as_run is not None:
        options.optimized_model_filepath = str(as_run)
        # Not ALL, whose layouts are those of this processor.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def onnx_int8(network: nn.Module, calibration: Tensor, images: Tensor) -> dict[str, Any]:
    """Return the answers in int8, and how many operators of the network that onnxruntime then runs
    compute in float."""
    with TemporaryDirectory() as folder:
        as_run = Path(folder) / "as_run.onnx"
        running = session(write_int8(network, calibration, Path(folder))[1], as_run)
        name = running.get_inputs()[0].name
        found = [running.run(None, {name: part.numpy()})[0] for part in images.split(250)]
        kinds = Counter(node.op_type for node in onnx.load(as_run).graph.node)
    conversions = sum(kinds.pop(kind, 0) for kind in _CONVERSIONS)
    operators = _counted(kinds, ("QLinear", "QGemm"))
    return {"answers": np.concatenate(found), **operators, "conversions": conversions}


def _counted(kinds: Counter[str], prefixes: str | tuple[str, ...]) -> dict[str, Any]:
    """Count the operators that compute in int8, which begin so, and those in float."""
    in_float = {kind: n for kind, n in kinds.items() if not kind.startswith(prefixes)}
    return {
        "in_int8": kinds.total() - sum(in_float.values()),
        "in_float": sum(in_float.values()),
        "float_operators": dict(sorted(in_float.items())),
    }


def torchao_int8(network: nn.Module, calibration: Tensor) -> GraphModule:
    """Export, observe on `calibration`, convert, and lower for batches of that size to the int8
    kernels of oneDNN, as the compiler does."""
    from torchao.quantization.pt2e.lowering import lower_pt2e_quantized_to_x86
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
        X86InductorQuantizer,
        get_default_x86_inductor_quantization_config,
    )

    exported = torch.export.export(network, (calibration,)).module()
    quantizer = X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(exported, quantizer)
    answers(prepared, calibration)
    return lower_pt2e_quantized_to_x86(convert_pt2e(prepared), (calibration,))


def torchao_operators(lowered: GraphModule) -> dict[str, Any]:
    """Count the operators that compute in int8, and those in float."""
    kinds = Counter(str(n.target) for n in lowered.graph.nodes if n.op == "call_function")
    kinds = Counter({kind: n for kind, n in kinds.items() if not kind.startswith(_NEITHER)})
    return _counted(kinds, "onednn.q")
