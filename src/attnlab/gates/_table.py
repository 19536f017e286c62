"""The gates by name, each with its paper: one row per gate."""

from __future__ import annotations

from typing import Final

from torch import nn

from attnlab.gates._gate import Form, GateInfo, Reference
from attnlab.gates.bam import BottleneckAttention
from attnlab.gates.carry import ResidualLambdas
from attnlab.gates.cbam import ConvolutionalBlockAttention
from attnlab.gates.constant import LayerScale, ReZero
from attnlab.gates.coord import CoordinateAttention
from attnlab.gates.dia import DenseImplicitAttention
from attnlab.gates.eca import EfficientChannelAttention
from attnlab.gates.ela import EfficientLocalAttention
from attnlab.gates.element import ElementGate
from attnlab.gates.ema import EfficientMultiScaleAttention
from attnlab.gates.fca import FrequencyChannelAttention
from attnlab.gates.gam import GlobalAttention
from attnlab.gates.gc import GlobalContext
from attnlab.gates.gct import GatedChannelTransformation
from attnlab.gates.ge import GatherExcite, ParametricGatherExcite
from attnlab.gates.head import HeadGate
from attnlab.gates.iebn import InstanceEnhancement, InstanceEnhancementBatchNorm
from attnlab.gates.se import EffectiveSqueezeExcitation, SpatialChannelExcitation, SqueezeExcitation
from attnlab.gates.sem import SwitchableExcitation
from attnlab.gates.sge import SpatialGroupEnhance
from attnlab.gates.simam import SimpleAttention
from attnlab.gates.spa import SpatialPyramidAttention
from attnlab.gates.srm import StyleRecalibration
from attnlab.gates.step import StepAdaptor
from attnlab.gates.token import TokenGate
from attnlab.gates.triplet import TripletAttention

_CVPR = "IEEE/CVF Conference on Computer Vision and Pattern Recognition"
_ICCV = "IEEE/CVF International Conference on Computer Vision"
_ECCV = "European Conference on Computer Vision"
_AAAI = "AAAI Conference on Artificial Intelligence"


def _arxiv(number: str) -> str:
    return f"arXiv preprint arXiv:{number}"


_IEBN: Final = Reference(
    "inproceedings",
    "liang2020instance",
    "Liang, Senwei and Huang, Zhongzhan and Liang, Mingfu and Yang, Haizhao",
    "Instance Enhancement Batch Normalization: An Adaptive Regulator of Batch Noise",
    _AAAI,
    2020,
)
_GATHER_EXCITE: Final = Reference(
    "inproceedings",
    "hu2018gather",
    "Hu, Jie and Shen, Li and Albanie, Samuel and Sun, Gang and Vedaldi, Andrea",
    "Gather-Excite: Exploiting Feature Context in Convolutional Neural Networks",
    "Advances in Neural Information Processing Systems",
    2018,
)

_GATED_ATTENTION: Final = Reference(
    "inproceedings",
    "qiu2025gated",
    "Qiu, Zihan and Wang, Zekun and Zheng, Bo and Huang, Zeyu and Wen, Kaiyue and Yang, "
    "Songlin and Men, Rui and Yu, Le and Huang, Fei and Huang, Suozhi and Liu, Dayiheng "
    "and Zhou, Jingren and Lin, Junyang",
    "Gated Attention for Large Language Models: Non-linearity, Sparsity, and Attention-Sink-Free",
    "Advances in Neural Information Processing Systems",
    2025,
)

_SPATIAL = "its gate differs from pixel to pixel, so it cannot be one constant per channel"
_TOKENS = "its gate differs from token to token, so it cannot be one constant per channel"


def _row(
    name: str,
    build: type[nn.Module],
    title: str,
    paper: str,
    reference: Reference,
    not_on_vector: str = "",
    form: Form = "branch",
    **vector_options: object,
) -> GateInfo:
    return GateInfo(name, build, form, title, paper, not_on_vector, vector_options, reference)


