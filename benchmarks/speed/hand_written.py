"""Networks with gates written into their blocks by hand, as one writes them without a library.

A gate is a module that multiplies by itself, and a block is the block of its library with one line
more. `written_like` makes such a network with the weights of one that `attnlab.insert` made.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from timm.models._efficientnet_blocks import InvertedResidual
from timm.models.resnet import BasicBlock as TimmBasicBlock
from timm.models.resnet import Bottleneck as TimmBottleneck
from timm.models.vision_transformer import Block as TransformerBlock
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.networks.backbones.resnet import BasicBlock
from attnlab.surgery.insertion import attachments


class SqueezedByHand(nn.Module):
    """SE: two layers on the mean of each channel; of maps, or of tokens (batch, tokens, C)."""

    def __init__(self, gate: nn.Module) -> None:
        super().__init__()
        excitation: Any = gate.excitation
        self.fc1, self.fc2 = excitation.fc1, excitation.fc2

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 3:
            return x * torch.sigmoid(self.fc2(F.relu(self.fc1(x.mean(1))))).unsqueeze(1)
        gate = torch.sigmoid(self.fc2(F.relu(self.fc1(x.mean((2, 3))))))
        return x * gate.view(x.shape[0], x.shape[1], 1, 1)


class ConvolvedByHand(nn.Module):
    """ECA: a convolution along the channels of their means."""

    def __init__(self, gate: nn.Module) -> None:
        super().__init__()
        self.conv = gate.conv

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 3:
            return x * torch.sigmoid(self.conv(x.mean(1, keepdim=True)))
        gate = torch.sigmoid(self.conv(x.mean((2, 3)).unsqueeze(1)).squeeze(1))
        return x * gate.view(x.shape[0], x.shape[1], 1, 1)


class BlockAttentionByHand(nn.Module):
    """CBAM: the channels' gate multiplied in, then that of the pixels."""

    def __init__(self, gate: nn.Module) -> None:
        super().__init__()
        excitation: Any = gate.excitation
        self.fc1, self.fc2, self.conv = excitation.fc1, excitation.fc2, gate.conv

    def forward(self, x: Tensor) -> Tensor:
        mean = self.fc2(F.relu(self.fc1(x.mean((2, 3)))))
        largest = self.fc2(F.relu(self.fc1(x.amax((2, 3)))))
        x = x * torch.sigmoid(mean + largest).view(x.shape[0], x.shape[1], 1, 1)
        pooled = torch.cat((x.amax(1, keepdim=True), x.mean(1, keepdim=True)), 1)
        return x * torch.sigmoid(self.conv(pooled))


class StepByHand(nn.Module):
    """StepNet's adaptor, which reads both ends of the step."""

    def __init__(self, gate: nn.Module) -> None:
        super().__init__()
        response: Any = gate.response
        self.weight = response.conv.weight
        self.norm = response.norm
        self.scale, self.shift = response.ie.weight, response.ie.bias

    def forward(self, shortcut: Tensor, x: Tensor) -> Tensor:
        space = 1 if x.dim() == 3 else (2, 3)
        here = shortcut.mean(space)
        states = torch.stack((here, here + x.mean(space)), 1)
        response = self.norm((self.weight * states).sum(1))
        gate = torch.sigmoid(torch.addcmul(self.shift, self.scale, response))
        return x * (gate.unsqueeze(1) if x.dim() == 3 else gate.view(*gate.shape, 1, 1))


GATES: Mapping[str, Callable[[nn.Module], nn.Module]] = {
    "se": SqueezedByHand,
    "eca": ConvolvedByHand,
    "cbam": BlockAttentionByHand,
    "step": StepByHand,
}


class _Small(BasicBlock):
    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.shortcut(x)
        hidden = F.relu(self.bn1(self.conv1(x)))
        branch = self.by_hand(self.bn2(self.conv2(hidden)))
        return F.relu(branch + shortcut)


class _SmallStep(BasicBlock):
    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.shortcut(x)
        hidden = F.relu(self.bn1(self.conv1(x)))
        branch = self.by_hand(shortcut, self.bn2(self.conv2(hidden)))
        return F.relu(branch + shortcut)


