"""`attnlab fuse`: re-parameterisation of any network, on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from attnlab.cli._show import print_python
from attnlab.cli.driver import (
    Opening,
    Output,
    by_this_command,
    describe_or_refuse,
    opening_command,
    write,
)
from attnlab.cli.fold import write_checked, write_receipt


@dataclass(frozen=True)
class FuseOptions:
    """What `attnlab fuse` is asked for."""

    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """The .safetensors file to write; without it, only the receipt is shown."""


def _fuse(asked: Opening, chosen: FuseOptions, output: Output) -> None:
    """Merge norms, parallel branches and scales into the layers next to them: re-parameterisation,
    also called Conv+BN fusion. RepVGG, MobileOne, RepViT, FastViT, RepGhost, ACNet, DBB, Conv+BN
    and LayerScale, in any network; what stays is named, with the reason.

    The file is written only after it was read back and gave the same output. Its receipt is
    written next to it, as NAME.fuse.json and NAME.fuse.html. A network with inserted gates is for
    attnlab fold --fuse.

    Examples:
      attnlab fuse timm:fastvit_t8
      attnlab fuse timm:repvgg_a0 --weights pretrained -o fast.safetensors
      attnlab fuse runs/RUN -o fast.safetensors
    """
    import attnlab

    asked.check_output(chosen.output)
    subject = asked.subject()
    described = None if chosen.output is None else describe_or_refuse(subject).after_fuse()
    fast, receipt = attnlab.fuse(subject.network, example=subject.example())
    receipt = by_this_command(subject.sign(receipt))
    print(receipt.to_json() if output.json else receipt)
    write(receipt, output, "")
    if chosen.output is not None and described is not None:
        say = not output.json
        write_checked(fast, described, chosen.output, None, say=say)
        write_receipt(receipt, chosen.output, "fuse", say=say)
    if output.json:
        return
    print()
    lines = ["import attnlab", f"subject = {asked.python()}"]
    lines.append("fast, receipt = attnlab.fuse(subject.network, example=subject.example())")
    if chosen.output is not None:
        lines.append(
            f"attnlab.save(fast, {str(chosen.output)!r}, subject.description.after_fuse())"
        )
    print_python(*lines)


fuse = opening_command(_fuse, FuseOptions, with_output=True)
