"""Every addition of two equal-shaped tensors in timm's sources, read by hand and classified.

What counts as a residual step
    x_{t+1} = shortcut(x_t) + f(x_t): one addition of two tensors of the same shape, of which one
    is the state (or a projection of it) and the other a learned function of that state. The branch
    may be scaled, layer-scaled, dropped (drop path), permuted or windowed; the sum may be followed
    by an activation or a norm. One step per addition as written: `x + f + g` is two steps,
    `x + (f + g)` and `x + stack([f, g]).sum(0)` are one.
identity
    The shortcut is x_t itself, possibly in another layout or multiplied by a scale per channel.
projection
    Anything else on the shortcut: convolution, linear layer, pooling, padding.
A step nested in the branch of another one (a conditional position encoding `x + conv(x)`, the
    cross-covariance attention inside EdgeNeXt's block, a Res2Net's outer sum) counts like any
    other: it updates a state by a learned function of that state.

What does not count
    Stored or coordinate-only position embeddings; attention biases and masks; sums between sibling
    splits (Res2Net, cascaded groups); sums between projections of one tensor (query + value-like
    paths); fusions of resolutions or of streams; merges of NAS cells; the parallel branches of one
    re-parameterisable layer (RepVGG, MobileOne), also when one of them is an identity or a norm;
    an affine layer's bias; averages of pools or of two heads.

How to read the tables
    A key is `module.Class` for that class's `forward`, or `module.Class.method`. A rule is a pair
    (start of the expression as `ast.unparse` prints it, condition). The first pair that matches
    decides. The condition is a Python expression over the local variables of the running frame:
    true means identity, false means projection.
"""

from __future__ import annotations

IDENTITY = "True"
DOWNSAMPLE = "self.downsample is None"
SHORTCUT = "passes(self.shortcut)"

# Classes in whose forward every addition is a step with an identity shortcut.
ALWAYS_IDENTITY = """
_efficientnet_blocks.ConvBnAct _efficientnet_blocks.DepthwiseSeparableConv
_efficientnet_blocks.InvertedResidual _efficientnet_blocks.UniversalInvertedResidual
_efficientnet_blocks.MobileAttention _efficientnet_blocks.CondConvResidual
_efficientnet_blocks.EdgeResidual
attention_pool.AttentionPoolLatent beit.Block cait.LayerScaleBlock cait.LayerScaleBlockClassAttn
coat.ConvPosEnc coat.SerialBlock convit.Block convmixer.Residual
csatv2.Block csatv2.SpatialTransformerBlock csatv2.PosConv
cspnet.BottleneckBlock cspnet.DarkBlock cspnet.EdgeBlock
davit.ConvPosEnc davit.ChannelBlock davit.SpatialBlock deepseek_vit.DeepseekVitBlock
edgenext.ConvBlock efficientformer.MetaBlock1d efficientformer.MetaBlock2d
efficientformer_v2.EfficientFormerV2Block efficientvim.PatchMerging efficientvim.EfficientViMBlock
efficientvit_msra.ResidualDrop eva.EvaBlock eva.EvaBlockPostNorm fasternet.MLPBlock
fastvit.RepConditionalPosEnc fastvit.RepMixerBlock fastvit.AttentionBlock focalnet.FocalNetBlock
gcvit.MbConvBlock gcvit.GlobalContextVitBlock gemma4_vit.Gemma4Block hgnet.HighPerfGpuBlock
iformer.Residual inception_next.MetaNeXtBlock inception_resnet_v2.Block35
inception_resnet_v2.Block17 inception_resnet_v2.Block8 levit.LevitDownsample levit.LevitBlock
mambaout.GatedConvBlock maxxvit.PartitionAttentionCl maxxvit.ParallelPartitionAttention
maxxvit.PartitionAttention2d metaformer.MetaFormerBlock mlp_mixer.MixerBlock mlp_mixer.ResBlock
mlp_mixer.SpatialGatingBlock mobilevit.LinearTransformerBlock nest.TransformerLayer
nextvit.NextConvBlock nextvit.NextTransformerBlock pvt_v2.Block repvit.RepViTBlock
repvit.RepVitDownsample sequencer.Sequencer2dBlock shvit.Residual starnet.Block
swiftformer.ConvEncoder swiftformer.LocalRepresentation swiftformer.Block
swin_transformer.SwinTransformerBlock swin_transformer_v2.SwinTransformerV2Block
swin_transformer_v2_cr.SwinTransformerV2CrBlock tiny_vit.MBConv tiny_vit.TinyVitBlock
twins.Block twins.PosConv visformer.Block vision_transformer.Block vision_transformer.ResPostBlock
vision_transformer.DiffParallelScalingBlock vision_transformer.ParallelThingsBlock
vision_transformer_relpos.RelPosBlock vision_transformer_relpos.ResPostRelPosBlock
vision_transformer_sam.Block volo.Outlooker volo.Transformer vovnet.OsaBlock
xcit.ClassAttentionBlock xcit.XCABlock
""".split()  # noqa: SIM905

