"""Every addition of two equal-shaped tensors in the networks beyond timm, classified by hand.

What counts, and how the tables are read, is said in `coverage_adds.py`. What these packages add to
it:

constants
    A sum that does not depend on the network's input is no step: it is a constant. (The first
    self-attention of DETR's decoder adds to zeros what it makes of learned queries.) The program
    that runs the networks sees this from two runs on different inputs.
refinement
    A state that is updated by a learned function of itself counts as a step, also where it is a
    flow or the logits of a distribution. Boxes refined as `f(x) + logit(box)` do not: what is added
    to is no state of the network but the inverse of the sigmoid that made the box.
resolutions
    Sums of resolutions are fusions, no steps, whoever makes them: the pyramids of detectors, the
    skip connections of a U-Net that adds where others concatenate.
reassembled and linear updates
    A shortcut without parameters beside a learned branch (DC-AE, V-Net's input) counts as a
    projection also where the branch is linear. One layer beside several (CSP layers that add) is a
    projection, as in DPN.

A place is the Python name of the class (`torchvision.models.resnet.BasicBlock`) for its `forward`,
or of the method. `transformers.models.detr.modeling_detr` is written `transformers.detr`.
"""

from __future__ import annotations

import coverage_adds

IDENTITY = "True"
DOWNSAMPLE = "self.downsample is None"
SHORTCUT = "passes(self.shortcut)"
RESAMPLED = "self.upsample is None and self.downsample is None"


def _under(package: str, text: str) -> list[str]:
    return [f"{package}.{name}" for name in text.split()]


