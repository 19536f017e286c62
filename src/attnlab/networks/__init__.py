"""Networks: those of the papers, those of timm and torchvision by name, and files of weights."""

from typing import TYPE_CHECKING

from attnlab._folders import reached

if TYPE_CHECKING:
    from attnlab.networks import backbones as backbones
    from attnlab.networks import checkpoint as checkpoint

__getattr__, __dir__ = reached(__name__, "backbones", "checkpoint")
