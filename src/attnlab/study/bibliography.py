"""BibTeX of the papers whose modules or measures a study used."""

from __future__ import annotations

from collections.abc import Iterable

_ENTRIES = {
    "step": (
        "inproceedings",
        "huang2023understanding",
        "Huang, Zhongzhan and Liang, Mingfu and Qin, Jinghui and Zhong, Shanshan and Lin, Liang",
        "Understanding Self-attention Mechanism via Dynamical System Perspective",
        "booktitle = {IEEE/CVF International Conference on Computer Vision}, year = {2023}",
    ),
    "asr": (
        "inproceedings",
        "huang2024stripe",
        "Huang, Zhongzhan and Zhong, Shanshan and Wen, Wushao and Qin, Jinghui and Lin, Liang",
        "Stripe Observation Guided Inference Cost-free Attention Mechanism",
        "booktitle = {European Conference on Computer Vision}, year = {2024}",
    ),
    "se": (
        "inproceedings",
        "hu2018squeeze",
        "Hu, Jie and Shen, Li and Sun, Gang",
        "Squeeze-and-Excitation Networks",
        "booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition}, "
        "year = {2018}",
    ),
    "cbam": (
        "inproceedings",
        "woo2018cbam",
        "Woo, Sanghyun and Park, Jongchan and Lee, Joon-Young and Kweon, In So",
        "CBAM: Convolutional Block Attention Module",
        "booktitle = {European Conference on Computer Vision}, year = {2018}",
    ),
    "eca": (
        "inproceedings",
        "wang2020eca",
        "Wang, Qilong and Wu, Banggu and Zhu, Pengfei and Li, Peihua and Zuo, Wangmeng and Hu, "
        "Qinghua",
        "ECA-Net: Efficient Channel Attention for Deep Convolutional Neural Networks",
        "booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition}, "
        "year = {2020}",
    ),
    "sem": (
        "article",
        "zhong2022switchable",
        "Zhong, Shanshan and Wen, Wushao and Qin, Jinghui",
        "Switchable Self-attention Module",
        "journal = {arXiv preprint arXiv:2209.05680}, year = {2022}",
    ),
    "srm": (
        "inproceedings",
        "lee2019srm",
        "Lee, HyunJae and Kim, Hyo-Eun and Nam, Hyeonseob",
        "SRM: A Style-based Recalibration Module for Convolutional Neural Networks",
        "booktitle = {IEEE/CVF International Conference on Computer Vision}, year = {2019}",
    ),
    "fca": (
        "inproceedings",
        "qin2021fcanet",
        "Qin, Zequn and Zhang, Pengyi and Wu, Fei and Li, Xi",
        "FcaNet: Frequency Channel Attention Networks",
        "booktitle = {IEEE/CVF International Conference on Computer Vision}, year = {2021}",
    ),
    "ie": (
        "inproceedings",
        "liang2020instance",
        "Liang, Senwei and Huang, Zhongzhan and Liang, Mingfu and Yang, Haizhao",
        "Instance Enhancement Batch Normalization: An Adaptive Regulator of Batch Noise",
        "booktitle = {AAAI Conference on Artificial Intelligence}, year = {2020}",
    ),
    "sge": (
        "article",
        "li2019spatial",
        "Li, Xiang and Hu, Xiaolin and Yang, Jian",
        "Spatial Group-wise Enhance: Improving Semantic Feature Learning in Convolutional Networks",
        "journal = {arXiv preprint arXiv:1905.09646}, year = {2019}",
    ),
    "dia": (
        "inproceedings",
        "huang2020dianet",
        "Huang, Zhongzhan and Liang, Senwei and Liang, Mingfu and Yang, Haizhao",
        "DIANet: Dense-and-Implicit Attention Network",
        "booktitle = {AAAI Conference on Artificial Intelligence}, year = {2020}",
    ),
    "spa": (
        "inproceedings",
        "guo2020spanet",
        "Guo, Jingda and Ma, Xu and Sansom, Andrew and McGuire, Mara and Kalaani, Andrew and "
        "Chen, Qi and Tang, Sihai and Yang, Qing and Fu, Song",
        "SPANet: Spatial Pyramid Attention Network for Enhanced Image Recognition",
        "booktitle = {IEEE International Conference on Multimedia and Expo}, year = {2020}",
    ),
}
_SAME = {"iebn": "ie"}


def bibliography(gates: Iterable[str], *, stiffness: bool) -> str:
    """Entries for gate names such as `se`, `asr:se*2`, `asr:se+se`; `stiffness` if TNS is shown."""
    wanted = ["step"] if stiffness else []
    for gate in gates:
        base, _, inner = gate.partition(":")
        names = [base, *inner.split("+")] if inner else base.split("+")
        wanted += [_SAME.get(name.split("*")[0], name.split("*")[0]) for name in names]
    chosen = [_ENTRIES[name] for name in dict.fromkeys(wanted) if name in _ENTRIES]
    return "\n".join(
        f"@{kind}{{{key},\n  author = {{{author}}},\n  title = {{{{{title}}}}},\n  {where}\n}}"
        for kind, key, author, title, where in chosen
    )