# Classes in whose forward every addition is a step with an identity shortcut.
ALWAYS_IDENTITY = [
    *_under(
        "torch.nn.modules",
        "transformer.TransformerEncoderLayer",
    ),
    *_under(
        "torchvision.models",
        """convnext.CNBlock efficientnet.MBConv efficientnet.FusedMBConv
        maxvit.PartitionAttentionLayer mnasnet._InvertedResidual mobilenetv2.InvertedResidual
        mobilenetv3.InvertedResidual swin_transformer.SwinTransformerBlock
        swin_transformer.SwinTransformerBlockV2 vision_transformer.EncoderBlock""",
    ),
    *_under(
        "transformers",
        """aimv2.Aimv2EncoderLayer albert.AlbertAttention albert.AlbertLayer bart.BartEncoderLayer
        bart.BartDecoderLayer beit.BeitLayer bert.BertSelfOutput bert.BertOutput
        clip.CLIPEncoderLayer conditional_detr.ConditionalDetrEncoderLayer
        conditional_detr.ConditionalDetrDecoderLayer convbert.ConvBertSelfOutput
        convbert.ConvBertOutput convnext.ConvNextLayer convnextv2.ConvNextV2Layer cvt.CvtOutput
        cvt.CvtLayer d_fine.DFineEncoderLayer dab_detr.DabDetrDecoderLayerFFN
        dab_detr.DabDetrEncoderLayer deberta_v2.DebertaV2Output deberta_v2.DebertaV2SelfOutput
        deformable_detr.DeformableDetrEncoderLayer deformable_detr.DeformableDetrDecoderLayer
        deit.DeiTLayer depth_anything.DepthAnythingPreActResidualLayer detr.DetrEncoderLayer
        detr.DetrDecoderLayer dinov2.Dinov2Layer
        dinov2_with_registers.Dinov2WithRegistersLayer dinov3_convnext.DINOv3ConvNextLayer
        dinov3_vit.DINOv3ViTLayer distilbert.TransformerBlock dpt.DPTViTOutput dpt.DPTViTLayer
        dpt.DPTPreActResidualLayer efficientnet.EfficientNetFinalBlockLayer
        electra.ElectraSelfOutput electra.ElectraOutput encodec.EncodecLSTM eomt.EomtLayer
        fnet.FNetBasicOutput fnet.FNetOutput focalnet.FocalNetLayer glpn.GLPNLayer gpt2.GPT2Block
        grounding_dino.GroundingDinoDeformableLayer grounding_dino.GroundingDinoDecoderLayer
        grounding_dino.GroundingDinoTextEnhancerLayer grounding_dino.GroundingDinoFusionLayer
        hgnet_v2.HGNetV2BasicLayer ijepa.IJepaLayer levit.LevitResidualLayer
        llama.LlamaDecoderLayer mamba.MambaBlock mask2former.Mask2FormerPixelDecoderEncoderLayer
        mask2former.Mask2FormerMaskedAttentionDecoderLayer.forward_post
        maskformer.MaskFormerDetrDecoderLayer maskformer_swin.MaskFormerSwinLayer
        mobilenet_v2.MobileNetV2InvertedResidual mobilevit.MobileViTInvertedResidual
        mobilevit.MobileViTOutput mobilevit.MobileViTTransformerLayer
        mobilevitv2.MobileViTV2InvertedResidual mobilevitv2.MobileViTV2TransformerLayer
        modernbert.ModernBertEncoderLayer mpnet.MPNetAttention mpnet.MPNetOutput
        opt.OPTDecoderLayer owlvit.OwlViTEncoderLayer poolformer.PoolFormerLayer pvt.PvtLayer
        pvt_v2.PvtV2BlockLayer qwen3_moe.Qwen3MoeDecoderLayer roberta.RobertaSelfOutput
        roberta.RobertaOutput roformer.RoFormerSelfOutput roformer.RoFormerOutput
        rt_detr.RTDetrEncoderLayer rt_detr.RTDetrDecoderLayer rt_detr_v2.RTDetrV2EncoderLayer
        rt_detr_v2.RTDetrV2DecoderLayer sam.SamVisionLayer segformer.SegformerLayer
        siglip.SiglipEncoderLayer siglip.SiglipMultiheadAttentionPoolingHead
        swiftformer.SwiftFormerConvEncoder swiftformer.SwiftFormerLocalRepresentation
        swiftformer.SwiftFormerEncoderBlock swin.SwinLayer swin2sr.Swin2SRLayer
        swin2sr.Swin2SRStage swin2sr.Swin2SRModel swinv2.Swinv2Layer t5.T5LayerFF
        t5.T5LayerSelfAttention t5.T5LayerCrossAttention
        table_transformer.TableTransformerEncoderLayer
        table_transformer.TableTransformerDecoderLayer timesformer.TimesformerLayer
        videomae.VideoMAEOutput videomae.VideoMAELayer vit.ViTLayer vit_msn.ViTMSNLayer
        vivit.VivitLayer wav2vec2.Wav2Vec2EncoderLayer wav2vec2.Wav2Vec2Encoder
        wav2vec2_conformer.Wav2Vec2ConformerEncoderLayer whisper.WhisperEncoderLayer
        whisper.WhisperDecoderLayer xlnet.XLNetRelativeAttention.post_attention
        xlnet.XLNetFeedForward yolos.YolosOutput yolos.YolosLayer""",
    ),
    *_under(
        "segmentation_models_pytorch",
        """decoders.dpt.decoder.ResidualConvBlock decoders.manet.decoder.PABBlock
        encoders.mix_transformer.Block""",
    ),
    *_under(
        "ultralytics.nn.modules",
        """block.ABlock block.Bottleneck block.CIB block.HGBlock block.PSA block.PSABlock block.SPPF
        transformer.TransformerEncoderLayer.forward_post
        transformer.DeformableTransformerDecoderLayer
        transformer.DeformableTransformerDecoderLayer.forward_ffn""",
    ),
    *_under(
        "diffusers.models",
        """attention.BasicTransformerBlock attention.JointTransformerBlock
        attention_processor.AttnProcessor2_0.__call__
        attention_processor.SanaMultiscaleAttnProcessor2_0.__call__
        autoencoders.autoencoder_dc.ResBlock resnet.TemporalConvLayer
        transformers.sana_transformer.GLUMBConv
        transformers.transformer_2d.Transformer2DModel._get_output_for_continuous_inputs
        transformers.transformer_flux.FluxSingleTransformerBlock
        transformers.transformer_flux.FluxTransformerBlock
        transformers.transformer_temporal.TransformerTemporalModel""",
    ),
    *_under(
        "monai.networks",
        """blocks.segresnet_block.ResBlock blocks.spatialattention.SpatialAttentionBlock
        blocks.transformerblock.TransformerBlock blocks.mednext_block.MedNeXtBlock
        nets.efficientnet.MBConvBlock nets.restormer.MDTATransformerBlock
        nets.segresnet_ds.SegResBlock nets.swin_unetr.SwinTransformerBlock
        nets.vnet.DownTransition nets.vnet.UpTransition nets.vqvae.VQVAEResidualUnit""",
    ),
    *_under(
        "vit_pytorch",
        """cait.Transformer cct.TransformerEncoderLayer cross_vit.CrossTransformer
        cross_vit.Transformer crossformer.Transformer cvt.Transformer deepvit.Transformer
        levit.Transformer max_vit.Residual mobile_vit.MV2Block mobile_vit.Transformer
        nest.Transformer parallel_vit.Transformer pit.Transformer regionvit.R2LTransformer
        regionvit.PEG rvt.Transformer scalable_vit.Transformer scalable_vit.PEG
        sep_vit.Transformer sep_vit.PEG simple_vit.Transformer simple_vit_1d.Transformer
        simple_vit_with_register_tokens.Transformer simple_vit_with_value_residual.Transformer
        twins_svt.Residual vit.Transformer vit_3d.Transformer vit_for_small_dataset.Transformer
        vit_with_patch_merger.Transformer vivit.Transformer xcit.Transformer
        xcit.XCATransformer""",
    ),
    *_under("open_clip", "transformer.ResidualAttentionBlock"),
]

