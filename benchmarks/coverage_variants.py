"""One small network of every timm family, and more where a family holds several block designs.

A family is a module of `timm.models`. A line is: family, model, input size, options of the model
(where the smallest variant of a family is large, it is built shallower).
"""

from __future__ import annotations

import ast
from typing import Any

_TABLE = """
beit                       beit_base_patch16_224                 224  {'depth': 4}
beit                       beitv2_base_patch16_224               224  {'depth': 2}
byoanet                    halonet_h1                            256
byoanet                    lambda_resnet26t                      128
byoanet                    eca_botnext26ts_256                   256
byoanet                    haloregnetz_b                         224
byobnet                    repvgg_a0                             128
byobnet                    mobileone_s0                          128
byobnet                    gernet_s                              128
byobnet                    resnet51q                             128
byobnet                    gcresnext26ts                         128
byobnet                    test_byobnet                          160
cait                       cait_xxs24_224                        224  {'depth': 6}
coat                       coat_tiny                             224
coat                       coat_lite_tiny                        224
convit                     convit_tiny                           224
convmixer                  convmixer_768_32                      128
convnext                   convnext_atto                         128
convnext                   convnextv2_atto                       128
convnext                   test_convnext3                        160
cpubone                    cpubone_nano                          224
crossvit                   crossvit_tiny_240                     240
crossvit                   crossvit_9_dagger_240                 240
csatv2                     csatv2                                512
cspnet                     cs3darknet_s                          128
cspnet                     cspresnext50                          128
cspnet                     darknet17                             128
cspnet                     cs3edgenet_x                          128
davit                      davit_tiny                            224
deepseek_vit               deepseek_vit_412m                     224  {'depth': 2}
deit                       deit_tiny_patch16_224                 224
deit                       deit_tiny_distilled_patch16_224       224
deit                       deit3_small_patch16_224               224
densenet                   densenet121                           128
dla                        dla46_c                               128
dla                        dla34                                 128
dla                        dla60_res2net                         128
dla                        dla102                                128
dpn                        dpn48b                                128
dpn                        dpn68                                 128
edgenext                   edgenext_xx_small                     256
edgenext                   edgenext_small_rw                     256
efficientformer            efficientformer_l1                    224
efficientformer_v2         efficientformerv2_s0                  224
efficientnet               efficientnet_b0                       128
efficientnet               mobilenetv2_050                       128
efficientnet               efficientnetv2_rw_t                   128
efficientnet               mixnet_s                              128
efficientnet               efficientnet_cc_b0_4e                 128
efficientvim               efficientvim_m1                       224
efficientvit_mit           efficientvit_b0                       128
efficientvit_mit           efficientvit_l1                       128
efficientvit_msra          efficientvit_m0                       224
eva                        eva02_tiny_patch14_224                224
eva                        vit_tiny_patch16_dinov3_qkvb          256
fasternet                  fasternet_t0                          128
fastvit                    fastvit_t8                            256
fastvit                    fastvit_sa12                          256
focalnet                   focalnet_tiny_srf                     128
gcvit                      gcvit_xxtiny                          224
gemma4_vit                 gemma4_vit_167m                       192  {'depth': 3}
ghostnet                   ghostnet_050                          128
ghostnet                   ghostnetv2_100                        128
ghostnet                   ghostnetv3_050                        128
hardcorenas                hardcorenas_a                         128
hgnet                      hgnetv2_b0                            128
hgnet                      hgnetv2_b4                            128
hgnet                      hgnet_tiny                            128
hiera                      hiera_tiny_224                        224
hieradet_sam2              hieradet_small                        256
hrnet                      hrnet_w18_small                       128
hrnet                      hrnet_w18_small_v2                    128
iformer                    iformer_t                             224
inception_next             inception_next_atto                   224
inception_resnet_v2        inception_resnet_v2                   299
inception_v3               inception_v3                          299
inception_v4               inception_v4                          299
lcnetv2                    lcnetv2_small                         128
lcnetv2                    lcnetv2_base                          128
levit                      levit_128s                            224
levit                      levit_conv_128s                       224
lowformer                  lowformer_b0                          224
mambaout                   mambaout_femto                        128
maxxvit                    maxvit_rmlp_pico_rw_256               256
maxxvit                    coatnet_pico_rw_224                   224
maxxvit                    coatnext_nano_rw_224                  224
maxxvit                    maxxvit_rmlp_nano_rw_256              256
metaformer                 poolformer_s12                        128
metaformer                 poolformerv2_s12                      128
metaformer                 caformer_s18                          128
mlp_mixer                  mixer_s16_224                         224
mlp_mixer                  resmlp_12_224                         224
mlp_mixer                  gmlp_ti16_224                         224
mobilenetv3                mobilenetv3_small_050                 128
mobilenetv3                mobilenetv4_conv_small_035            128
mobilenetv3                mobilenetv4_hybrid_medium             224
mobilenetv3                lcnet_050                             128
mobilenetv5                mobilenetv5_base                      256
mobilevit                  mobilevit_xxs                         256
mobilevit                  mobilevitv2_050                       256
mvitv2                     mvitv2_tiny                           224
mvitv2                     mvitv2_small_cls                      224
naflexvit                  naflexvit_base_patch16_gap            224  {'depth': 3}
naflexvit                  naflexvit_base_patch16_map            224  {'depth': 2}
nasnet                     nasnetalarge                          331
nest                       nest_tiny                             224
nextvit                    nextvit_small                         224
nfnet                      nf_resnet26                           128
nfnet                      nf_regnet_b0                          128
nfnet                      dm_nfnet_f0                           128
pit                        pit_ti_224                            224
pit                        pit_ti_distilled_224                  224
pnasnet                    pnasnet5large                         331
pvt_v2                     pvt_v2_b0                             224
pvt_v2                     pvt_v2_b2_li                          224
qwen3_vit                  qwen3_vit_88m                         224  {'depth': 3}
rdnet                      rdnet_tiny                            128
regnet                     regnetx_002                           128
regnet                     regnety_002                           128
regnet                     regnetz_005                           128
regnet                     regnetv_040                           128
repghost                   repghostnet_050                       128
repvit                     repvit_m1                             224
repvit                     repvit_m0_9                           224
res2net                    res2next50                            128
res2net                    res2net50_26w_4s                      128
resnest                    resnest14d                            128
resnest                    resnest50d_4s2x40d                    128
resnet                     resnet10t                             128
resnet                     resnet26                              128
resnet                     seresnext26d_32x4d                    128
resnet                     ecaresnet26t                          128
resnetv2                   resnetv2_18                           128
resnetv2                   resnetv2_50                           128
resnetv2                   resnetv2_50d_gn                       128
resnetv2                   resnetv2_50x1_bit                     128
rexnet                     rexnet_100                            128
selecsls                   selecsls42                            128
senet                      legacy_seresnet18                     128
senet                      legacy_seresnext26_32x4d              128
sequencer                  sequencer2d_s                         224
shvit                      shvit_s1                              224
sknet                      skresnet18                            128
sknet                      skresnet50                            128
starnet                    starnet_s050                          128
swiftformer                swiftformer_xs                        224
swin_transformer           swin_tiny_patch4_window7_224          224
swin_transformer_v2        swinv2_tiny_window8_256               256
swin_transformer_v2_cr     swinv2_cr_tiny_224                    224
tiny_vit                   tiny_vit_5m_224                       224
tnt                        tnt_s_legacy_patch16_224              224  {'depth': 4}
tnt                        tnt_s_patch16_224                     224  {'depth': 3}
tresnet                    tresnet_m                             128
twins                      twins_pcpvt_small                     224
twins                      twins_svt_small                       224
vgg                        vgg11                                 128
visformer                  visformer_tiny                        224
vision_transformer         vit_tiny_patch16_224                  224
vision_transformer         vit_pwee_patch16_reg1_gap_256         256
vision_transformer         vit_dpwee_patch16_reg1_gap_256        256
vision_transformer         vit_small_patch16_36x1_224            224  {'depth': 6}
vision_transformer         vit_small_patch16_18x2_224            224  {'depth': 6}
vision_transformer         test_vit4                             160
vision_transformer         vit_base_patch16_siglip_224           224  {'depth': 2}
vision_transformer_hybrid  vit_tiny_r_s16_p8_224                 224
vision_transformer_hybrid  vit_small_r26_s32_224                 224
vision_transformer_relpos  vit_relpos_small_patch16_224          224
vision_transformer_relpos  vit_relpos_small_patch16_rpn_224      224
vision_transformer_relpos  vit_srelpos_small_patch16_224         224
vision_transformer_sam     samvit_base_patch16_224               224  {'depth': 4}
vitamin                    vitamin_small_224                     224
volo                       volo_d1_224                           224
vovnet                     vovnet39a                             128
vovnet                     ese_vovnet19b_slim_dw                 128
vovnet                     ese_vovnet99b                         128
xception                   legacy_xception                       299
xception_aligned           xception41                            299
xception_aligned           xception41p                           299
xcit                       xcit_nano_12_p16_224                  224
"""


def _variant(line: str) -> dict[str, Any]:
    family, model, size, *options = line.split(maxsplit=3)
    return {
        "family": family,
        "model": model,
        "input": [3, int(size), int(size)],
        "options": ast.literal_eval(options[0]) if options else {},
    }


VARIANTS = [_variant(line) for line in _TABLE.strip().splitlines()]
