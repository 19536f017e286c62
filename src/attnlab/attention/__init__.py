"""Attention gates, one per file, and their registry."""

from attnlab.attention._gate import Activation as Activation
from attnlab.attention._gate import BranchGate as BranchGate
from attnlab.attention._gate import Gate as Gate
from attnlab.attention._gate import StageGate as StageGate
from attnlab.attention._gate import StepGate as StepGate
from attnlab.attention._gate import VectorGate as VectorGate
from attnlab.attention.asr import VISION_TRANSFORMER as VISION_TRANSFORMER
from attnlab.attention.asr import LearnedVectorGate as LearnedVectorGate
from attnlab.attention.cbam import ConvolutionalBlockAttention as ConvolutionalBlockAttention
from attnlab.attention.dia import DenseImplicitAttention as DenseImplicitAttention
from attnlab.attention.eca import EfficientChannelAttention as EfficientChannelAttention
from attnlab.attention.fca import FrequencyChannelAttention as FrequencyChannelAttention
from attnlab.attention.ie import InstanceEnhancement as InstanceEnhancement
from attnlab.attention.iebn import InstanceEnhancementBatchNorm as InstanceEnhancementBatchNorm
from attnlab.attention.registry import GATES as GATES
from attnlab.attention.registry import GateInfo as GateInfo
from attnlab.attention.registry import GateSpec as GateSpec
from attnlab.attention.registry import build_gate as build_gate
from attnlab.attention.registry import gate_info as gate_info
from attnlab.attention.registry import parse_gate as parse_gate
from attnlab.attention.se import SqueezeExcitation as SqueezeExcitation
from attnlab.attention.sem import SwitchableExcitation as SwitchableExcitation
from attnlab.attention.sge import SpatialGroupEnhance as SpatialGroupEnhance
from attnlab.attention.spa import SpatialPyramidAttention as SpatialPyramidAttention
from attnlab.attention.srm import StyleRecalibration as StyleRecalibration
from attnlab.attention.step import StepAdaptor as StepAdaptor
