"""The CIFAR networks of the papers that timm and torchvision lack."""

from attnlab.backbones.mobilenet import MobileNetV1 as MobileNetV1
from attnlab.backbones.registry import BACKBONES as BACKBONES
from attnlab.backbones.registry import BackboneInfo as BackboneInfo
from attnlab.backbones.registry import build_backbone as build_backbone
from attnlab.backbones.registry import list_models as list_models
from attnlab.backbones.repvgg import RepVGG as RepVGG
from attnlab.backbones.resnet import ResNet as ResNet
from attnlab.backbones.shufflenet import ShuffleNetV2 as ShuffleNetV2
from attnlab.backbones.style import FastStyle as FastStyle
from attnlab.backbones.unwrap import WeightsNote as WeightsNote
from attnlab.backbones.vgg import VGG19 as VGG19
