"""The gates by name."""

from __future__ import annotations

from torch import nn

from attnlab.gates._info import Form, GateInfo
from attnlab.gates._references import REFERENCES
from attnlab.gates.bam import BottleneckAttention
from attnlab.gates.cbam import ConvolutionalBlockAttention
from attnlab.gates.coord import CoordinateAttention
from attnlab.gates.dia import DenseImplicitAttention
from attnlab.gates.eca import EfficientChannelAttention
from attnlab.gates.ela import EfficientLocalAttention
from attnlab.gates.ema import EfficientMultiScaleAttention
from attnlab.gates.ese import EffectiveSqueezeExcitation
from attnlab.gates.fca import FrequencyChannelAttention
from attnlab.gates.gam import GlobalAttention
from attnlab.gates.gc import GlobalContext
from attnlab.gates.gct import GatedChannelTransformation
from attnlab.gates.ge import GatherExcite, ParametricGatherExcite
from attnlab.gates.ie import InstanceEnhancement
from attnlab.gates.iebn import InstanceEnhancementBatchNorm
from attnlab.gates.scse import SpatialChannelExcitation
from attnlab.gates.se import SqueezeExcitation
from attnlab.gates.sem import SwitchableExcitation
from attnlab.gates.sge import SpatialGroupEnhance
from attnlab.gates.simam import SimpleAttention
from attnlab.gates.spa import SpatialPyramidAttention
from attnlab.gates.srm import StyleRecalibration
from attnlab.gates.step import StepAdaptor
from attnlab.gates.triplet import TripletAttention

_SPATIAL = "its gate differs from pixel to pixel, so it cannot be one constant per channel"


def _row(
    name: str,
    build: type[nn.Module],
    title: str,
    paper: str,
    not_on_vector: str = "",
    form: Form = "branch",
    **vector_options: object,
) -> GateInfo:
    return GateInfo(
        name, build, form, title, paper, not_on_vector, vector_options, REFERENCES[name]
    )


_ROWS = (
    _row("se", SqueezeExcitation, "Squeeze-and-Excitation", "Hu et al., CVPR 2018"),
    _row(
        "cbam",
        ConvolutionalBlockAttention,
        "Convolutional Block Attention Module",
        "Woo et al., ECCV 2018",
        _SPATIAL,
    ),
    _row("eca", EfficientChannelAttention, "Efficient Channel Attention", "Wang et al., CVPR 2020"),
    _row("sem", SwitchableExcitation, "Switchable Excitation Module", "Zhong et al., arXiv 2022"),
    _row("srm", StyleRecalibration, "Style-based Recalibration Module", "Lee et al., ICCV 2019"),
    _row(
        "fca",
        FrequencyChannelAttention,
        "Frequency Channel Attention",
        "Qin et al., ICCV 2021",
        "a constant map has no frequency above zero, so 15 of its 16 channel groups would not see "
        "the vector",
    ),
    _row("ie", InstanceEnhancement, "Instance Enhancement", "Liang et al., AAAI 2020"),
    _row(
        "iebn",
        InstanceEnhancementBatchNorm,
        "Instance Enhancement Batch Normalization",
        "Liang et al., AAAI 2020",
        "it is a norm, not a gate; 'asr:ie' is its gate",
        "norm",
    ),
    _row(
        "sge", SpatialGroupEnhance, "Spatial Group-wise Enhance", "Li et al., arXiv 2019", _SPATIAL
    ),
    _row(
        "dia",
        DenseImplicitAttention,
        "Dense-and-Implicit Attention",
        "Huang et al., AAAI 2020",
        "the papers leave it undefined, since the gate of a block depends on what the blocks "
        "before it hand on",
        "stage",
    ),
    _row("spa", SpatialPyramidAttention, "Spatial Pyramid Attention", "Guo et al., ICME 2020"),
    _row(
        "step",
        StepAdaptor,
        "StepNet's adaptor",
        "Huang et al., ICCV 2023",
        "it compares the two ends of a step, and a learned vector has no ends",
        "step",
    ),
    _row(
        "bam",
        BottleneckAttention,
        "Bottleneck Attention Module",
        "Park et al., BMVC 2018",
        _SPATIAL,
    ),
    _row(
        "scse",
        SpatialChannelExcitation,
        "Concurrent Spatial and Channel Squeeze & Excitation",
        "Roy et al., MICCAI 2018",
        _SPATIAL,
    ),
    _row(
        "ese",
        EffectiveSqueezeExcitation,
        "Effective Squeeze-and-Excitation",
        "Lee and Park, CVPR 2020",
    ),
    _row("ge", GatherExcite, "Gather-Excite without parameters", "Hu et al., NeurIPS 2018"),
    _row(
        "gep",
        ParametricGatherExcite,
        "Gather-Excite with parameters",
        "Hu et al., NeurIPS 2018",
        _SPATIAL,
    ),
    _row(
        "gc",
        GlobalContext,
        "Global Context, scaling form",
        "Cao et al., ICCVW 2019",
        pooling="mean",
    ),
    _row("coord", CoordinateAttention, "Coordinate Attention", "Hou et al., CVPR 2021", _SPATIAL),
    _row(
        "ela",
        EfficientLocalAttention,
        "Efficient Local Attention",
        "Xu and Wan, arXiv 2024",
        _SPATIAL,
    ),
    _row(
        "simam",
        SimpleAttention,
        "Simple, Parameter-Free Attention Module",
        "Yang et al., ICML 2021",
        "every pixel of a constant map is its mean, so the gate would not see the vector",
    ),
    _row("triplet", TripletAttention, "Triplet Attention", "Misra et al., WACV 2021", _SPATIAL),
    _row(
        "ema",
        EfficientMultiScaleAttention,
        "Efficient Multi-Scale Attention",
        "Ouyang et al., ICASSP 2023",
        _SPATIAL,
    ),
    _row("gam", GlobalAttention, "Global Attention Mechanism", "Liu et al., arXiv 2021", _SPATIAL),
    _row(
        "gct",
        GatedChannelTransformation,
        "Gated Channel Transformation",
        "Yang et al., CVPR 2020",
    ),
)

GATES: dict[str, GateInfo] = {info.name: info for info in _ROWS}
"""Every gate by its name, in the order of `attnlab modules`."""
