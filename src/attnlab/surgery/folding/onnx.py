"""Export to ONNX, compared with the network before it is kept."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from attnlab._errors import FoldError, OptionError
from attnlab._files import whole_file

MOST_CHANGE = 1e-4
"""The largest relative difference between torch and onnxruntime that is accepted."""


def export_onnx(network: nn.Module, images: Tensor, path: str | Path) -> float:
    """Write `network` (eval mode) to `path` with any batch size; return the relative difference
    between onnxruntime's output and torch's on `images`, one by one and together."""
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401  torch's exporter needs it
    except ImportError as error:
        raise OptionError(f"ONNX files need {error.name}: pip install 'attnlab[onnx]'.") from error
    network = network.eval()
    with whole_file(Path(path)) as partial:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter's own deprecations
            program = torch.onnx.export(
                network,
                (images,),
                dynamo=True,
                dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
                verbose=False,
            )
        assert program is not None
        partial.write_bytes(program.model_proto.SerializeToString())
        onnx.checker.check_model(str(partial))
        session = onnxruntime.InferenceSession(str(partial), providers=["CPUExecutionProvider"])
        (given,) = session.get_inputs()
        change = 0.0
        for batch in (images, images[:1]):
            with torch.no_grad():
                expected = network(batch)
            found = torch.from_numpy(session.run(None, {given.name: batch.numpy()})[0])
            change = max(change, float((expected - found).abs().max() / expected.abs().max()))
        if not change <= MOST_CHANGE:
            raise FoldError(
                f"The ONNX file answers differently from the network (relative difference "
                f"{change:.1e}, accepted {MOST_CHANGE:.0e}), so it was not written."
            )
    return change