_ROWS = (
    _row(
        "se",
        SqueezeExcitation,
        "Squeeze-and-Excitation",
        "Hu et al., CVPR 2018",
        Reference(
            "inproceedings",
            "hu2018squeeze",
            "Hu, Jie and Shen, Li and Sun, Gang",
            "Squeeze-and-Excitation Networks",
            _CVPR,
            2018,
        ),
    ),
    _row(
        "cbam",
        ConvolutionalBlockAttention,
        "Convolutional Block Attention Module",
        "Woo et al., ECCV 2018",
        Reference(
            "inproceedings",
            "woo2018cbam",
            "Woo, Sanghyun and Park, Jongchan and Lee, Joon-Young and Kweon, In So",
            "CBAM: Convolutional Block Attention Module",
            _ECCV,
            2018,
        ),
        _SPATIAL,
    ),
    _row(
        "eca",
        EfficientChannelAttention,
        "Efficient Channel Attention",
        "Wang et al., CVPR 2020",
        Reference(
            "inproceedings",
            "wang2020eca",
            "Wang, Qilong and Wu, Banggu and Zhu, Pengfei and Li, Peihua and Zuo, Wangmeng and Hu, "
            "Qinghua",
            "ECA-Net: Efficient Channel Attention for Deep Convolutional Neural Networks",
            _CVPR,
            2020,
        ),
    ),
    _row(
        "sem",
        SwitchableExcitation,
        "Switchable Excitation Module",
        "Zhong et al., arXiv 2022",
        Reference(
            "article",
            "zhong2022switchable",
            "Zhong, Shanshan and Wen, Wushao and Qin, Jinghui",
            "Switchable Self-attention Module",
            _arxiv("2209.05680"),
            2022,
        ),
    ),
    _row(
        "srm",
        StyleRecalibration,
        "Style-based Recalibration Module",
        "Lee et al., ICCV 2019",
        Reference(
            "inproceedings",
            "lee2019srm",
            "Lee, HyunJae and Kim, Hyo-Eun and Nam, Hyeonseob",
            "SRM: A Style-based Recalibration Module for Convolutional Neural Networks",
            _ICCV,
            2019,
        ),
    ),
    _row(
        "fca",
        FrequencyChannelAttention,
        "Frequency Channel Attention",
        "Qin et al., ICCV 2021",
        Reference(
            "inproceedings",
            "qin2021fcanet",
            "Qin, Zequn and Zhang, Pengyi and Wu, Fei and Li, Xi",
            "FcaNet: Frequency Channel Attention Networks",
            _ICCV,
            2021,
        ),
        "a constant map has no frequency above zero, so 15 of its 16 channel groups would not see "
        "the vector",
    ),
    _row(
        "ie",
        InstanceEnhancement,
        "Instance Enhancement",
        "Liang et al., AAAI 2020",
        _IEBN,
    ),
    _row(
        "iebn",
        InstanceEnhancementBatchNorm,
        "Instance Enhancement Batch Normalization",
        "Liang et al., AAAI 2020",
        _IEBN,
        "it is a norm, not a gate; 'asr:ie' is its gate",
        "norm",
    ),
    _row(
        "sge",
        SpatialGroupEnhance,
        "Spatial Group-wise Enhance",
        "Li et al., arXiv 2019",
        Reference(
            "article",
            "li2019spatial",
            "Li, Xiang and Hu, Xiaolin and Yang, Jian",
            "Spatial Group-wise Enhance: Improving Semantic Feature Learning in Convolutional "
            "Networks",
            _arxiv("1905.09646"),
            2019,
        ),
        _SPATIAL,
    ),
    _row(
        "dia",
        DenseImplicitAttention,
        "Dense-and-Implicit Attention",
        "Huang et al., AAAI 2020",
        Reference(
            "inproceedings",
            "huang2020dianet",
            "Huang, Zhongzhan and Liang, Senwei and Liang, Mingfu and Yang, Haizhao",
            "DIANet: Dense-and-Implicit Attention Network",
            _AAAI,
            2020,
        ),
        "the papers leave it undefined, since the gate of a block depends on what the blocks "
        "before it hand on",
        "stage",
    ),
    _row(
        "spa",
        SpatialPyramidAttention,
        "Spatial Pyramid Attention",
        "Guo et al., ICME 2020",
        Reference(
            "inproceedings",
            "guo2020spanet",
            "Guo, Jingda and Ma, Xu and Sansom, Andrew and McGuire, Mara and Kalaani, Andrew and "
            "Chen, Qi and Tang, Sihai and Yang, Qing and Fu, Song",
            "SPANet: Spatial Pyramid Attention Network for Enhanced Image Recognition",
            "IEEE International Conference on Multimedia and Expo",
            2020,
        ),
    ),
    _row(
        "step",
        StepAdaptor,
        "StepNet's adaptor",
        "Huang et al., ICCV 2023",
        Reference(
            "inproceedings",
            "huang2023understanding",
            "Huang, Zhongzhan and Liang, Mingfu and Qin, Jinghui and Zhong, Shanshan and "
            "Lin, Liang",
            "Understanding Self-attention Mechanism via Dynamical System Perspective",
            _ICCV,
            2023,
        ),
        "it compares the two ends of a step, and a learned vector has no ends",
        "step",
    ),
    _row(
        "bam",
        BottleneckAttention,
        "Bottleneck Attention Module",
        "Park et al., BMVC 2018",
        Reference(
            "inproceedings",
            "park2018bam",
            "Park, Jongchan and Woo, Sanghyun and Lee, Joon-Young and Kweon, In So",
            "BAM: Bottleneck Attention Module",
            "British Machine Vision Conference",
            2018,
        ),
        _SPATIAL,
    ),
    _row(
        "scse",
        SpatialChannelExcitation,
        "Concurrent Spatial and Channel Squeeze & Excitation",
        "Roy et al., MICCAI 2018",
        Reference(
            "inproceedings",
            "roy2018concurrent",
            "Roy, Abhijit Guha and Navab, Nassir and Wachinger, Christian",
            "Concurrent Spatial and Channel 'Squeeze \\& Excitation' in Fully Convolutional "
            "Networks",
            "Medical Image Computing and Computer Assisted Intervention",
            2018,
        ),
        _SPATIAL,
    ),
    _row(
        "ese",
        EffectiveSqueezeExcitation,
        "Effective Squeeze-and-Excitation",
        "Lee and Park, CVPR 2020",
        Reference(
            "inproceedings",
            "lee2020centermask",
            "Lee, Youngwan and Park, Jongyoul",
            "CenterMask: Real-Time Anchor-Free Instance Segmentation",
            _CVPR,
            2020,
        ),
    ),
    _row(
        "ge",
        GatherExcite,
        "Gather-Excite without parameters",
        "Hu et al., NeurIPS 2018",
        _GATHER_EXCITE,
    ),
    _row(
        "gep",
        ParametricGatherExcite,
        "Gather-Excite with parameters",
        "Hu et al., NeurIPS 2018",
        _GATHER_EXCITE,
        _SPATIAL,
    ),
    _row(
        "gc",
        GlobalContext,
        "Global Context, scaling form",
        "Cao et al., ICCVW 2019",
        Reference(
            "inproceedings",
            "cao2019gcnet",
            "Cao, Yue and Xu, Jiarui and Lin, Stephen and Wei, Fangyun and Hu, Han",
            "GCNet: Non-local Networks Meet Squeeze-Excitation Networks and Beyond",
            f"{_ICCV} Workshops",
            2019,
        ),
        pooling="mean",
    ),
    _row(
        "coord",
        CoordinateAttention,
        "Coordinate Attention",
        "Hou et al., CVPR 2021",
        Reference(
            "inproceedings",
            "hou2021coordinate",
            "Hou, Qibin and Zhou, Daquan and Feng, Jiashi",
            "Coordinate Attention for Efficient Mobile Network Design",
            _CVPR,
            2021,
        ),
        _SPATIAL,
    ),
    _row(
        "ela",
        EfficientLocalAttention,
        "Efficient Local Attention",
        "Xu and Wan, arXiv 2024",
        Reference(
            "article",
            "xu2024ela",
            "Xu, Wei and Wan, Yi",
            "ELA: Efficient Local Attention for Deep Convolutional Neural Networks",
            _arxiv("2403.01123"),
            2024,
        ),
        _SPATIAL,
    ),
    _row(
        "simam",
        SimpleAttention,
        "Simple, Parameter-Free Attention Module",
        "Yang et al., ICML 2021",
        Reference(
            "inproceedings",
            "yang2021simam",
            "Yang, Lingxiao and Zhang, Ru-Yuan and Li, Lida and Xie, Xiaohua",
            "SimAM: A Simple, Parameter-Free Attention Module for Convolutional Neural Networks",
            "International Conference on Machine Learning",
            2021,
        ),
        "every pixel of a constant map is its mean, so the gate would not see the vector",
    ),
    _row(
        "triplet",
        TripletAttention,
        "Triplet Attention",
        "Misra et al., WACV 2021",
        Reference(
            "inproceedings",
            "misra2021rotate",
            "Misra, Diganta and Nalamada, Trikay and Arasanipalai, Ajay Uppili and Hou, Qibin",
            "Rotate to Attend: Convolutional Triplet Attention Module",
            "IEEE/CVF Winter Conference on Applications of Computer Vision",
            2021,
        ),
        _SPATIAL,
    ),
    _row(
        "ema",
        EfficientMultiScaleAttention,
        "Efficient Multi-Scale Attention",
        "Ouyang et al., ICASSP 2023",
        Reference(
            "inproceedings",
            "ouyang2023ema",
            "Ouyang, Daliang and He, Su and Zhang, Guozhong and Luo, Mingzhu and Guo, Huaiyong and "
            "Zhan, Jian and Huang, Zhijie",
            "Efficient Multi-Scale Attention Module with Cross-Spatial Learning",
            "IEEE International Conference on Acoustics, Speech and Signal Processing",
            2023,
        ),
        _SPATIAL,
    ),
    _row(
        "gam",
        GlobalAttention,
        "Global Attention Mechanism",
        "Liu et al., arXiv 2021",
        Reference(
            "article",
            "liu2021global",
            "Liu, Yichao and Shao, Zongru and Hoffmann, Nico",
            "Global Attention Mechanism: Retain Information to Enhance Channel-Spatial "
            "Interactions",
            _arxiv("2112.05561"),
            2021,
        ),
        _SPATIAL,
    ),
    _row(
        "gct",
        GatedChannelTransformation,
        "Gated Channel Transformation",
        "Yang et al., CVPR 2020",
        Reference(
            "inproceedings",
            "yang2020gated",
            "Yang, Zongxin and Zhu, Linchao and Wu, Yu and Yang, Yi",
            "Gated Channel Transformation for Visual Recognition",
            _CVPR,
            2020,
        ),
    ),
    _row(
        "token",
        TokenGate,
        "Token gate, after Gated Attention",
        "Qiu et al., NeurIPS 2025",
        _GATED_ATTENTION,
        _TOKENS,
        form="step",
    ),
    _row(
        "head",
        HeadGate,
        "Head gate, after Gated Attention",
        "Qiu et al., NeurIPS 2025",
        _GATED_ATTENTION,
        _TOKENS,
        form="step",
    ),
    _row(
        "element",
        ElementGate,
        "Element gate, after Gated Attention",
        "Qiu et al., NeurIPS 2025",
        _GATED_ATTENTION,
        _TOKENS,
        form="step",
    ),
    _row(
        "scale",
        LayerScale,
        "LayerScale",
        "Touvron et al., ICCV 2021",
        Reference(
            "inproceedings",
            "touvron2021going",
            "Touvron, Hugo and Cord, Matthieu and Sablayrolles, Alexandre and Synnaeve, Gabriel "
            "and Jégou, Hervé",
            "Going deeper with Image Transformers",
            _ICCV,
            2021,
        ),
        "it is a learned constant already",
    ),
    _row(
        "rezero",
        ReZero,
        "ReZero",
        "Bachlechner et al., UAI 2021",
        Reference(
            "inproceedings",
            "bachlechner2021rezero",
            "Bachlechner, Thomas and Majumder, Bodhisattwa Prasad and Mao, Henry and Cottrell, "
            "Gary and McAuley, Julian",
            "ReZero is All You Need: Fast Convergence at Large Depth",
            "Conference on Uncertainty in Artificial Intelligence",
            2021,
        ),
        "it is a learned constant already",
    ),
    _row(
        "lambda",
        ResidualLambdas,
        "Residual lambdas: a number on the state, one on the branch",
        "Jordan et al., GitHub 2024",
        Reference(
            "misc",
            "jordan2024modded",
            "Jordan, Keller and Bernstein, Jeremy and Rappazzo, Brendan and others",
            "modded-nanogpt: Speedrunning the NanoGPT baseline",
            "GitHub, KellerJordan/modded-nanogpt",
            2024,
        ),
        "it is two learned constants already",
        form="step",
    ),
)

GATES: dict[str, GateInfo] = {info.name: info for info in _ROWS}
"""Every gate by its name, in the order of `attnlab modules`."""

REFERENCES: Final[dict[str, Reference]] = {
    "asr": Reference(
        "inproceedings",
        "huang2024stripe",
        "Huang, Zhongzhan and Zhong, Shanshan and Wen, Wushao and Qin, Jinghui and Lin, Liang",
        "Stripe Observation Guided Inference Cost-free Attention Mechanism",
        _ECCV,
        2024,
    ),
    **{info.name: info.reference for info in _ROWS if info.reference is not None},
}
"""The papers by the name of the gate; "asr" is the paper of all `asr:NAME`."""
