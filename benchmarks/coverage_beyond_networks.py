"""Small networks of packages other than timm, each built without weights, and an input for each.

A network is built from its package's own constructor, made small by its options: few layers, few
channels, small images. Nothing is downloaded. Packages are imported when one of their networks is
built, so that each is optional.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

BATCH = 2

# Nothing here needs a network or a home folder.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("YOLO_OFFLINE", "true")
os.environ.setdefault("YOLO_VERBOSE", "false")


@dataclass(frozen=True)
class Network:
    """How to build a network, and what it runs on."""

    package: str
    group: str
    """What the network is for: detection, segmentation, video, text, ..."""
    name: str
    build: Callable[[], nn.Module]
    example: Callable[[], Any]
    """An input, a tuple of them, or a dictionary of them."""


def images(size: int, channels: int = 3) -> Callable[[], Tensor]:
    return lambda: torch.randn(BATCH, channels, size, size)


def volumes(size: int, channels: int = 1) -> Callable[[], Tensor]:
    return lambda: torch.randn(BATCH, channels, size, size, size)


def signals(length: int, channels: int = 1) -> Callable[[], Tensor]:
    return lambda: torch.randn(BATCH, channels, length)


def clips(frames: int, size: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(BATCH, 3, frames, size, size)


def named(**shapes: tuple[int, ...]) -> Callable[[], dict[str, Tensor]]:
    """Keyword inputs of these shapes, the batch first."""
    return lambda: {name: torch.randn(BATCH, *shape) for name, shape in shapes.items()}


def tokens(length: int = 12, **others: Callable[[], Tensor]) -> Callable[[], dict[str, Tensor]]:
    def make() -> dict[str, Tensor]:
        ids = torch.randint(4, 90, (BATCH, length))
        return {"input_ids": ids, **{name: other() for name, other in others.items()}}

    return make


# --- torchvision


def _torchvision(path: str, **options: Any) -> Callable[[], nn.Module]:
    module, _, function = path.rpartition(".")

    def build() -> nn.Module:
        found = importlib.import_module(f"torchvision.models{'.' + module if module else ''}")
        return getattr(found, function)(**options)

    return build


def _detection(name: str, size: int = 96, **options: Any) -> Network:
    plain = {"weights": None, "weights_backbone": None, "min_size": size, "max_size": size}
    if name.startswith("ssd"):
        plain = {"weights": None, "weights_backbone": None}
    return Network(
        "torchvision",
        "detection",
        name,
        _torchvision(f"detection.{name}", **plain, **options),
        lambda: ([torch.rand(3, size, size) for _ in range(BATCH)],),
    )


def _torchvision_networks() -> Iterator[Network]:
    for name in (
        "fasterrcnn_resnet50_fpn",
        "fasterrcnn_resnet50_fpn_v2",
        "fasterrcnn_mobilenet_v3_large_fpn",
        "maskrcnn_resnet50_fpn",
        "keypointrcnn_resnet50_fpn",
        "retinanet_resnet50_fpn",
        "retinanet_resnet50_fpn_v2",
        "fcos_resnet50_fpn",
        "ssd300_vgg16",
        "ssdlite320_mobilenet_v3_large",
    ):
        yield _detection(name)
    for name in (
        "fcn_resnet50",
        "deeplabv3_resnet50",
        "deeplabv3_mobilenet_v3_large",
        "lraspp_mobilenet_v3_large",
    ):
        build = _torchvision(f"segmentation.{name}", weights=None, weights_backbone=None)
        yield Network("torchvision", "segmentation", name, build, images(64))
    for name in ("r3d_18", "mc3_18", "r2plus1d_18"):
        yield Network("torchvision", "video", name, _torchvision(f"video.{name}"), clips(4, 32))
    yield Network("torchvision", "video", "s3d", _torchvision("video.s3d"), clips(14, 224))
    yield Network("torchvision", "video", "swin3d_t", _torchvision("video.swin3d_t"), clips(4, 64))
    for name, residual_pool in (("MViT (v1)", False), ("MViT (v2)", True)):
        yield Network("torchvision", "video", name, _small_mvit(residual_pool), clips(4, 32))
    for name, size in (("raft_small", 128), ("raft_large", 128)):

        def pair(size: int = size) -> tuple[Tensor, ...]:
            return tuple(torch.randn(2, BATCH, 3, size, size).unbind())

        build = _torchvision(f"optical_flow.{name}")
        yield Network("torchvision", "flow", name, build, pair)
    for name, size in (
        ("resnext50_32x4d", 64),
        ("mnasnet0_5", 64),
        ("regnet_y_400mf", 64),
        ("efficientnet_v2_s", 64),
        ("convnext_tiny", 64),
        ("vit_b_32", 64),
        ("swin_t", 64),
        ("swin_v2_t", 64),
        ("googlenet", 96),
        ("squeezenet1_1", 64),
        ("shufflenet_v2_x0_5", 64),
    ):
        options: dict[str, Any] = {"image_size": 64} if name.startswith("vit") else {}
        options |= {"init_weights": True} if name == "googlenet" else {}
        build = _torchvision(name, weights=None, **options)
        yield Network("torchvision", "classification", name, build, images(size))
    build = _torchvision(
        "maxvit.MaxVit",
        input_size=(64, 64),
        stem_channels=16,
        partition_size=2,
        block_channels=[16, 32],
        block_layers=[1, 2],
        head_dim=8,
        stochastic_depth_prob=0.0,
    )
    yield Network("torchvision", "classification", "MaxVit", build, images(64))
    build = _torchvision("quantization.resnet18", weights=None)
    yield Network("torchvision", "quantization", "resnet18", build, images(64))


def _small_mvit(residual_pool: bool) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from torchvision.models.video.mvit import MSBlockConfig, MViT

        blocks = [
            MSBlockConfig(1, 16, 16, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 2, 2]),
            MSBlockConfig(2, 16, 32, [3, 3, 3], [3, 3, 3], [1, 2, 2], [1, 1, 1]),
            MSBlockConfig(2, 32, 32, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 1, 1]),
        ]
        return MViT(
            (32, 32),
            4,
            blocks,
            residual_pool=residual_pool,
            residual_with_cls_embed=False,
            rel_pos_embed=residual_pool,
            proj_after_attn=residual_pool,
        )

    return build


# --- Hugging Face

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
SEEN = {**SMALL, "image_size": 32, "patch_size": 8}
READ = {**SMALL, "vocab_size": 99}
DETECTING = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "num_queries": 7,
}


def _configured(model: str, **options: Any) -> Callable[[], nn.Module]:
    """A model of transformers from its own configuration class; options that are callable are
    configurations inside it."""

    def build() -> nn.Module:
        found = getattr(importlib.import_module("transformers"), model)
        return found(found.config_class(**_made(options)))

    return build


def _config(name: str, **options: Any) -> Callable[[], Any]:
    """A configuration inside another one."""
    return lambda: getattr(importlib.import_module("transformers"), name)(**_made(options))


def _made(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value() if callable(value) else value for name, value in options.items()}


def _hf(group: str, model: str, example: Callable[[], Any], **options: Any) -> Network:
    return Network("transformers", group, model, _configured(model, **options), example)


def _resnet(*features: str) -> Callable[[], Any]:
    return _config(
        "ResNetConfig",
        embedding_size=8,
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 2, 1],
        layer_type="basic",
        out_features=list(features) or ["stage4"],
    )


def _swin(*features: str, size: int = 64) -> Callable[[], Any]:
    return _config(
        "SwinConfig",
        image_size=size,
        patch_size=4,
        embed_dim=8,
        depths=[1, 1, 2, 1],
        num_heads=[1, 2, 2, 4],
        window_size=4,
        out_features=list(features),
    )


PIXELS = named(pixel_values=(3, 32, 32))
PIXELS_64 = named(pixel_values=(3, 64, 64))


def _hf_vision() -> Iterator[Network]:
    for model in (
        "ViTModel",
        "DeiTModel",
        "BeitModel",
        "Dinov2Model",
        "Dinov2WithRegistersModel",
        "DINOv3ViTModel",
        "IJepaModel",
        "ViTMSNModel",
        "CLIPVisionModel",
        "SiglipVisionModel",
        "Aimv2VisionModel",
    ):
        yield _hf("vision", model, PIXELS, **SEEN)
    stages = {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "patch_size": 4}
    for model in ("SwinModel", "Swinv2Model"):
        yield _hf("vision", model, PIXELS_64, **stages, image_size=64, window_size=4)
    yield _hf(
        "vision", "FocalNetModel", PIXELS_64,
        image_size=64, embed_dim=16, hidden_sizes=[16, 32], depths=[1, 2],
        focal_levels=[2, 2], focal_windows=[3, 3],
    )  # fmt: skip
    convolutional = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 2, 2, 1]}
    for model in ("ConvNextModel", "ConvNextV2Model", "DINOv3ConvNextModel"):
        yield _hf("vision", model, PIXELS_64, **convolutional)
    for kind in ("basic", "bottleneck"):
        network = _hf(
            "vision", "ResNetModel", PIXELS_64, **convolutional, embedding_size=8, layer_type=kind
        )
        yield Network(
            network.package, network.group, f"ResNetModel ({kind})", network.build, network.example
        )
    yield _hf("vision", "RegNetModel", PIXELS_64, **convolutional, embedding_size=8, groups_width=4)
    yield _hf(
        "vision", "BitModel", PIXELS_64,
        hidden_sizes=[32, 64], depths=[1, 2], embedding_size=32, num_groups=4,
    )  # fmt: skip
    yield _hf("vision", "MobileNetV2Model", PIXELS_64, depth_multiplier=0.25)
    yield _hf(
        "vision", "EfficientNetModel", PIXELS_64, image_size=64, width_coefficient=0.5,
        depth_coefficient=0.5, hidden_dim=640,
    )  # fmt: skip
    yield _hf(
        "vision", "SegformerModel", PIXELS_64,
        depths=[1, 1, 2, 1], hidden_sizes=[8, 16, 16, 32], num_attention_heads=[1, 2, 2, 4],
    )  # fmt: skip
    yield _hf(
        "vision", "PvtModel", PIXELS_64, image_size=64,
        depths=[1, 1, 2, 1], hidden_sizes=[8, 16, 16, 32], num_attention_heads=[1, 2, 2, 4],
    )  # fmt: skip
    yield _hf(
        "vision", "PvtV2Model", PIXELS_64, image_size=64,
        depths=[1, 1, 2, 1], hidden_sizes=[8, 16, 16, 32], num_attention_heads=[1, 2, 2, 4],
    )  # fmt: skip
    yield _hf(
        "vision", "CvtModel", PIXELS_64,
        embed_dim=[8, 16, 32], num_heads=[1, 2, 4], depth=[1, 2, 3],
    )  # fmt: skip
    yield _hf(
        "vision", "PoolFormerModel", PIXELS_64, depths=[1, 1, 2, 1], hidden_sizes=[8, 16, 16, 32]
    )
    yield _hf(
        "vision", "SwiftFormerModel", PIXELS_64,
        image_size=64, depths=[2, 2, 2, 2], embed_dims=[8, 16, 16, 32],
    )  # fmt: skip
    yield _hf(
        "vision", "LevitModel", PIXELS_64, image_size=64,
        hidden_sizes=[16, 32, 48], num_attention_heads=[2, 2, 2], depths=[2, 2, 2],
        key_dim=[8, 8, 8],
    )  # fmt: skip
    yield _hf(
        "vision", "HieraModel", PIXELS_64, image_size=[64, 64], embed_dim=16,
        depths=[1, 1, 2, 1], num_heads=[1, 2, 4, 8], masked_unit_size=[8, 8],
    )  # fmt: skip
    yield _hf(
        "vision", "MobileViTModel", PIXELS_64, image_size=64,
        hidden_sizes=[24, 32, 40], neck_hidden_sizes=[8, 16, 16, 24, 32, 40, 64],
    )  # fmt: skip
    yield _hf("vision", "MobileViTV2Model", PIXELS_64, image_size=64, width_multiplier=0.5)
    yield _hf(
        "vision", "HGNetV2Backbone", PIXELS_64, embedding_size=16,
        stem_channels=[3, 8, 16], stage_in_channels=[16, 16, 32, 64],
        stage_mid_channels=[8, 8, 16, 16], stage_out_channels=[16, 32, 64, 64],
        stage_num_blocks=[1, 1, 2, 1], stage_numb_of_layers=[2, 2, 2, 2],
        hidden_sizes=[16, 32, 64, 64], depths=[1, 1, 2, 1],
    )  # fmt: skip
    yield _hf(
        "vision", "Swin2SRForImageSuperResolution", PIXELS, image_size=32, embed_dim=16,
        depths=[1, 2], num_heads=[2, 2], window_size=4, upscale=2,
    )  # fmt: skip
    yield _hf(
        "vision", "DPTForDepthEstimation", PIXELS, **SEEN | {"num_hidden_layers": 4},
        backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8, 16, 16, 16],
        fusion_hidden_size=16, reassemble_factors=[4, 2, 1, 0.5],
    )  # fmt: skip
    yield _hf(
        "vision", "DepthAnythingForDepthEstimation", named(pixel_values=(3, 32, 32)),
        backbone_config=_config(
            "Dinov2Config", **SEEN | {"num_hidden_layers": 4}, reshape_hidden_states=False,
            out_features=["stage1", "stage2", "stage3", "stage4"],
        ),
        patch_size=8, reassemble_hidden_size=32, neck_hidden_sizes=[8, 16, 16, 16],
        fusion_hidden_size=16,
    )  # fmt: skip
    yield _hf(
        "vision", "GLPNForDepthEstimation", PIXELS_64,
        depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 16, 32], num_attention_heads=[1, 2, 2, 4],
        decoder_hidden_size=8,
    )  # fmt: skip
    yield _hf(
        "video", "VideoMAEModel", named(pixel_values=(4, 3, 32, 32)),
        **SEEN, num_frames=4, tubelet_size=2,
    )  # fmt: skip
    yield _hf("video", "TimesformerModel", named(pixel_values=(4, 3, 32, 32)), **SEEN, num_frames=4)
    yield _hf(
        "video", "VivitModel", named(pixel_values=(4, 3, 32, 32)),
        **SEEN, num_frames=4, tubelet_size=[2, 8, 8],
    )  # fmt: skip


def _hf_dense() -> Iterator[Network]:
    detr = {**DETECTING, "use_pretrained_backbone": False}
    with_resnet = {"backbone_config": _resnet(), **detr}
    for model in (
        "DetrForObjectDetection",
        "ConditionalDetrForObjectDetection",
        "TableTransformerForObjectDetection",
    ):
        yield _hf("detection", model, PIXELS_64, **with_resnet)
    yield _hf("detection", "DetrForSegmentation", PIXELS_64, **{
        **detr, "d_model": 64, "encoder_attention_heads": 8, "decoder_attention_heads": 8,
        "backbone_config": _resnet("stage1", "stage2", "stage3", "stage4")
    })  # fmt: skip
    yield _hf(
        "detection", "DabDetrForObjectDetection", PIXELS_64,
        backbone_config=_resnet(), hidden_size=32, encoder_layers=2, decoder_layers=3,
        encoder_ffn_dim=48, decoder_ffn_dim=48, encoder_attention_heads=4,
        decoder_attention_heads=4, num_queries=7,
    )  # fmt: skip
    pyramid = _resnet("stage2", "stage3", "stage4")
    for name, extra in (
        ("plain", {}),
        ("boxes refined", {"with_box_refine": True}),
        ("two stages", {"with_box_refine": True, "two_stage": True, "two_stage_num_proposals": 7}),
    ):
        network = _hf(
            "detection", "DeformableDetrForObjectDetection", PIXELS_64,
            **{**detr, "backbone_config": pyramid, "num_feature_levels": 4, **extra},
        )  # fmt: skip
        yield Network(
            network.package, network.group, f"DeformableDetr ({name})", network.build,
            network.example,
        )  # fmt: skip
    for model, config in (
        ("RTDetrForObjectDetection", "RTDetrResNetConfig"),
        ("RTDetrV2ForObjectDetection", "RTDetrResNetConfig"),
        ("DFineForObjectDetection", "HGNetV2Config"),
    ):
        yield _hf("detection", model, PIXELS_64, **_rt_detr(config))
    yield _hf("detection", "YolosForObjectDetection", PIXELS, **SEEN | {
        "image_size": [32, 32], "num_detection_tokens": 5
    })  # fmt: skip
    yield _hf(
        "detection", "OwlViTForObjectDetection",
        lambda: {
            "pixel_values": torch.randn(1, 3, 32, 32),
            "input_ids": torch.randint(4, 90, (2, 6)),
        },
        vision_config={**SEEN}, text_config={**READ, "max_position_embeddings": 8},
        projection_dim=32,
    )  # fmt: skip
    yield _hf(
        "detection", "GroundingDinoForObjectDetection",
        tokens(6, pixel_values=lambda: torch.randn(BATCH, 3, 64, 64)),
        backbone_config=_swin("stage2", "stage3", "stage4"),
        text_config=_config("BertConfig", **READ), **DETECTING,
    )  # fmt: skip
    yield _hf(
        "segmentation", "MaskFormerForInstanceSegmentation", PIXELS_64,
        backbone_config=_swin("stage1", "stage2", "stage3", "stage4"),
        decoder_config=_config("DetrConfig", **detr, backbone_config=_resnet()),
        fpn_feature_size=32, mask_feature_size=32,
    )  # fmt: skip
    yield _hf(
        "segmentation", "Mask2FormerForUniversalSegmentation", PIXELS_64,
        backbone_config=_swin("stage1", "stage2", "stage3", "stage4"),
        feature_size=32, mask_feature_size=32, hidden_dim=32, encoder_feedforward_dim=48,
        encoder_layers=2, decoder_layers=3, num_attention_heads=4, dim_feedforward=48,
        num_queries=7,
    )  # fmt: skip
    yield _hf(
        "segmentation", "UperNetForSemanticSegmentation", PIXELS_64,
        backbone_config=_swin("stage1", "stage2", "stage3", "stage4"),
        hidden_size=16, pool_scales=[1, 2], auxiliary_in_channels=32, auxiliary_channels=8,
    )  # fmt: skip
    yield _hf(
        "segmentation", "SegformerForSemanticSegmentation", PIXELS_64,
        depths=[1, 1, 2, 1], hidden_sizes=[8, 16, 16, 32], num_attention_heads=[1, 2, 2, 4],
        decoder_hidden_size=16,
    )  # fmt: skip
    yield _hf(
        "segmentation", "EomtForUniversalSegmentation", PIXELS, **SEEN, num_blocks=1, num_queries=5,
        num_upscale_blocks=1,
    )  # fmt: skip
    yield _hf(
        "segmentation", "SamModel",
        lambda: {
            "pixel_values": torch.randn(BATCH, 3, 64, 64),
            "input_points": torch.rand(BATCH, 1, 2, 2) * 64,
        },
        vision_config={
            **SMALL, "image_size": 64, "patch_size": 8, "output_channels": 16, "window_size": 4,
            "global_attn_indexes": [1], "mlp_dim": 48, "num_pos_feats": 8,
        },
        prompt_encoder_config={
            "hidden_size": 16, "image_size": 64, "patch_size": 8, "image_embedding_size": 8,
            "mask_input_channels": 8,
        },
        mask_decoder_config={
            "hidden_size": 16, "num_attention_heads": 2, "mlp_dim": 32, "iou_head_hidden_dim": 16,
        },
    )  # fmt: skip


def _rt_detr(backbone: str) -> dict[str, Any]:
    if backbone == "RTDetrResNetConfig":
        features = _config(
            backbone, embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1],
            layer_type="basic", out_features=["stage2", "stage3", "stage4"],
        )  # fmt: skip
        channels = [16, 24, 32]
    else:
        features = _config(
            backbone, embedding_size=16, stem_channels=[3, 8, 16],
            stage_in_channels=[16, 16, 32, 64], stage_mid_channels=[8, 8, 16, 16],
            stage_out_channels=[16, 32, 64, 64], stage_num_blocks=[1, 1, 2, 1],
            stage_numb_of_layers=[2, 2, 2, 2], hidden_sizes=[16, 32, 64, 64],
            depths=[1, 1, 2, 1], out_features=["stage2", "stage3", "stage4"],
        )  # fmt: skip
        channels = [32, 64, 64]
    return {
        "backbone_config": features,
        "encoder_hidden_dim": 32,
        "encoder_in_channels": channels,
        "feat_strides": [8, 16, 32],
        "encoder_layers": 1,
        "encoder_ffn_dim": 48,
        "encoder_attention_heads": 4,
        "d_model": 32,
        "num_queries": 7,
        "decoder_in_channels": [32, 32, 32],
        "decoder_ffn_dim": 48,
        "decoder_layers": 3,
        "decoder_attention_heads": 4,
        "num_feature_levels": 3,
        "anchor_image_size": None,
        "num_denoising": 0,
    }


def _encodec() -> nn.Module:
    """With codebooks as after training: they start at zero, and then every signal has one code."""
    transformers = importlib.import_module("transformers")
    model: nn.Module = transformers.EncodecModel(
        transformers.EncodecConfig(
            num_filters=4, upsampling_ratios=[4, 2], codebook_size=16, hidden_size=16,
            codebook_dim=16,
        )
    )  # fmt: skip
    for name, buffer in model.named_buffers():
        if name.endswith("codebook.embed"):
            buffer.normal_()
    return model


def _hf_text() -> Iterator[Network]:
    for model in (
        "BertModel",
        "RobertaModel",
        "ElectraModel",
        "MPNetModel",
        "DebertaV2Model",
        "AlbertModel",
        "ConvBertModel",
        "FNetModel",
        "ModernBertModel",
        "RoFormerModel",
    ):
        extra: dict[str, Any] = {}
        if model in ("AlbertModel", "RoFormerModel"):
            extra = {"embedding_size": 16}
        if model == "ModernBertModel":
            extra = {"pad_token_id": 0, "reference_compile": False}
        yield _hf("text", model, tokens(), **READ, **extra)
    yield _hf("text", "DistilBertModel", tokens(), vocab_size=99, dim=32, n_layers=2, n_heads=4,
              hidden_dim=48)  # fmt: skip
    yield _hf("text", "XLNetModel", tokens(), vocab_size=99, d_model=32, n_layer=2, n_head=4,
              d_inner=48)  # fmt: skip
    yield _hf("text", "GPT2Model", tokens(), vocab_size=99, n_embd=32, n_layer=2, n_head=4)
    yield _hf("text", "GPTNeoXModel", tokens(), **READ)
    yield _hf("text", "LlamaModel", tokens(), **READ, num_key_value_heads=2)
    yield _hf("text", "Qwen3MoeModel", tokens(), **READ, num_key_value_heads=2, num_experts=4,
              num_experts_per_tok=2, moe_intermediate_size=16, head_dim=8)  # fmt: skip
    yield _hf("text", "OPTModel", tokens(), vocab_size=99, hidden_size=32, num_hidden_layers=2,
              num_attention_heads=4, ffn_dim=48, word_embed_proj_dim=32)  # fmt: skip
    yield _hf("text", "MambaModel", tokens(), vocab_size=99, hidden_size=32, num_hidden_layers=2,
              state_size=8)  # fmt: skip
    yield _hf("text", "T5Model",
              lambda: {"input_ids": torch.randint(4, 90, (BATCH, 9)),
                       "decoder_input_ids": torch.randint(4, 90, (BATCH, 5))},
              vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4)  # fmt: skip
    yield _hf("text", "BartModel", tokens(), vocab_size=99, d_model=32, encoder_layers=2,
              decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
              encoder_ffn_dim=48, decoder_ffn_dim=48)  # fmt: skip
    yield _hf(
        "audio", "Wav2Vec2Model", lambda: {"input_values": torch.randn(BATCH, 2000)},
        **SMALL, conv_dim=[16, 16], conv_stride=[5, 4], conv_kernel=[10, 8],
        num_feat_extract_layers=2, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4,
    )  # fmt: skip
    yield _hf(
        "audio", "Wav2Vec2ConformerModel", lambda: {"input_values": torch.randn(BATCH, 2000)},
        **SMALL, conv_dim=[16, 16], conv_stride=[5, 4], conv_kernel=[10, 8],
        num_feat_extract_layers=2, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4,
    )  # fmt: skip
    yield _hf(
        "audio", "WhisperModel",
        lambda: {"input_features": torch.randn(BATCH, 16, 40),
                 "decoder_input_ids": torch.randint(4, 90, (BATCH, 5))},
        vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=16,
        max_source_positions=20, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    yield Network("transformers", "audio", "EncodecModel", _encodec, named(input_values=(1, 640)))


# --- segmentation_models_pytorch


def _smp(name: str, encoder: str = "resnet18", size: int = 64, **options: Any) -> Network:
    def build() -> nn.Module:
        smp = importlib.import_module("segmentation_models_pytorch")
        return getattr(smp, name)(encoder, encoder_weights=None, **options)

    label = name if encoder == "resnet18" else f"{name} ({encoder})"
    return Network("segmentation_models_pytorch", "segmentation", label, build, images(size))


def _smp_networks() -> Iterator[Network]:
    for name in (
        "Unet",
        "UnetPlusPlus",
        "MAnet",
        "Linknet",
        "FPN",
        "PSPNet",
        "DeepLabV3",
        "DeepLabV3Plus",
        "UPerNet",
        "Segformer",
    ):
        yield _smp(name)
    yield _smp("PAN", size=128)
    yield _smp("Unet", "vgg11_bn")
    yield _smp("FPN", "vgg11_bn")
    yield _smp("Linknet", "mobilenet_v2")
    yield _smp("FPN", "mit_b0")
    yield _smp("Unet", "xception")
    yield _smp("DPT", "tu-vit_tiny_patch16_224", dynamic_img_size=True)


# --- Ultralytics


def _yolo(file: str, task: str = "DetectionModel", size: int = 64) -> Network:
    def build() -> nn.Module:
        tasks = importlib.import_module("ultralytics.nn.tasks")
        return getattr(tasks, task)(file, verbose=False)

    return Network("ultralytics", "detection", file.removesuffix(".yaml"), build, images(size))


def _ultralytics_networks() -> Iterator[Network]:
    for file in (
        "yolov3-tiny.yaml",
        "yolov5n.yaml",
        "yolov6n.yaml",
        "yolov8n.yaml",
        "yolov9t.yaml",
        "yolov10n.yaml",
        "yolo11n.yaml",
        "yolo12n.yaml",
        "yolo26n.yaml",
        "yolov8n-p6.yaml",
    ):
        yield _yolo(file)
    yield _yolo("yolov8n-seg.yaml", "SegmentationModel")
    yield _yolo("yolo11n-pose.yaml", "PoseModel")
    yield _yolo("yolo11n-obb.yaml", "OBBModel")
    yield _yolo("yolov8n-cls.yaml", "ClassificationModel")
    yield _yolo("rtdetr-resnet50.yaml", "RTDETRDetectionModel")
    yield _yolo("rtdetr-l.yaml", "RTDETRDetectionModel")


# --- diffusers


def _diffusers(
    group: str, name: str, example: Callable[[], Any], label: str = "", **options: Any
) -> Network:
    def build() -> nn.Module:
        return getattr(importlib.import_module("diffusers"), name)(**options)

    return Network("diffusers", group, label or name, build, example)


def _noisy(channels: int, size: int, **shapes: tuple[int, ...]) -> Callable[[], dict[str, Any]]:
    def make() -> dict[str, Any]:
        return {
            "sample": torch.randn(BATCH, channels, size, size),
            "timestep": torch.tensor([3] * BATCH),
            **{name: torch.randn(BATCH, *shape) for name, shape in shapes.items()},
        }

    return make


def _diffusers_networks() -> Iterator[Network]:
    unet = {"block_out_channels": (16, 32), "norm_num_groups": 4, "sample_size": 16}
    yield _diffusers(
        "diffusion", "UNet2DModel", _noisy(3, 16), **unet, layers_per_block=1,
        attention_head_dim=8, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    yield _diffusers(
        "diffusion", "UNet2DModel", _noisy(3, 16), "UNet2DModel (skip blocks)",
        **unet | {"block_out_channels": (32, 64)}, layers_per_block=1, attention_head_dim=8,
        down_block_types=("SkipDownBlock2D", "AttnSkipDownBlock2D"),
        up_block_types=("AttnSkipUpBlock2D", "SkipUpBlock2D"),
    )  # fmt: skip
    yield _diffusers(
        "diffusion", "UNet2DConditionModel", _noisy(4, 16, encoder_hidden_states=(5, 24)), **unet,
        layers_per_block=1, attention_head_dim=4, cross_attention_dim=24,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    yield _diffusers(
        "diffusion", "ControlNetModel",
        _noisy(4, 16, encoder_hidden_states=(5, 24), controlnet_cond=(3, 128, 128)),
        block_out_channels=(16, 32), norm_num_groups=4, layers_per_block=1, attention_head_dim=4,
        cross_attention_dim=24, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        conditioning_embedding_out_channels=(8, 16, 16, 16),
    )  # fmt: skip
    yield _diffusers(
        "diffusion", "UNet1DModel",
        lambda: {"sample": torch.randn(BATCH, 14, 16), "timestep": torch.tensor([3] * BATCH)},
        block_out_channels=(32, 32), in_channels=14, out_channels=14, extra_in_channels=0,
        time_embedding_type="positional", use_timestep_embedding=True, layers_per_block=1,
        down_block_types=("DownResnetBlock1D", "DownResnetBlock1D"),
        up_block_types=("UpResnetBlock1D",), mid_block_type="MidResTemporalBlock1D",
        out_block_type="OutConv1DBlock", act_fn="mish", flip_sin_to_cos=False, freq_shift=1.0,
        norm_num_groups=4,
    )  # fmt: skip
    yield _diffusers(
        "diffusion", "UNet3DConditionModel",
        lambda: {
            "sample": torch.randn(BATCH, 4, 2, 16, 16), "timestep": torch.tensor([3] * BATCH),
            "encoder_hidden_states": torch.randn(BATCH, 5, 24),
        },
        **unet, layers_per_block=1, attention_head_dim=4, cross_attention_dim=24,
        down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"),
        up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"),
    )  # fmt: skip
    autoencoder = {"block_out_channels": (8, 16), "norm_num_groups": 4, "latent_channels": 4}
    yield _diffusers(
        "diffusion", "AutoencoderKL", lambda: {"sample": torch.randn(BATCH, 3, 16, 16)},
        **autoencoder, down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
    )  # fmt: skip
    yield _diffusers(
        "diffusion", "AutoencoderTiny", lambda: {"sample": torch.randn(BATCH, 3, 16, 16)},
        encoder_block_out_channels=(8, 8), decoder_block_out_channels=(8, 8),
        num_encoder_blocks=(1, 2), num_decoder_blocks=(2, 1),
    )  # fmt: skip
    yield _diffusers(
        "diffusion", "AutoencoderDC", lambda: {"sample": torch.randn(BATCH, 3, 32, 32)},
        latent_channels=4, attention_head_dim=8,
        encoder_block_types=("ResBlock", "EfficientViTBlock"),
        decoder_block_types=("ResBlock", "EfficientViTBlock"),
        encoder_block_out_channels=(8, 16), decoder_block_out_channels=(8, 16),
        encoder_layers_per_block=(1, 1), decoder_layers_per_block=(1, 1),
        encoder_qkv_multiscales=((), (5,)), decoder_qkv_multiscales=((), (5,)),
        decoder_norm_types="rms_norm", decoder_act_fns="silu",
    )  # fmt: skip
    yield _diffusers(
        "diffusion", "VQModel", lambda: {"sample": torch.randn(BATCH, 3, 16, 16)},
        block_out_channels=(8, 16), norm_num_groups=4, latent_channels=3, num_vq_embeddings=8,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    )  # fmt: skip
    yield _diffusers(
        "diffusion", "DiTTransformer2DModel",
        lambda: {
            "hidden_states": torch.randn(BATCH, 4, 16, 16),
            "timestep": torch.tensor([3] * BATCH), "class_labels": torch.tensor([1] * BATCH),
        },
        num_attention_heads=2, attention_head_dim=16, in_channels=4, num_layers=2, sample_size=16,
        num_embeds_ada_norm=10, norm_num_groups=4,
    )  # fmt: skip
    yield _diffusers(
        "diffusion", "PixArtTransformer2DModel",
        lambda: {
            "hidden_states": torch.randn(BATCH, 4, 16, 16),
            "timestep": torch.tensor([3] * BATCH),
            "encoder_hidden_states": torch.randn(BATCH, 5, 24),
            "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
        },
        num_attention_heads=2, attention_head_dim=16, in_channels=4, num_layers=2, sample_size=16,
        caption_channels=24, cross_attention_dim=32, norm_num_groups=4,
        use_additional_conditions=False,
    )  # fmt: skip
    yield _diffusers(
        "diffusion", "SD3Transformer2DModel",
        lambda: {
            "hidden_states": torch.randn(BATCH, 4, 16, 16),
            "timestep": torch.tensor([3] * BATCH),
            "encoder_hidden_states": torch.randn(BATCH, 5, 24),
            "pooled_projections": torch.randn(BATCH, 20),
        },
        sample_size=16, in_channels=4, num_layers=3, attention_head_dim=8, num_attention_heads=4,
        joint_attention_dim=24, caption_projection_dim=32, pooled_projection_dim=20,
        pos_embed_max_size=16,
    )  # fmt: skip
    yield _diffusers(
        "diffusion", "FluxTransformer2DModel",
        lambda: {
            "hidden_states": torch.randn(BATCH, 16, 4), "timestep": torch.tensor([0.3] * BATCH),
            "encoder_hidden_states": torch.randn(BATCH, 5, 24),
            "pooled_projections": torch.randn(BATCH, 20),
            "txt_ids": torch.zeros(5, 3), "img_ids": torch.zeros(16, 3),
        },
        in_channels=4, num_layers=2, num_single_layers=2, attention_head_dim=16,
        num_attention_heads=2, joint_attention_dim=24, pooled_projection_dim=20,
        axes_dims_rope=(4, 4, 8),
    )  # fmt: skip


# --- MONAI


def _monai(
    group: str, name: str, example: Callable[[], Any], label: str = "", **options: Any
) -> Network:
    def build() -> nn.Module:
        module, _, function = f"nets.{name}".rpartition(".")
        return getattr(importlib.import_module(f"monai.networks.{module}"), function)(**options)

    return Network("monai", group, label or name, build, example)


def _monai_networks() -> Iterator[Network]:
    flat = {"spatial_dims": 2, "in_channels": 1, "out_channels": 2}
    solid = {**flat, "spatial_dims": 3}
    layers = {"channels": (4, 8, 16), "strides": (2, 2)}
    one = {**flat, "spatial_dims": 1}
    yield _monai("1D", "UNet", signals(32), "UNet (1D)", **one, **layers, num_res_units=2)
    yield _monai("2D", "UNet", images(32, 1), "UNet (2D)", **flat, **layers, num_res_units=2)
    yield _monai("3D", "UNet", volumes(16), "UNet (3D)", **solid, **layers, num_res_units=1)
    yield _monai("2D", "UNet", images(32, 1), "UNet (plain)", **flat, **layers, num_res_units=0)
    yield _monai("2D", "AttentionUnet", images(32, 1), **flat, **layers)
    yield _monai("3D", "AttentionUnet", volumes(16), "AttentionUnet (3D)", **solid, **layers)
    yield _monai("2D", "BasicUNet", images(32, 1), **flat, features=(4, 4, 8, 8, 16, 4))
    yield _monai("3D", "SegResNet", volumes(16), **solid, init_filters=8)
    yield _monai("2D", "SegResNet", images(32, 1), "SegResNet (2D)", **flat, init_filters=8)
    yield _monai("3D", "SegResNetDS", volumes(16), **solid, init_filters=8, blocks_down=(1, 2, 2))
    yield _monai("3D", "VNet", volumes(32), **solid)
    yield _monai("3D", "HighResNet", volumes(16), **solid)
    yield _monai(
        "3D", "DynUNet", volumes(16), **solid, kernel_size=[3, 3, 3], strides=[1, 2, 2],
        upsample_kernel_size=[2, 2], filters=[4, 8, 16], res_block=True,
    )  # fmt: skip
    yield _monai(
        "3D", "UNETR", volumes(32), in_channels=1, out_channels=2, img_size=(32, 32, 32),
        feature_size=4, hidden_size=24, mlp_dim=32, num_heads=4,
    )  # fmt: skip
    yield _monai(
        "3D", "SwinUNETR", volumes(64), in_channels=1, out_channels=2, feature_size=12,
        depths=(1, 1, 1, 1), num_heads=(2, 2, 4, 4),
    )  # fmt: skip
    yield _monai(
        "3D", "ViT", volumes(16), in_channels=1, img_size=(16, 16, 16), patch_size=(8, 8, 8),
        hidden_size=24, mlp_dim=32, num_layers=3, num_heads=4,
    )  # fmt: skip
    residual = {
        "block": "basic", "layers": [1, 1, 1, 1], "block_inplanes": [4, 8, 8, 16],
        "n_input_channels": 1,
    }  # fmt: skip
    yield _monai("1D", "ResNet", signals(64), "ResNet (1D)", **residual, spatial_dims=1,
                 conv1_t_size=7)  # fmt: skip
    yield _monai("3D", "ResNet", volumes(16), "ResNet (3D)", **residual, spatial_dims=3)
    yield _monai("3D", "ResNet", volumes(16), "ResNet (3D, padded)", **residual, spatial_dims=3,
                 shortcut_type="A")  # fmt: skip
    yield _monai("2D", "SEResNet50", images(32, 1), spatial_dims=2, in_channels=1)
    yield _monai("2D", "EfficientNetBN", images(64), model_name="efficientnet-b0",
                 pretrained=False)  # fmt: skip
    yield _monai("3D", "DenseNet", volumes(32), spatial_dims=3, in_channels=1, out_channels=2,
                 init_features=8, growth_rate=4, block_config=(2, 2))  # fmt: skip
    yield _monai("3D", "MedNeXt", volumes(16), spatial_dims=3, init_filters=4, in_channels=1,
                 out_channels=2, blocks_down=(1, 1), blocks_bottleneck=1, blocks_up=(1, 1),
                 encoder_expansion_ratio=(2, 2), decoder_expansion_ratio=(2, 2),
                 bottleneck_expansion_ratio=2)  # fmt: skip
    yield _monai(
        "2D", "DiffusionModelUNet",
        lambda: {"x": torch.randn(BATCH, 1, 16, 16), "timesteps": torch.tensor([3] * BATCH)},
        **flat, num_res_blocks=1, channels=(8, 16), attention_levels=(False, True),
        num_head_channels=8, norm_num_groups=4,
    )  # fmt: skip
    yield _monai("3D", "AutoEncoder", volumes(16), **solid, channels=(4, 8), strides=(2, 2),
                 num_res_units=2)  # fmt: skip
    yield _monai("2D", "VQVAE", images(16, 1), **flat, channels=(8, 8), num_res_channels=(8, 8),
                 downsample_parameters=((2, 4, 1, 1),) * 2, num_res_layers=1, num_embeddings=8,
                 upsample_parameters=((2, 4, 1, 1, 0),) * 2, embedding_dim=4)  # fmt: skip
    yield _monai("2D", "restormer.Restormer", images(32, 1), **flat, dim=8, num_blocks=(1, 1, 1),
                 heads=(1, 1, 1), num_refinement_blocks=1)  # fmt: skip
    pair = named(moving=(1, 32, 32, 32), fixed=(1, 32, 32, 32))
    yield _monai("3D", "VoxelMorph", pair, integration_steps=2)


# --- vit-pytorch


def _vit_pytorch(
    path: str, example: Callable[[], Any], group: str = "vision", **options: Any
) -> Network:
    module, _, name = path.rpartition(".")

    def build() -> nn.Module:
        return getattr(importlib.import_module(f"vit_pytorch.{module}"), name)(**options)

    return Network("vit_pytorch", group, path, build, example)


def _vit_pytorch_networks() -> Iterator[Network]:
    small = {
        "image_size": 32, "patch_size": 8, "num_classes": 5, "dim": 32, "depth": 2, "heads": 4,
        "mlp_dim": 48,
    }  # fmt: skip
    for path in (
        "vit.ViT",
        "simple_vit.SimpleViT",
        "deepvit.DeepViT",
        "parallel_vit.ViT",
        "vit_for_small_dataset.ViT",
        "rvt.RvT",
        "simple_vit_with_register_tokens.SimpleViT",
        "simple_vit_with_value_residual.SimpleViT",
        "vit_with_patch_merger.ViT",
    ):
        yield _vit_pytorch(path, images(32), **small)
    yield _vit_pytorch("cait.CaiT", images(32), **small, cls_depth=2)
    yield _vit_pytorch("pit.PiT", images(32), image_size=32, patch_size=8, num_classes=5, dim=32,
                       depth=(1, 2), heads=4, mlp_dim=48)  # fmt: skip
    yield _vit_pytorch("levit.LeViT", images(64), image_size=64, num_classes=5, stages=2,
                       dim=(32, 48), depth=2, heads=(2, 4), mlp_mult=2, dim_key=8)  # fmt: skip
    yield _vit_pytorch("cvt.CvT", images(64), num_classes=5, s1_emb_dim=8, s2_emb_dim=16,
                       s3_emb_dim=32, s1_heads=1, s2_heads=2, s3_heads=2, s3_depth=2)  # fmt: skip
    yield _vit_pytorch("twins_svt.TwinsSVT", images(128), num_classes=5, s1_emb_dim=8,
                       s2_emb_dim=16, s3_emb_dim=16, s4_emb_dim=32, s1_patch_size=2,
                       s2_local_patch_size=4, s3_local_patch_size=2, s4_local_patch_size=2,
                       s1_local_patch_size=4, s2_patch_size=2, s3_patch_size=2, s4_patch_size=2,
                       s1_global_k=4, s2_global_k=4, s3_global_k=2, s3_depth=1)  # fmt: skip
    yield _vit_pytorch("crossformer.CrossFormer", images(64), num_classes=5,
                       dim=(32, 32, 64, 64), depth=(1, 1, 1, 1), local_window_size=2,
                       global_window_size=(4, 2, 2, 1))  # fmt: skip
    yield _vit_pytorch("scalable_vit.ScalableViT", images(64), num_classes=5, dim=16,
                       heads=(2, 2, 4, 4), depth=(1, 1, 1, 1), ssa_dim_key=(8,) * 4,
                       reduction_factor=(4, 2, 1, 1), window_size=(8, 4, None, None))  # fmt: skip
    yield _vit_pytorch("sep_vit.SepViT", images(224), num_classes=5, dim=16, dim_head=8,
                       heads=(1, 2, 4, 4), depth=(1, 1, 1, 1), window_size=7)  # fmt: skip
    yield _vit_pytorch("max_vit.MaxViT", images(64), num_classes=5, dim=16, depth=(1, 1),
                       dim_head=8, dim_conv_stem=16, window_size=4)  # fmt: skip
    yield _vit_pytorch("nest.NesT", images(64), image_size=64, patch_size=8, dim=16, heads=2,
                       num_hierarchies=2, block_repeats=(1, 2), num_classes=5)  # fmt: skip
    yield _vit_pytorch("mobile_vit.MobileViT", images(64), image_size=(64, 64), dims=[16, 24, 32],
                       channels=[8, 8, 12, 12, 16, 16, 24, 24, 32, 32, 64],
                       num_classes=5)  # fmt: skip
    yield _vit_pytorch("xcit.XCiT", images(32), **small, cls_depth=1)
    yield _vit_pytorch("regionvit.RegionViT", images(64), dim=(8, 16, 16, 32), depth=(1, 1, 1, 1),
                       window_size=2, num_classes=5, tokenize_local_3_conv=False,
                       use_peg=True)  # fmt: skip
    yield _vit_pytorch("cross_vit.CrossViT", images(32), image_size=32, num_classes=5, sm_dim=16,
                       lg_dim=24, depth=2, sm_patch_size=4, lg_patch_size=8, sm_enc_depth=1,
                       lg_enc_depth=2, cross_attn_depth=1, sm_enc_mlp_dim=32, lg_enc_mlp_dim=32,
                       sm_enc_dim_head=8, lg_enc_dim_head=8, cross_attn_dim_head=8, sm_enc_heads=2,
                       lg_enc_heads=2, cross_attn_heads=2)  # fmt: skip
    yield _vit_pytorch("cct.CCT", images(32), img_size=32, embedding_dim=32, n_conv_layers=1,
                       num_layers=2, num_heads=4, mlp_ratio=2, num_classes=5)  # fmt: skip
    yield _vit_pytorch("t2t.T2TViT", images(32), dim=32, image_size=32, depth=2, heads=4,
                       mlp_dim=48, num_classes=5,
                       t2t_layers=((7, 4), (3, 2)))  # fmt: skip
    yield _vit_pytorch("simple_vit_1d.SimpleViT", signals(32, 3), "1D", seq_len=32, patch_size=8,
                       num_classes=5, dim=32, depth=2, heads=4, mlp_dim=48)  # fmt: skip
    yield _vit_pytorch("vit_3d.ViT", clips(4, 32), "video", image_size=32, image_patch_size=8,
                       frames=4, frame_patch_size=2, num_classes=5, dim=32, depth=2, heads=4,
                       mlp_dim=48)  # fmt: skip
    yield _vit_pytorch("vivit.ViViT", clips(4, 32), "video", image_size=32, image_patch_size=8,
                       frames=4, frame_patch_size=2, num_classes=5, dim=32, spatial_depth=2,
                       temporal_depth=2, heads=4, mlp_dim=48,
                       variant="factorized_encoder")  # fmt: skip
    yield _vit_pytorch("efficient.ViT", images(32), image_size=32, patch_size=8, num_classes=5,
                       dim=32, transformer=nn.TransformerEncoder(
                           nn.TransformerEncoderLayer(32, 4, 48, batch_first=True), 2,
                           enable_nested_tensor=False))  # fmt: skip


# --- open_clip


def _open_clip(name: str, **parts: Any) -> Network:
    text = {"context_length": 12, "vocab_size": 99, "width": 32, "heads": 4, "layers": 2}

    def build() -> nn.Module:
        open_clip = importlib.import_module("open_clip")
        cls = getattr(open_clip, parts.get("model", "CLIP"))
        return cls(embed_dim=32, text_cfg={**text, **parts.get("text", {})},
                   vision_cfg=parts["vision"], **parts.get("more", {}))  # fmt: skip

    def example() -> dict[str, Tensor]:
        return {
            "image": torch.randn(BATCH, 3, 32, 32),
            "text": torch.randint(1, 90, (BATCH, parts.get("length", 12))),
        }

    return Network("open_clip", "image and text", name, build, example)


def _open_clip_networks() -> Iterator[Network]:
    vit = {"image_size": 32, "patch_size": 8, "width": 32, "layers": 2, "head_width": 8}
    yield _open_clip("CLIP (ViT)", vision=vit)
    yield _open_clip(
        "CLIP (ResNet)",
        vision={"image_size": 32, "layers": (1, 1, 1, 1), "width": 8, "head_width": 8},
    )
    yield _open_clip(
        "CoCa",
        model="CoCa",
        vision={**vit, "attentional_pool": True, "attn_pooler_heads": 4, "output_tokens": True},
        text={"embed_cls": True, "output_tokens": True, "context_length": 12},
        more={"multimodal_cfg": {"context_length": 12, "vocab_size": 99, "width": 32, "heads": 4,
                                 "layers": 2, "attn_pooler_heads": 4}},
    )  # fmt: skip


def built(network: Network) -> nn.Module:
    """The network with random weights, none of them zero and the layers' not small: behind a norm
    that starts at zero nothing depends on the input, behind many small layers nothing notably, and
    a branch that ends in one hands its gate no gradient."""
    torch.manual_seed(0)
    model = network.build()
    with torch.no_grad():
        for parameter in model.parameters():
            inputs = parameter[0].numel() if parameter.dim() > 1 else 4
            parameter.add_(torch.randn_like(parameter), alpha=max(inputs, 1) ** -0.5)
    return model.eval()


def networks() -> list[Network]:
    """All of them, by package."""
    return [
        *_torchvision_networks(),
        *_hf_vision(),
        *_hf_dense(),
        *_hf_text(),
        *_smp_networks(),
        *_ultralytics_networks(),
        *_diffusers_networks(),
        *_monai_networks(),
        *_vit_pytorch_networks(),
        *_open_clip_networks(),
    ]