# Classes where the shortcut, or whether an addition is a step at all, has to be looked at.
STEPS: dict[str, list[tuple[str, str]]] = {
    "torchvision.models.maxvit.MBConv": [("res + x", "passes(self.proj)")],
    "torchvision.models.optical_flow.raft.BottleneckBlock": [("x + y", "passes(self.downsample)")],
    "torchvision.models.optical_flow.raft.ResidualBlock": [("x + y", "passes(self.downsample)")],
    "torchvision.models.optical_flow.raft.RAFT": [("coords1 + delta_flow", IDENTITY)],
    "torchvision.models.quantization.resnet.QuantizableBasicBlock": [("", DOWNSAMPLE)],
    "torchvision.models.regnet.ResBottleneckBlock": [
        ("self.proj(x) + self.f(x)", "False"),
        ("x + self.f(x)", IDENTITY),
    ],
    "torchvision.models.resnet.BasicBlock": [("out += identity", DOWNSAMPLE)],
    "torchvision.models.resnet.Bottleneck": [("out += identity", DOWNSAMPLE)],
    "torchvision.models.video.resnet.BasicBlock": [("out += residual", DOWNSAMPLE)],
    "torchvision.models.video.mvit.MultiscaleBlock": [
        (
            "x_skip + self.stochastic_depth(x_attn)",
            "self.pool_skip is None and (self.project is None or not self.proj_after_attn)",
        ),
        (
            "x_proj + self.stochastic_depth(self.mlp(x_norm2))",
            "self.project is None or self.proj_after_attn",
        ),
    ],
    "transformers.bit.BitPreActivationBottleneckLayer": [("", DOWNSAMPLE)],
    "transformers.d_fine.DFineCSPRepLayer": [("", "False")],
    "transformers.d_fine.DFineDecoder": [("self.bbox_embed[i](hidden_states + ", IDENTITY)],
    "transformers.d_fine.DFineDecoderLayer": [("residual + hidden_states", IDENTITY)],
    "transformers.dab_detr.DabDetrDecoderLayerCrossAttention": [("residual + ", IDENTITY)],
    "transformers.dab_detr.DabDetrDecoderLayerSelfAttention": [("residual + ", IDENTITY)],
    "transformers.encodec.EncodecResnetBlock": [("", SHORTCUT)],
    "transformers.gpt_neox.GPTNeoXLayer": [
        ("mlp_output + attn_output + hidden_states", IDENTITY),
    ],
    "transformers.hiera.HieraLayer": [
        ("hidden_states + ", "self.hidden_size == self.hidden_size_output"),
        ("residual + ", IDENTITY),
    ],
    "transformers.regnet.RegNetYLayer": [("", SHORTCUT)],
    "transformers.resnet.ResNetBasicLayer": [("", SHORTCUT)],
    "transformers.resnet.ResNetBottleNeckLayer": [("", SHORTCUT)],
    "transformers.rt_detr.RTDetrCSPRepLayer": [("", "False")],
    "transformers.rt_detr_resnet.RTDetrResNetBasicLayer": [("", SHORTCUT)],
    "transformers.rt_detr_v2.RTDetrV2CSPRepLayer": [("", "False")],
    "transformers.sam.SamTwoWayAttentionBlock": [
        ("queries + attn_out", IDENTITY),
        ("queries + mlp_out", IDENTITY),
        ("keys + attn_out", IDENTITY),
    ],
    "transformers.sam.SamTwoWayTransformer": [("queries + attn_out", IDENTITY)],
    "segmentation_models_pytorch.encoders._xception.Block": [("x += skip", "self.skip is None")],
    "ultralytics.nn.modules.block.RepC3": [("self.m(self.cv1(x)) + self.cv2(x)", "False")],
    "ultralytics.nn.modules.block.ResNetBlock": [("", SHORTCUT)],
    "diffusers.models.autoencoders.autoencoder_dc.DCDownBlock2d": [("x + y", "False")],
    "diffusers.models.autoencoders.autoencoder_dc.DCUpBlock2d": [("x + y", "False")],
    "diffusers.models.autoencoders.autoencoder_dc.Encoder": [("self.conv_out(", "False")],
    "diffusers.models.autoencoders.autoencoder_dc.Decoder": [("self.conv_in(", "False")],
    "diffusers.models.resnet.ResnetBlock2D": [
        ("input_tensor + hidden_states", f"self.conv_shortcut is None and {RESAMPLED}"),
    ],
    "diffusers.models.resnet.ResidualTemporalBlock1D": [("", "passes(self.residual_conv)")],
    "diffusers.models.unets.unet_2d_blocks.AutoencoderTinyBlock": [("", "passes(self.skip)")],
    "monai.networks.blocks.convolutions.ResidualUnit": [("cx + res", "passes(self.residual)")],
    "monai.networks.blocks.dynunet_block.UnetResBlock": [("", "not hasattr(self, 'conv3')")],
    "monai.networks.blocks.squeeze_and_excitation.SEBlock": [("", "passes(self.project)")],
    "monai.networks.nets.diffusion_model_unet.DiffusionUNetResnetBlock": [
        ("self.skip_connection(x) + h", f"passes(self.skip_connection) and {RESAMPLED}"),
    ],
    "monai.networks.nets.highresnet.HighResBlock": [
        ("", "self.chn_pad.pad is None and self.chn_pad.project is None"),
    ],
    "monai.networks.nets.resnet.ResNetBlock": [("", DOWNSAMPLE)],
    "monai.networks.nets.vnet.InputTransition": [("torch.add(out, x16)", "False")],
    "open_clip.modified_resnet.Bottleneck": [("out += identity", DOWNSAMPLE)],
}
STEPS |= {name: [("", IDENTITY)] for name in ALWAYS_IDENTITY}
for _name, _rules in coverage_adds.STEPS.items():
    STEPS[f"timm.models.{_name}"] = STEPS[f"timm.layers.{_name}"] = _rules

