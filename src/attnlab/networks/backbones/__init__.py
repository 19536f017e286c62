"""The CIFAR networks of the papers that timm and torchvision lack."""

from attnlab.networks.backbones.mobile import MobileNetV1 as MobileNetV1
from attnlab.networks.backbones.mobile import ShuffleNetV2 as ShuffleNetV2
from attnlab.networks.backbones.registry import BACKBONES as BACKBONES
from attnlab.networks.backbones.registry import BackboneInfo as BackboneInfo
from attnlab.networks.backbones.registry import build_backbone as build_backbone
from attnlab.networks.backbones.registry import list_models as list_models
from attnlab.networks.backbones.reparameterized import RepVGG as RepVGG
from attnlab.networks.backbones.resnet import ResNet as ResNet
from attnlab.networks.backbones.style import FastStyle as FastStyle
from attnlab.networks.backbones.unet import UNet as UNet
from attnlab.networks.backbones.unwrap import WeightsNote as WeightsNote
from attnlab.networks.backbones.vgg import VGG19 as VGG19