# Classes where the shortcut, or whether an addition is a step at all, has to be looked at.
STEPS: dict[str, list[tuple[str, str]]] = {
    "byobnet.BasicBlock": [("x + self.shortcut(shortcut)", SHORTCUT)],
    "byobnet.BottleneckBlock": [("x + self.shortcut(shortcut)", SHORTCUT)],
    "byobnet.DarkBlock": [("x + self.shortcut(shortcut)", SHORTCUT)],
    "byobnet.EdgeBlock": [("x + self.shortcut(shortcut)", SHORTCUT)],
    "byobnet.SelfAttnBlock": [("x + self.shortcut(shortcut)", SHORTCUT)],
    "coat.ParallelBlock": [
        ("x2 + self.drop_path(cur2)", IDENTITY),
        ("x3 + self.drop_path(cur3)", IDENTITY),
        ("x4 + self.drop_path(cur4)", IDENTITY),
    ],
    "convnext.ConvNeXtBlock": [("self.drop_path(x) + self.shortcut(shortcut)", SHORTCUT)],
    "cpubone.ResidualBlock": [("self.drop_path(self.main(x)) + self.shortcut(x)", SHORTCUT)],
    "crossvit.CrossAttentionBlock": [("x[:, 0:1, ...] + self.drop_path(", IDENTITY)],
    "csatv2.TransformerBlock": [
        ("shortcut + self.drop_path1(x_t)", "not self.downsample"),
        ("shortcut + self.drop_path2(x_t)", IDENTITY),
    ],
    # The tree hands a block its shortcut: pooled, projected, or the very tensor x.
    "dla.DlaBasic": [("out += shortcut", "shortcut is x")],
    "dla.DlaBottleneck": [("out += shortcut", "shortcut is x")],
    "dla.DlaBottle2neck": [("out += shortcut", "shortcut is x")],
    "dla.DlaRoot": [("x += x_children[0]", IDENTITY)],
    "dpn.DualPathBlock": [
        ("x_s1 + out1", "self.c1x1_w_s1 is None and self.c1x1_w_s2 is None"),
    ],
    "edgenext.SplitTransposeBlock": [
        ("x + self.drop_path(", IDENTITY),
        ("shortcut + self.drop_path(x)", IDENTITY),
    ],
    # The strided convolution is the shortcut of the strided attention.
    "efficientformer_v2.Downsample": [("self.attn(x) + out", "False")],
    "efficientvit_mit.ResidualBlock": [("res + self.shortcut(x)", SHORTCUT)],
    "fastvit.RepMixer": [("x + self.layer_scale(", IDENTITY)],
    "ghostnet.GhostBottleneck": [("x += self.shortcut(shortcut)", SHORTCUT)],
    "ghostnet.GhostBottleneckV3": [("x += self.shortcut(shortcut)", SHORTCUT)],
    "hiera.HieraBlock": [
        ("x + self.drop_path1(", "not self.do_expand"),
        ("x + self.drop_path2(", IDENTITY),
    ],
    "hieradet_sam2.MultiScaleBlock": [
        ("shortcut + self.drop_path1(", "self.dim == self.dim_out"),
        ("x + self.drop_path2(", IDENTITY),
    ],
    "lcnetv2.RepDepthwiseSeparable": [("x + shortcut", IDENTITY)],
    "lowformer.ResidualBlock": [("self.drop_path(self.main(x)) + self.shortcut(x)", SHORTCUT)],
    "maxxvit.TransformerBlock2d": [
        ("self.shortcut(x) + self.drop_path1(", SHORTCUT),
        ("x + self.drop_path2(", IDENTITY),
    ],
    "maxxvit.MbConvBlock": [("self.drop_path(x) + shortcut", SHORTCUT)],
    "maxxvit.ConvNeXtBlock": [("self.drop_path(x) + shortcut", SHORTCUT)],
    "mvitv2.MultiScaleBlock": [
        (
            "x_shortcut + self.drop_path1(x)",
            "self.shortcut_proj_attn is None and self.shortcut_pool_attn is None",
        ),
        ("x_shortcut + self.drop_path2(", "self.shortcut_proj_mlp is None"),
    ],
    "nfnet.NormFreeBlock": [("out * self.alpha + shortcut", DOWNSAMPLE)],
    "regnet.Bottleneck": [
        ("self.drop_path(x) + self.downsample(shortcut)", "passes(self.downsample)")
    ],
    "regnet.PreBottleneck": [
        ("self.drop_path(x) + self.downsample(shortcut)", "passes(self.downsample)")
    ],
    "repghost.RepGhostBottleneck": [("x += self.shortcut(shortcut)", SHORTCUT)],
    "res2net.Bottle2neck": [("out += shortcut", DOWNSAMPLE)],
    "resnest.ResNestBottleneck": [("out += shortcut", DOWNSAMPLE)],
    "resnet.BasicBlock": [("x += shortcut", DOWNSAMPLE)],
    "resnet.Bottleneck": [("x += shortcut", DOWNSAMPLE)],
    "resnetv2.PreActBasic": [("x + shortcut", DOWNSAMPLE)],
    "resnetv2.PreActBottleneck": [("x + shortcut", DOWNSAMPLE)],
    "resnetv2.Bottleneck": [("x + shortcut", DOWNSAMPLE)],
    # The branch is wider than the state: its first channels are added to all of x_t.
    "rexnet.LinearBottleneck": [("x[:, 0:self.in_channels] + shortcut", IDENTITY)],
    "senet.Bottleneck": [("self.se_module(out) + shortcut", DOWNSAMPLE)],
    "senet.SEResNetBlock": [("self.se_module(out) + shortcut", DOWNSAMPLE)],
    "senet.SEResNetBottleneck": [("self.se_module(out) + shortcut", DOWNSAMPLE)],
    "sknet.SelectiveKernelBasic": [("x += shortcut", DOWNSAMPLE)],
    "sknet.SelectiveKernelBottleneck": [("x += shortcut", DOWNSAMPLE)],
    "tnt.Block": [
        ("pixel_embed + self.drop_path(", IDENTITY),
        ("patch_embed + self.drop_path(", IDENTITY),
    ],
    "tresnet.BasicBlock": [("self.drop_path(out) + shortcut", DOWNSAMPLE)],
    "tresnet.Bottleneck": [("self.drop_path(out) + shortcut", DOWNSAMPLE)],
    "vision_transformer.ParallelScalingBlock": [("x + self.drop_path(self.ls(y))", IDENTITY)],
    "vitamin.MbConvLNBlock": [("self.drop_path(x) + shortcut", SHORTCUT)],
    "volo.ClassBlock": [("cls_embed + self.drop_path", IDENTITY)],
    "xception.Block": [("x += skip", "self.skip is None")],
    "xception_aligned.XceptionModule": [("x + skip", "self.shortcut is None")],
    "xception_aligned.PreXceptionModule": [("x + self.shortcut(skip)", SHORTCUT)],
}
STEPS |= {name: [("", IDENTITY)] for name in ALWAYS_IDENTITY}

