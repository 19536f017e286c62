"""int8 by onnxruntime's static quantisation: accuracy, and the operators that stay in float."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import Tensor, nn

from attnlab.surgery.folding.onnx import export_onnx

_CONVERSIONS = ("QuantizeLinear", "DequantizeLinear")


class _Reader(CalibrationDataReader):
    def __init__(self, name: str, images: Tensor) -> None:
        self.batches = iter([{name: part.numpy()} for part in images.split(32)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.batches, None)


def write_int8(network: nn.Module, calibration: Tensor, folder: Path) -> tuple[Path, Path]:
    """The network as ONNX, in float and in int8."""
    paths = {name: folder / f"{name}.onnx" for name in ("float", "ready", "int8")}
    export_onnx(network, calibration[:2], paths["float"])
    logging.getLogger().setLevel(logging.ERROR)  # advice to do what is done here
    quant_pre_process(paths["float"], paths["ready"])
    quantize_static(
        paths["ready"],
        paths["int8"],
        _Reader(onnx.load(paths["float"]).graph.input[0].name, calibration),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        extra_options={"ActivationSymmetric": False},
    )
    return paths["float"], paths["int8"]


def session(path: Path, as_run: Path | None = None) -> onnxruntime.InferenceSession:
    """On one thread of the CPU; the graph that it runs is written to `as_run`."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if as_run is not None:
        options.optimized_model_filepath = str(as_run)
        # Not ALL, whose layouts are those of this processor.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def int8(network: nn.Module, calibration: Tensor, images: Tensor) -> dict[str, Any]:
    """Answers in int8, and how many operators of the int8 network, as onnxruntime runs it, compute
    in float."""
    with TemporaryDirectory() as folder:
        as_run = Path(folder) / "as_run.onnx"
        running = session(write_int8(network, calibration, Path(folder))[1], as_run)
        name = running.get_inputs()[0].name
        found = [running.run(None, {name: part.numpy()})[0] for part in images.split(250)]
        kinds = Counter(node.op_type for node in onnx.load(as_run).graph.node)
    in_int8 = {kind: n for kind, n in kinds.items() if kind.startswith(("QLinear", "QGemm"))}
    in_float = {k: n for k, n in kinds.items() if k not in in_int8 and k not in _CONVERSIONS}
    return {
        "answers": np.concatenate(found),
        "in_int8": sum(in_int8.values()),
        "in_float": sum(in_float.values()),
        "float_operators": dict(sorted(in_float.items())),
        "conversions": sum(kinds[kind] for kind in _CONVERSIONS),
    }
