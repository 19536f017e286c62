"""The papers of the gates, for bibliographies."""

from __future__ import annotations

from typing import Final

from attnlab.gates._info import Reference

_CVPR = "IEEE/CVF Conference on Computer Vision and Pattern Recognition"
_ICCV = "IEEE/CVF International Conference on Computer Vision"
_ECCV = "European Conference on Computer Vision"
_AAAI = "AAAI Conference on Artificial Intelligence"


def _arxiv(number: str) -> str:
    return f"arXiv preprint arXiv:{number}"


_IEBN: Final = Reference(
    "inproceedings",
    "liang2020instance",
    "Liang, Senwei and Huang, Zhongzhan and Liang, Mingfu and Yang, Haizhao",
    "Instance Enhancement Batch Normalization: An Adaptive Regulator of Batch Noise",
    _AAAI,
    2020,
)
_GATHER_EXCITE: Final = Reference(
    "inproceedings",
    "hu2018gather",
    "Hu, Jie and Shen, Li and Albanie, Samuel and Sun, Gang and Vedaldi, Andrea",
    "Gather-Excite: Exploiting Feature Context in Convolutional Neural Networks",
    "Advances in Neural Information Processing Systems",
    2018,
)

REFERENCES: Final[dict[str, Reference]] = {
    "asr": Reference(
        "inproceedings",
        "huang2024stripe",
        "Huang, Zhongzhan and Zhong, Shanshan and Wen, Wushao and Qin, Jinghui and Lin, Liang",
        "Stripe Observation Guided Inference Cost-free Attention Mechanism",
        _ECCV,
        2024,
    ),
    "se": Reference(
        "inproceedings",
        "hu2018squeeze",
        "Hu, Jie and Shen, Li and Sun, Gang",
        "Squeeze-and-Excitation Networks",
        _CVPR,
        2018,
    ),
    "cbam": Reference(
        "inproceedings",
        "woo2018cbam",
        "Woo, Sanghyun and Park, Jongchan and Lee, Joon-Young and Kweon, In So",
        "CBAM: Convolutional Block Attention Module",
        _ECCV,
        2018,
    ),
    "eca": Reference(
        "inproceedings",
        "wang2020eca",
        "Wang, Qilong and Wu, Banggu and Zhu, Pengfei and Li, Peihua and Zuo, Wangmeng and Hu, "
        "Qinghua",
        "ECA-Net: Efficient Channel Attention for Deep Convolutional Neural Networks",
        _CVPR,
        2020,
    ),
    "sem": Reference(
        "article",
        "zhong2022switchable",
        "Zhong, Shanshan and Wen, Wushao and Qin, Jinghui",
        "Switchable Self-attention Module",
        _arxiv("2209.05680"),
        2022,
    ),
    "srm": Reference(
        "inproceedings",
        "lee2019srm",
        "Lee, HyunJae and Kim, Hyo-Eun and Nam, Hyeonseob",
        "SRM: A Style-based Recalibration Module for Convolutional Neural Networks",
        _ICCV,
        2019,
    ),
    "fca": Reference(
        "inproceedings",
        "qin2021fcanet",
        "Qin, Zequn and Zhang, Pengyi and Wu, Fei and Li, Xi",
        "FcaNet: Frequency Channel Attention Networks",
        _ICCV,
        2021,
    ),
    "ie": _IEBN,
    "iebn": _IEBN,
    "sge": Reference(
        "article",
        "li2019spatial",
        "Li, Xiang and Hu, Xiaolin and Yang, Jian",
        "Spatial Group-wise Enhance: Improving Semantic Feature Learning in Convolutional Networks",
        _arxiv("1905.09646"),
        2019,
    ),
    "dia": Reference(
        "inproceedings",
        "huang2020dianet",
        "Huang, Zhongzhan and Liang, Senwei and Liang, Mingfu and Yang, Haizhao",
        "DIANet: Dense-and-Implicit Attention Network",
        _AAAI,
        2020,
    ),
    "spa": Reference(
        "inproceedings",
        "guo2020spanet",
        "Guo, Jingda and Ma, Xu and Sansom, Andrew and McGuire, Mara and Kalaani, Andrew and "
        "Chen, Qi and Tang, Sihai and Yang, Qing and Fu, Song",
        "SPANet: Spatial Pyramid Attention Network for Enhanced Image Recognition",
        "IEEE International Conference on Multimedia and Expo",
        2020,
    ),
    "step": Reference(
        "inproceedings",
        "huang2023understanding",
        "Huang, Zhongzhan and Liang, Mingfu and Qin, Jinghui and Zhong, Shanshan and Lin, Liang",
        "Understanding Self-attention Mechanism via Dynamical System Perspective",
        _ICCV,
        2023,
    ),
    "bam": Reference(
        "inproceedings",
        "park2018bam",
        "Park, Jongchan and Woo, Sanghyun and Lee, Joon-Young and Kweon, In So",
        "BAM: Bottleneck Attention Module",
        "British Machine Vision Conference",
        2018,
    ),
    "scse": Reference(
        "inproceedings",
        "roy2018concurrent",
        "Roy, Abhijit Guha and Navab, Nassir and Wachinger, Christian",
        "Concurrent Spatial and Channel 'Squeeze \\& Excitation' in Fully Convolutional Networks",
        "Medical Image Computing and Computer Assisted Intervention",
        2018,
    ),
    "ese": Reference(
        "inproceedings",
        "lee2020centermask",
        "Lee, Youngwan and Park, Jongyoul",
        "CenterMask: Real-Time Anchor-Free Instance Segmentation",
        _CVPR,
        2020,
    ),
    "ge": _GATHER_EXCITE,
    "gep": _GATHER_EXCITE,
    "gc": Reference(
        "inproceedings",
        "cao2019gcnet",
        "Cao, Yue and Xu, Jiarui and Lin, Stephen and Wei, Fangyun and Hu, Han",
        "GCNet: Non-local Networks Meet Squeeze-Excitation Networks and Beyond",
        f"{_ICCV} Workshops",
        2019,
    ),
    "coord": Reference(
        "inproceedings",
        "hou2021coordinate",
        "Hou, Qibin and Zhou, Daquan and Feng, Jiashi",
        "Coordinate Attention for Efficient Mobile Network Design",
        _CVPR,
        2021,
    ),
    "ela": Reference(
        "article",
        "xu2024ela",
        "Xu, Wei and Wan, Yi",
        "ELA: Efficient Local Attention for Deep Convolutional Neural Networks",
        _arxiv("2403.01123"),
        2024,
    ),
    "simam": Reference(
        "inproceedings",
        "yang2021simam",
        "Yang, Lingxiao and Zhang, Ru-Yuan and Li, Lida and Xie, Xiaohua",
        "SimAM: A Simple, Parameter-Free Attention Module for Convolutional Neural Networks",
        "International Conference on Machine Learning",
        2021,
    ),
    "triplet": Reference(
        "inproceedings",
        "misra2021rotate",
        "Misra, Diganta and Nalamada, Trikay and Arasanipalai, Ajay Uppili and Hou, Qibin",
        "Rotate to Attend: Convolutional Triplet Attention Module",
        "IEEE/CVF Winter Conference on Applications of Computer Vision",
        2021,
    ),
    "ema": Reference(
        "inproceedings",
        "ouyang2023ema",
        "Ouyang, Daliang and He, Su and Zhang, Guozhong and Luo, Mingzhu and Guo, Huaiyong and "
        "Zhan, Jian and Huang, Zhijie",
        "Efficient Multi-Scale Attention Module with Cross-Spatial Learning",
        "IEEE International Conference on Acoustics, Speech and Signal Processing",
        2023,
    ),
    "gam": Reference(
        "article",
        "liu2021global",
        "Liu, Yichao and Shao, Zongru and Hoffmann, Nico",
        "Global Attention Mechanism: Retain Information to Enhance Channel-Spatial Interactions",
        _arxiv("2112.05561"),
        2021,
    ),
    "gct": Reference(
        "inproceedings",
        "yang2020gated",
        "Yang, Zongxin and Zhu, Linchao and Wu, Yu and Yang, Yi",
        "Gated Channel Transformation for Visual Recognition",
        _CVPR,
        2020,
    ),
}
"""By the name of the gate; "asr" is the paper of all `asr:NAME`."""
