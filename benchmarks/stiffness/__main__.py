"""What stiffness tells of trained networks, and how exact and costly it is.

python -m benchmarks.stiffness proxy --networks basic-even single-even --seeds 1 --epochs 1
python -m benchmarks.stiffness index --network resnet20 --steps 2 --inputs 1
"""

from __future__ import annotations

from benchmarks._common import run_program

COMMANDS = {
    "proxy": "proxy:proxy",
    "index": "index:index",
    "encoder": "encoder:encoder",
    "vit-asr": "vit_asr:vit_asr",
    "shorten": "shorten:shorten",
    "shorten-text": "shorten_text:shorten_text",
}

if __name__ == "__main__":
    run_program("stiffness", COMMANDS)