# Equal-shaped additions that are not steps, by reason: places, or place and start of expression.
_NOT_STEPS: dict[str, list[str]] = {
    "position embedding, stored or made of coordinates": [
        "edgenext.SplitTransposeBlock: x + pos_encoding",
        "gemma4_vit.Gemma4PatchEmbed",
        "hieradet_sam2.HieraDet._pos_embed",
        "xcit.Xcit.forward_features",
        "qwen3_vit.Qwen3VitEncoder._pos_embed",
        "pos_embed_sincos.apply_rot_embed_cat",
        "gemma4_vit.apply_rotary_pos_emb",
        "convit.GPSA.get_rel_indices",
    ],
    "attention logits plus a positional or gated term": [
        "halo_attn.HaloAttn",
        "halo_attn.PosEmbedRel",
        "bottleneck_attn.BottleneckAttn",
        "bottleneck_attn.PosEmbedRel",
        "convit.GPSA.get_attention",
    ],
    "sum of two paths of one attention operator": [
        "lambda_layer.LambdaLayer",
        "coat.FactorAttnConvRelPosEnc",
        "efficientformer_v2.Attention2d",
        "efficientformer_v2.Attention2dDownsample",
        "efficientformer_v2.LocalGlobalQuery",
        "focalnet.FocalModulation",
        "mvitv2.MultiScaleAttention",
        "swiftformer.EfficientAdditiveAttention",
        "vision_transformer.ParallelScalingBlock: self.attn_out_proj(x_attn) +",
    ],
    "parallel branches of one re-parameterisable layer": [
        "byobnet.RepVggBlock",
        "byobnet.MobileOneBlock",
        "fastvit.MobileOneBlock",
        "fastvit.ReparamLargeKernelConv",
        "ghostnet.GhostModuleV3",
        "ghostnet.GhostBottleneckV3: x1 += dw_rpr_conv(x)",
        "lcnetv2.RepDepthwiseSeparable: out + dw_conv(x)",
        "repghost.RepGhostModule",
        "repvit.RepVggDw",
    ],
    "sum between sibling splits": [
        "dla.DlaBottle2neck: sp + spx[i]",
        "edgenext.SplitTransposeBlock: sp + spx[i]",
        "efficientvit_msra.CascadedGroupAttention",
        "res2net.Bottle2neck: sp + spx[i]",
    ],
    "fusion of resolutions or streams": [
        "coat.ParallelBlock: cur",
        "hrnet.HighResolutionModule",
        "hrnet.HighResolutionNet.forward_features",
        "tnt.Block: patch_embed[:, 1:] +",
    ],
    "merge of a NAS cell": [
        "nasnet.CellStem0",
        "nasnet.CellStem1",
        "nasnet.FirstCell",
        "nasnet.NormalCell",
        "nasnet.ReductionCell0",
        "nasnet.ReductionCell1",
        "pnasnet.CellBase.cell_forward",
    ],
    "a norm or gate written as a sum": [
        "grn.GlobalResponseNorm",
        "efficientvim.HSMSSD",
    ],
    "average of heads or of colours": [
        "csatv2.LearnableDct2d._rgb_to_ycbcr",
        "deit.VisionTransformerDistilled.forward_head",
        "efficientformer.EfficientFormer.forward_head",
        "efficientformer_v2.EfficientFormerV2.forward_head",
        "levit.LevitDistilled.forward_head",
        "pit.PoolingVisionTransformer.forward_head",
        "repvit.RepVitClassifier",
        "swiftformer.SwiftFormer.forward_head",
        "volo.VOLO.forward_head",
    ],
}
NOT_STEPS: dict[str, list[tuple[str, str]]] = {}
for _reason, _places in _NOT_STEPS.items():
    for _place in _places:
        _name, _, _start = _place.partition(": ")
        NOT_STEPS.setdefault(_name, []).append((_start, _reason))