class _BasicStep(TimmBasicBlock):
    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        x = self.bn1(self.conv1(x))
        x = self.aa(self.act1(self.drop_block(x)))
        x = self.bn2(self.conv2(x))
        if self.se is not None:
            x = self.se(x)
        if self.drop_path is not None:
            x = self.drop_path(x)
        if self.downsample is not None:
            shortcut = self.downsample(shortcut)
        x = self.by_hand(shortcut, x)
        x += shortcut
        return self.act2(x)


class _BottleneckStep(TimmBottleneck):
    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        x = self.act1(self.bn1(self.conv1(x)))
        x = self.aa(self.act2(self.drop_block(self.bn2(self.conv2(x)))))
        x = self.bn3(self.conv3(x))
        if self.se is not None:
            x = self.se(x)
        if self.drop_path is not None:
            x = self.drop_path(x)
        if self.downsample is not None:
            shortcut = self.downsample(shortcut)
        x = self.by_hand(shortcut, x)
        x += shortcut
        return self.act3(x)


class _Inverted(InvertedResidual):
    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        if self.conv_s2d is not None:
            x = self.bn_s2d(self.conv_s2d(x))
        x = self.bn1(self.conv_pw(x))
        x = self.se(self.aa(self.bn2(self.conv_dw(x))))
        x = self.bn3(self.conv_pwl(x))
        return self.by_hand(self.drop_path(x)) + shortcut


class _InvertedStep(InvertedResidual):
    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        if self.conv_s2d is not None:
            x = self.bn_s2d(self.conv_s2d(x))
        x = self.bn1(self.conv_pw(x))
        x = self.se(self.aa(self.bn2(self.conv_dw(x))))
        x = self.bn3(self.conv_pwl(x))
        return self.by_hand(shortcut, self.drop_path(x)) + shortcut


class _Transformer(TransformerBlock):
    def forward(self, x: Tensor, attn_mask: Any = None, is_causal: bool = False) -> Tensor:
        mixed = self.attn(self.norm1(x), attn_mask=attn_mask, is_causal=is_causal)
        x = x + self.by_hand_0(self.drop_path1(self.ls1(mixed)))
        return x + self.by_hand_1(self.drop_path2(self.ls2(self.mlp(self.norm2(x)))))


class _TransformerStep(TransformerBlock):
    def forward(self, x: Tensor, attn_mask: Any = None, is_causal: bool = False) -> Tensor:
        mixed = self.attn(self.norm1(x), attn_mask=attn_mask, is_causal=is_causal)
        x = x + self.by_hand_0(x, self.drop_path1(self.ls1(mixed)))
        return x + self.by_hand_1(x, self.drop_path2(self.ls2(self.mlp(self.norm2(x)))))


# By the block's class: what it becomes with a gate of the branch, and with one of the step. timm's
# residual blocks have a place for a gate of the branch, `se`.
_BLOCKS: Mapping[type[nn.Module], tuple[type[nn.Module] | None, type[nn.Module]]] = {
    BasicBlock: (_Small, _SmallStep),
    TimmBasicBlock: (None, _BasicStep),
    TimmBottleneck: (None, _BottleneckStep),
    InvertedResidual: (_Inverted, _InvertedStep),
    TransformerBlock: (_Transformer, _TransformerStep),
}


def written_like(plain: nn.Module, gated: nn.Module, gate: str) -> nn.Module:
    """A copy of `plain` with the gates of `gated`, which `attnlab.insert` made of it, by hand."""
    network = copy.deepcopy(plain)
    for name, attachment in attachments(gated):
        home, _, attribute = name.rpartition(".")
        block = network.get_submodule(home)
        own = next(each for each in _BLOCKS if isinstance(block, each))
        of_branch, of_step = _BLOCKS[own]
        made = GATES[gate](copy.deepcopy(attachment.gate_module))
        written = of_step if gate == "step" else of_branch
        if written is None:
            block.se = made
            continue
        block.__class__ = written
        block.add_module(attribute.replace("attnlab", "by_hand"), made)
    return network.train(gated.training)
