"""The CIFAR networks of the papers that timm and torchvision lack."""

from attnlab.backbones.registry import BACKBONES as BACKBONES
from attnlab.backbones.registry import BackboneInfo as BackboneInfo
from attnlab.backbones.registry import build_backbone as build_backbone
from attnlab.backbones.registry import list_models as list_models
from attnlab.backbones.resnet import ResNet as ResNet