# Additions on which a careful reader can differ: (place, start of expression) -> the other kinds
# that are accepted ("none": not a step), and why. The tables above hold the reading that counts.
OTHER_READINGS: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {
    ("grn.GlobalResponseNorm", "x + "): (
        ("identity",),
        "global response normalisation is x * (1 + gate) + bias, written as x + f(x)",
    ),
    ("efficientvim.HSMSSD", "h * self.act(z) + h * self.D"): (
        ("identity",),
        "the state space model's D term is h * (gate + D), known as its skip connection",
    ),
    ("mvitv2.MultiScaleAttention", "x + q"): (
        ("identity", "projection"),
        "the pooled query is added to the attention's output (residual pooling connection)",
    ),
    ("swiftformer.EfficientAdditiveAttention", "self.proj(attn * key) + query"): (
        ("identity", "projection"),
        "the query is added to the attention's output",
    ),
    ("fastvit.RepMixer", "x + self.layer_scale("): (
        ("none",),
        "the whole update can be re-parameterised into one depthwise convolution",
    ),
    ("repvit.RepVggDw", "self.conv(x) + self.conv1(x) + x"): (
        ("identity",),
        "two convolution branches and a bare identity, re-parameterisable into one convolution",
    ),
    ("nasnet.FirstCell", "x_comb_iter_4_left + x_right"): (
        ("identity",),
        "one of the five merges of this cell is separable_conv(x) + x",
    ),
    ("nasnet.NormalCell", "x_comb_iter_4_left + x_right"): (
        ("identity",),
        "one of the five merges of this cell is separable_conv(x) + x",
    ),
    ("crossvit.CrossAttentionBlock", "x[:, 0:1, ...] +"): (
        ("projection",),
        "the shortcut is a slice (the class token) of what the branch reads",
    ),
    ("volo.ClassBlock", "cls_embed + self.drop_path1("): (
        ("projection",),
        "the shortcut is a slice (the class token) of what the branch reads",
    ),
    ("rexnet.LinearBottleneck", "x[:, 0:self.in_channels] + shortcut"): (
        ("projection",),
        "the shortcut fills only the first channels of the new state, as if padded with zeros",
    ),
    ("efficientformer_v2.Downsample", "self.attn(x) + out"): (
        ("none",),
        "a strided convolution and a strided attention side by side",
    ),
    ("tnt.Block", "patch_embed[:, 1:] +"): (
        ("identity",),
        "the update of the patch tokens is computed from the pixel tokens, not from themselves",
    ),
}