# Equal-shaped additions that are not steps, by reason: places, or place and start of expression.
_NOT_STEPS: dict[str, list[str]] = {
    "embedding of positions, queries, token types, times or prompts": [
        "torchvision.models.video.mvit.PositionalEncoding",
        "transformers.albert.AlbertEmbeddings",
        "transformers.bart.BartEncoder",
        "transformers.bert.BertEmbeddings",
        "transformers.conditional_detr.ConditionalDetrDecoderCrossAttention",
        "transformers.conditional_detr.ConditionalDetrDecoderSelfAttention",
        "transformers.conditional_detr.ConditionalDetrSelfAttention",
        "transformers.convbert.ConvBertEmbeddings",
        "transformers.d_fine.DFineDecoderLayer: hidden_states + position_embeddings",
        "transformers.d_fine.DFineSelfAttention",
        "transformers.dab_detr.DabDetrDecoderLayerCrossAttention: query_content",
        "transformers.dab_detr.DabDetrDecoderLayerCrossAttention: key_content",
        "transformers.dab_detr.DabDetrDecoderLayerSelfAttention: query_content",
        "transformers.dab_detr.DabDetrDecoderLayerSelfAttention: key_content",
        "transformers.dab_detr.DetrAttention",
        "transformers.deformable_detr.DeformableDetrMultiscaleDeformableAttention",
        "transformers.deformable_detr.DeformableDetrSelfAttention",
        "transformers.detr.DetrCrossAttention",
        "transformers.detr.DetrSelfAttention",
        "transformers.dinov3_vit.apply_rotary_pos_emb",
        "transformers.electra.ElectraEmbeddings",
        "transformers.fnet.FNetEmbeddings",
        "transformers.gpt_neox.apply_rotary_pos_emb",
        "transformers.grounding_dino.GroundingDinoDecoderLayer.with_pos_embed",
        "transformers.grounding_dino.GroundingDinoMultiscaleDeformableAttention",
        "transformers.grounding_dino.GroundingDinoTextEnhancerLayer.with_pos_embed",
        "transformers.llama.apply_rotary_pos_emb",
        "transformers.mask2former.Mask2FormerAttention.with_pos_embed",
        "transformers.mask2former.Mask2FormerMaskedAttentionDecoderLayer.with_pos_embed",
        "transformers.mask2former.Mask2FormerPixelDecoderEncoderMultiscaleDeformableAttention"
        ".with_pos_embed",
        "transformers.maskformer.MaskFormerDetrCrossAttention",
        "transformers.maskformer.MaskFormerDetrSelfAttention",
        "transformers.modernbert.apply_rotary_pos_emb",
        "transformers.mpnet.MPNetEmbeddings",
        "transformers.opt.OPTDecoder",
        "transformers.owlvit.OwlViTVisionEmbeddings",
        "transformers.qwen3_moe.apply_rotary_pos_emb",
        "transformers.roberta.RobertaEmbeddings",
        "transformers.roformer.RoFormerEmbeddings",
        "transformers.roformer.RoFormerSelfAttention.apply_rotary_position_embeddings",
        "transformers.rt_detr.RTDetrMultiscaleDeformableAttention",
        "transformers.rt_detr.RTDetrSelfAttention",
        "transformers.rt_detr_v2.RTDetrV2MultiscaleDeformableAttention",
        "transformers.rt_detr_v2.RTDetrV2SelfAttention",
        "transformers.sam.SamMaskDecoder",
        "transformers.sam.SamTwoWayAttentionBlock: queries + query_point_embedding",
        "transformers.sam.SamTwoWayAttentionBlock: keys + key_point_embedding",
        "transformers.sam.SamTwoWayTransformer: queries + point_embeddings",
        "transformers.sam.SamTwoWayTransformer: keys + image_positional_embeddings",
        "transformers.table_transformer.TableTransformerAttention.with_pos_embed",
        "transformers.whisper.WhisperDecoder",
        "ultralytics.nn.modules.transformer.DeformableTransformerDecoderLayer.with_pos_embed",
        "diffusers.models.embeddings.CombinedTimestepLabelEmbeddings",
        "diffusers.models.embeddings.CombinedTimestepTextProjEmbeddings",
        "diffusers.models.embeddings.apply_rotary_emb",
        "vit_pytorch.rvt.Attention.forward.<locals>.<lambda>",
    ],
    "attention logits plus a positional term or a mask": [
        "torchvision.models.video.mvit._add_rel_pos",
        "transformers.grounding_dino.GroundingDinoMultiheadAttention",
        "transformers.mpnet.MPNetSelfAttention",
        "transformers.xlnet.XLNetRelativeAttention.rel_attn_core",
    ],
    "sum of two paths of one operator": [
        "torchvision.models.optical_flow.raft.ConvGRU",
        "torchvision.models.video.mvit._add_shortcut",
        "transformers.d_fine.DFineGate",
        "transformers.focalnet.FocalNetModulation",
        "transformers.gpt_neox.GPTNeoXLayer: mlp_output + attn_output",
        "transformers.mamba.mamba_selective_scan",
        "transformers.swiftformer.SwiftFormerEfficientAdditiveAttention",
        "ultralytics.nn.modules.block.AAttn",
        "ultralytics.nn.modules.block.Attention",
        "vit_pytorch.parallel_vit.Parallel",
        "vit_pytorch.scalable_vit.InteractiveWindowedSelfAttention",
        "vit_pytorch.simple_vit_with_value_residual.Attention",
    ],
    "parallel branches of one re-parameterisable layer": [
        "transformers.d_fine.DFineRepVggBlock",
        "transformers.rt_detr.RTDetrRepVggBlock",
        "transformers.rt_detr_v2.RTDetrV2RepVggBlock",
        "ultralytics.nn.modules.block.RepVGGDW",
        "ultralytics.nn.modules.conv.RepConv",
    ],
    "fusion of resolutions or streams": [
        "torchvision.ops.feature_pyramid_network.FeaturePyramidNetwork",
        "transformers.depth_anything.DepthAnythingFeatureFusionLayer",
        "transformers.detr.DetrFPNFusionStage",
        "transformers.dpt.DPTFeatureFusionLayer",
        "transformers.glpn.GLPNSelectiveFeatureFusion",
        "transformers.mask2former.Mask2FormerPixelDecoder",
        "transformers.maskformer.MaskFormerFPNLayer",
        "transformers.upernet.UperNetHead",
        "segmentation_models_pytorch.decoders.dpt.decoder.FusionBlock",
        "segmentation_models_pytorch.decoders.fpn.decoder.FPNBlock",
        "segmentation_models_pytorch.decoders.linknet.decoder.DecoderBlock",
        "segmentation_models_pytorch.decoders.pan.decoder.FPABlock",
        "segmentation_models_pytorch.decoders.pan.decoder.GAUBlock",
        "segmentation_models_pytorch.decoders.upernet.decoder.FPNLateralBlock",
        "diffusers.models.controlnets.controlnet.ControlNetModel",
        "diffusers.models.unets.unet_2d.UNet2DModel",
        "diffusers.models.unets.unet_2d_blocks.SkipDownBlock2D",
        "monai.networks.nets.mednext.MedNeXt",
        "monai.networks.nets.segresnet.SegResNet.decode",
        "monai.networks.nets.segresnet_ds.SegResNetDS._forward",
    ],
    "sum of predictions, of logits or of attention maps": [
        "torchvision.models.segmentation.lraspp.LRASPPHead",
        "transformers.d_fine.DFineDecoder: hidden_states + output_detach",
        "segmentation_models_pytorch.decoders.manet.decoder.MFABBlock",
        "monai.networks.nets.attentionunet.AttentionBlock",
        "vit_pytorch.cross_vit.CrossViT",
    ],
    "boxes, points and coordinates": [
        "torchvision.models.detection._utils.BoxCoder.decode_single",
        "torchvision.models.detection._utils.BoxLinearCoder.decode",
        "torchvision.models.detection.anchor_utils.DefaultBoxGenerator",
        "torchvision.models.detection.roi_heads.expand_boxes",
        "torchvision.ops.boxes._batched_nms_coordinate_trick",
        "transformers.image_transforms._corners_to_center_format_torch",
        "transformers.conditional_detr.ConditionalDetrForObjectDetection",
        "transformers.d_fine.DFineDecoder: self.pre_bbox_head(",
        "transformers.d_fine.distance2bbox",
        "transformers.dab_detr.DabDetrDecoder",
        "transformers.dab_detr.DabDetrForObjectDetection",
        "transformers.deformable_detr.DeformableDetrDecoder",
        "transformers.deformable_detr.DeformableDetrForObjectDetection",
        "transformers.deformable_detr.DeformableDetrModel",
        "transformers.grounding_dino.GroundingDinoDecoder",
        "transformers.grounding_dino.GroundingDinoForObjectDetection",
        "transformers.grounding_dino.GroundingDinoModel",
        "transformers.rt_detr.RTDetrDecoder",
        "transformers.rt_detr_v2.RTDetrV2Decoder",
        "ultralytics.nn.modules.head.RTDETRDecoder._get_decoder_input",
        "ultralytics.nn.modules.transformer.DeformableTransformerDecoder",
        "ultralytics.utils.tal.dist2bbox",
        "ultralytics.utils.tal.dist2rbox",
        "monai.networks.blocks.warp.Warp",
        "monai.networks.blocks.warp.DVF2DDF",
    ],
    "an activation, norm, loss or straight-through estimator written as a sum": [
        "transformers.activations.NewGELUActivation",
        "transformers.convnextv2.ConvNextV2GRN",
        "diffusers.models.autoencoders.vae.VectorQuantizer",
        "monai.networks.layers.vector_quantizer.EMAQuantizer",
    ],
}
NOT_STEPS: dict[str, list[tuple[str, str]]] = {}
for _reason, _places in _NOT_STEPS.items():
    for _place in _places:
        _name, _, _start = _place.partition(": ")
        NOT_STEPS.setdefault(_name, []).append((_start, _reason))

