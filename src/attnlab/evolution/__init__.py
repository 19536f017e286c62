"""Evolution: one operator for convolution, self-attention and involution."""

from attnlab.evolution.attention import local_attention as local_attention
from attnlab.evolution.attention_layer import LocalAttention2d as LocalAttention2d
from attnlab.evolution.channel_attention import ChannelAttention2d as ChannelAttention2d
from attnlab.evolution.dynamic import DynamicConv2d as DynamicConv2d
from attnlab.evolution.dynamic import MixtureFunction as MixtureFunction
from attnlab.evolution.dynamic import ODConvFunction as ODConvFunction
from attnlab.evolution.dynamic import WeightNetFunction as WeightNetFunction
from attnlab.evolution.forms import AttentionKernel as AttentionKernel
from attnlab.evolution.forms import DenseKernel as DenseKernel
from attnlab.evolution.forms import Kernel as Kernel
from attnlab.evolution.forms import MapKernel as MapKernel
from attnlab.evolution.forms import SampleKernel as SampleKernel
from attnlab.evolution.forms import SharedKernel as SharedKernel
from attnlab.evolution.involution import Involution2d as Involution2d
from attnlab.evolution.involution import involution2d as involution2d
from attnlab.evolution.native import NativeStatus as NativeStatus
from attnlab.evolution.native import native_status as native_status
from attnlab.evolution.native import use_native as use_native
from attnlab.evolution.operator import EvolutionConv2d as EvolutionConv2d
from attnlab.evolution.operator import KernelFunction as KernelFunction
from attnlab.evolution.operator import Operator as Operator
from attnlab.evolution.primitives import av as av
from attnlab.evolution.primitives import qk as qk
from attnlab.evolution.primitives import sc as sc
from attnlab.evolution.reference import evolve as evolve
from attnlab.evolution.window import Window as Window
