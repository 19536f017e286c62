"""`attnlab shorten`: a trained network with fewer residual steps, and which of them matter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from attnlab._errors import OptionError
from attnlab.cli._show import print_python
from attnlab.cli.driver import (
    Opening,
    Output,
    by_this_command,
    describe_or_refuse,
    opening_command,
    show,
    write,
)

if TYPE_CHECKING:
    from attnlab.instruments.removal import RemovalTrial, ShortenResult
    from attnlab.subject import Subject


@dataclass(frozen=True)
class ShortenSettings:
    """What `attnlab shorten` can be told."""

    remove: tuple[str, ...]
    """How many steps, or which: names of blocks (layer1.2) or labels (1.2)."""
    by: str = "output"
    """What decides: output, influence, nsi, tns, kl, or with labels loss."""
    plan: bool = False
    """Only say what would go, with what each ranking loses on the way."""
    most: int | None = None
    """How many steps the curves of --plan and --out go; twice as many as removed if left out."""
    repair: bool = False
    """Estimate the running statistics of BatchNorm again afterwards."""
    latency: bool = False
    """Also time both networks, interleaved."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """The .safetensors file to write."""

    @property
    def wanted(self) -> int | list[str]:
        """A number of steps, or their names."""
        if len(self.remove) == 1 and self.remove[0].lstrip("-").isdigit():
            return int(self.remove[0])
        if not self.remove:
            raise OptionError("Expected --remove to be a number of steps or names of blocks.")
        return list(self.remove)

    @property
    def number(self) -> int:
        """How many steps go."""
        return self.wanted if isinstance(self.wanted, int) else len(self.wanted)

    def check(self) -> None:
        """Refuse what can be seen to be wrong before a network is opened."""
        from attnlab._checked import check_whole
        from attnlab.instruments.removal.rankings import ranking_named

        if self.plan and self.output is not None:
            raise OptionError("--plan writes no network: leave -o or --plan out.")
        if self.most is not None:
            check_whole("--most", self.most, 1)
        if isinstance(self.wanted, int):
            check_whole("remove", self.wanted, 1)
        ranking_named(self.by)

    def words(self) -> str:
        """The arguments of `attnlab.shorten`."""
        given = [repr(self.wanted), *([f"by={self.by!r}"] if self.by != "output" else [])]
        given += ["repair=True"] if self.repair else []
        return ", ".join([*given, *(["latency=True"] if self.latency else [])])


def _shorten(opening: Opening, chosen: ShortenSettings, output: Output) -> None:
    """Remove residual steps from a trained network: which go and why, what it costs, and the
    shorter network as a file. Steps are ranked on training images and judged on test images.

    Examples:
      attnlab shorten runs/0a1b2c3d4e5f --remove 3 -o shorter.safetensors
      attnlab shorten runs/0a1b2c3d4e5f --remove 3 --plan --out shorter
      attnlab shorten runs/0a1b2c3d4e5f --remove layer1.2 layer3.1 --repair
      attnlab shorten timm:resnet50 --weights pretrained --data PHOTOS --remove 2 --by influence
    """
    chosen.check()
    opening.check_output(chosen.output)
    if "part" in opening.options:
        raise OptionError(
            "--part does not go with shorten, which ranks steps on training images and judges on "
            "test images. Leave it out."
        )
    subject = opening.subject()
    lines = ["import attnlab", f"subject = {opening.python()}"]
    _check_images(subject, chosen)
    if chosen.plan or output.out is not None:
        lines += _show_curves(subject, chosen, output)
    if not chosen.plan:
        lines += _perform(subject, chosen, output)
    if not output.json:
        print()
        print_python(*lines)


shorten = opening_command(_shorten, ShortenSettings, with_output=True)


def _check_images(subject: Subject, chosen: ShortenSettings) -> None:
    """Refuse a ranking without images, or by loss without labels, before anything is computed."""
    from attnlab.instruments.removal.rankings import ranking_named
    from attnlab.instruments.removal.rankings.influence import require_loss

    if isinstance(chosen.wanted, int):
        subject.images()
        if ranking_named(chosen.by).needs_labels:
            require_loss(_glance(subject))


def _glance(subject: Subject) -> RemovalTrial:
    """The network on a few of its images: enough to see its steps and whether there are labels."""
    from attnlab.instruments.removal.images import trials_of

    subject.images()
    trials = trials_of(replace(subject, limit=2), None, None)
    assert trials is not None
    return trials.ranked


def _show_curves(subject: Subject, chosen: ShortenSettings, output: Output) -> list[str]:
    """Show what each ranking loses as steps go; the Python that does the same."""
    from attnlab.instruments.removal import removal_curves

    trial = _glance(subject)
    most = chosen.most
    if most is None:
        most = max(chosen.number, min(len(trial.candidates), 2 * chosen.number))
    # Steps that were named are in no ranking's order, so there the verdict is about the curves.
    asked = chosen.wanted if isinstance(chosen.wanted, int) else None
    by = None if asked is None else chosen.by
    result = by_this_command(removal_curves(subject, most=most, asked=asked, asked_by=by))
    if chosen.plan or not output.json:
        show(result, output)
    if chosen.plan and not output.json:
        _print_plan(trial, result, chosen)
    write(result, output, "")
    return [
        "from attnlab.instruments.removal import removal_curves",
        f"result = removal_curves(subject, most={most}"
        + (")" if asked is None else f", asked={asked}, asked_by={by!r})"),
    ]


def _print_plan(trial: RemovalTrial, result: ShortenResult, chosen: ShortenSettings) -> None:
    from attnlab.instruments.removal.rankings import ranking_named
    from attnlab.instruments.removal.shorten import named_steps
    from attnlab.surgery.shortening import RemovedStep

    if isinstance(chosen.wanted, list):
        steps = named_steps(trial.found.steps, chosen.wanted)
        rows = [RemovedStep(step.label, step.name) for step in steps]
    else:
        (curve,) = [curve for curve in result.curves if curve.ranking == chosen.by]
        points = curve.points[1 : chosen.wanted + 1]
        rows = [RemovedStep(each.label, each.name, each.score, each.next) for each in points]
    for row in rows:
        print(row.why(ranking_named(chosen.by).says))


def _perform(subject: Subject, chosen: ShortenSettings, output: Output) -> list[str]:
    """Remove the steps, and write the network if asked to; the Python that does the same."""
    import sys

    from attnlab.instruments.removal.shorten import shorten as shorten_network
    from attnlab.networks.checkpoint import save
    from attnlab.results.provenance import UNTRAINED

    if chosen.output is not None:
        describe_or_refuse(subject)
    shorter, receipt = shorten_network(
        subject, chosen.wanted, chosen.by, repair=chosen.repair, latency=chosen.latency
    )
    print(receipt.to_json() if output.json else receipt)
    if not (subject.trained or output.json):
        print(UNTRAINED)
    lines = [f"shorter, receipt = attnlab.shorten(subject, {chosen.words()})"]
    if chosen.output is not None:
        described = describe_or_refuse(subject).after_shorten(shorter, receipt)
        saved = save(shorter, chosen.output, described)
        print(f"wrote {saved}", file=sys.stderr if output.json else sys.stdout)
        lines += [
            "description = subject.description.after_shorten(shorter, receipt)",
            f"attnlab.save(shorter, {str(chosen.output)!r}, description)",
        ]
    return lines