_REFINED = "the box is refined: logit(box) + f(box)"
_LINEAR = "both sides are linear in the state: one re-parameterisable layer"
_SLICED = "the shortcut is a slice of what the branch reads, or is put together from slices"
_CSP = "the sum of the two paths of a CSP layer, of which one has a single layer"

# Additions on which a careful reader can differ; see `coverage_adds.OTHER_READINGS`.
OTHER_READINGS: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {
    ("torchvision.models.optical_flow.raft.RAFT", "coords1 + "): (
        ("none",),
        "the state is a field of coordinates",
    ),
    ("torchvision.models.video.mvit._add_shortcut", ""): (
        ("identity", "projection"),
        "the pooled query is added to the attention's output (residual pooling connection)",
    ),
    ("transformers.convnextv2.ConvNextV2GRN", ""): (
        ("identity",),
        "global response normalisation is x * (1 + gate) + bias, written as x + f(x)",
    ),
    ("transformers.d_fine.DFineDecoder", "self.bbox_embed[i]("): (
        ("none",),
        "the state is the logits of the boxes' corners",
    ),
    ("transformers.fnet.FNetBasicOutput", ""): (
        ("none",),
        "a Fourier transform has nothing to learn",
    ),
    ("monai.networks.blocks.warp.DVF2DDF", ""): (
        ("identity",),
        "scaling and squaring is x + x(x), with nothing to learn",
    ),
    ("transformers.mamba.mamba_selective_scan", "scan_output + hidden_states * D"): (
        ("identity",),
        "the state space model's D term, known as its skip connection",
    ),
    ("transformers.swiftformer.SwiftFormerEfficientAdditiveAttention", ""): (
        ("identity", "projection"),
        "the query is added to the attention's output",
    ),
    ("transformers.timesformer.TimesformerLayer", "hidden_states[:, 1:, :] + "): (
        ("projection",),
        _SLICED,
    ),
    ("transformers.timesformer.TimesformerLayer", "torch.cat("): (("projection",), _SLICED),
    **{
        (place, ""): (("none",), _CSP)
        for place in (
            "transformers.d_fine.DFineCSPRepLayer",
            "transformers.rt_detr.RTDetrCSPRepLayer",
            "transformers.rt_detr_v2.RTDetrV2CSPRepLayer",
            "ultralytics.nn.modules.block.RepC3",
        )
    },
    **{
        (place, ""): (("none",), _LINEAR)
        for place in (
            "diffusers.models.autoencoders.autoencoder_dc.DCDownBlock2d",
            "diffusers.models.autoencoders.autoencoder_dc.DCUpBlock2d",
            "diffusers.models.autoencoders.autoencoder_dc.Decoder",
            "diffusers.models.autoencoders.autoencoder_dc.Encoder",
            "monai.networks.nets.vnet.InputTransition",
        )
    },
    **dict.fromkeys(
        (
            ("transformers.d_fine.DFineDecoder", "self.pre_bbox_head("),
            ("transformers.dab_detr.DabDetrDecoder", ""),
            ("transformers.deformable_detr.DeformableDetrDecoder", ""),
            ("transformers.grounding_dino.GroundingDinoDecoder", ""),
            ("transformers.rt_detr.RTDetrDecoder", ""),
            ("transformers.rt_detr_v2.RTDetrV2Decoder", ""),
            ("ultralytics.nn.modules.transformer.DeformableTransformerDecoder", ""),
        ),
        (("projection",), _REFINED),
    ),
    **{
        (f"{package}.{place}", start): reading
        for (place, start), reading in coverage_adds.OTHER_READINGS.items()
        for package in ("timm.models", "timm.layers")
    },
}
