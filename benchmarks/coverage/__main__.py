"""In how many networks residual steps are found, take a gate and give it back.

python -m benchmarks.coverage timm --only 'swin|vit'
python -m benchmarks.coverage beyond --only 'detection|yolo'
python -m benchmarks.coverage language --only 'llama|qwen'
"""

from __future__ import annotations

from benchmarks._common import run_program

COMMANDS = {
    "timm": "table:timm",
    "beyond": "table:beyond",
    "language": "atlas:language",
    "truth": "truth:truth",
    "placement": "surgery:placement",
    "fold-share": "surgery:fold_share",
    "fuse": "fusing:fuse",
}

if __name__ == "__main__":
    run_program("coverage", COMMANDS)
