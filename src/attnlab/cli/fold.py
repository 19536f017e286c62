"""`attnlab fold`: from a trained network with gates to the plain one, on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from attnlab._errors import AttnlabError, OptionError, WeightsError
from attnlab.cli._repair import resumable
from attnlab.cli._show import console, print_python, rich_table
from attnlab.cli.driver import Opening, by_this_command, changed, in_python, opening_command

if TYPE_CHECKING:
    from torch import nn

    from attnlab.networks.checkpoint import Description
    from attnlab.subject import Subject
    from attnlab.surgery.folding import FoldReceipt
    from attnlab.surgery.receipt import Receipt
    from attnlab.surgery.repair import Distil

_IMAGES = 256
"""Images that make constants, if nothing else is asked for: half of them choose."""
_FLAGS = (
    ("partial=True", "--partial"),
    ("add_affine=True", "--add-affine"),
    ("fuse=True", "--fuse"),
    ("fold_constants, fold_budget", "--constants"),
    ("fold_constants and fold_budget also take one", "--constants also takes one"),
    ("gates= names", "--gates names"),
    ("without repair=", "without --repair"),
    ("cost=", "--cost "),
)
_FOR_CONSTANTS = ("plan", "tolerance", "budget", "cost", "gates", "repair")
_OF_TASK_RUNS = ("output", "fuse", "add_affine", "sites")
"""Options that go with a run whose network only its task can build."""


@dataclass(frozen=True)
class FoldOptions:
    """What `attnlab fold` is asked for."""

    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """The .safetensors file to write."""
    fuse: bool = False
    """Also merge norms and re-parameterisable branches, for the fastest network."""
    partial: bool = False
    """Keep gates that cannot be folded instead of refusing."""
    add_affine: bool = False
    """Give norms without affine parameters some where nothing else takes a gate."""
    constants: bool = False
    """Replace gates by constants from the images of --data; a run brings its own. 256 images, if
    --limit does not say another number."""
    tolerance: float | None = None
    """Keep gates whose spread, or effect on the output, is larger; 0.1 if neither this nor --budget
    is given."""
    budget: float | Literal["all"] | None = None
    """Replace as many gates as keep the predicted cost within this; all: whatever it costs. Half of
    the images choose, the other half measure."""
    cost: Literal["output", "answers", "loss", "accuracy"] = "output"
    """What --budget limits: relative change of the output, share of answers that change or, if the
    images have classes, rise of the loss or fall of the accuracy."""
    plan: bool = False
    """Print what would go at each budget, and write nothing."""
    gates: Annotated[tuple[str, ...], tyro.conf.arg(metavar="CLASS=SUBMODULE")] = ()
    """Attention classes of the network itself that attnlab does not know, each with the submodule
    that returns its gate, for example SELayer=fc."""
    repair: Literal["distil"] | None = None
    """With --budget, let the original teach the folded network on the images that chose."""
    epochs: int | None = None
    """Epochs of the repair; 10 if left out."""
    moving: Literal["taken", "all"] | None = None
    """In the repair: norms and the layers that took constants, or all layers."""
    onnx: Path | None = None
    """Also write an ONNX file, compared with onnxruntime."""
    sites: bool = False
    """Print one line per site."""

    def check(self) -> None:
        """Refuse options that are wrong, or that do not go together."""
        given = changed(self)
        for name in _FOR_CONSTANTS:
            if name in given and not self.constants:
                raise OptionError(
                    f"--{name} is for gates that are made constant from images: give --constants "
                    f"as well."
                )
        if self.tolerance is not None and self.budget is not None:
            raise OptionError(
                "--tolerance judges every gate alone and --budget all of them together: give one "
                "of them."
            )
        if "cost" in given and self.budget is None and not self.plan:
            raise OptionError("--cost says what a budget limits: give --budget as well.")
        if self.repair is not None and self.budget is None:
            raise OptionError("--repair is for what --budget changes: give it as well.")
        if self.repair is None and (self.epochs is not None or self.moving is not None):
            raise OptionError(
                "--epochs and --moving belong to the repair: give --repair distil as well."
            )
        self._check_files()

    def _check_files(self) -> None:
        if self.output is None:
            if self.plan:
                return
            raise OptionError(
                "Expected where to write: -o NAME.safetensors; or --plan, to look only."
            )
        if self.onnx is not None and not self.onnx.parent.is_dir():
            raise WeightsError(f"There is no folder {str(self.onnx.parent)!r} to write to.")

    @property
    def flags(self) -> dict[str, bool]:
        """The flags of an exact fold that were given."""
        return {name: True for name in ("partial", "fuse", "add_affine") if getattr(self, name)}

    @property
    def of_constants(self) -> dict[str, Any]:
        """The arguments that choosing constants takes, as far as they were given."""
        found: dict[str, Any] = {"gates": _own_gates(self.gates)} if self.gates else {}
        return found | ({"add_affine": True} if self.add_affine else {})

    @property
    def of_repair(self) -> dict[str, Any]:
        """The settings of the repair that were given."""
        given = {"epochs": self.epochs, "moving": self.moving}
        return {name: value for name, value in given.items() if value is not None}


def _fold(asked: Opening, chosen: FoldOptions) -> None:
    """Fold the gates of a trained network into its layers; write the plain network.

    The file is written only after it was read back into the network it belongs to and gave the
    same output. Its receipt is written next to it, as NAME.fold.json and NAME.fold.html. Nothing is
    ever unpickled. Of a run whose network only its task can build, such as a detector, the results
    with and without gates are shown if its data are present, and the file belongs to the run:
    attnlab.lab.measures.load_folded reads it. A repair that was stopped goes on when the same
    command is given again: its checkpoints are in NAME.repair until the file is written.

    Examples:
      attnlab fold runs/RUN -o plain.safetensors
      attnlab fold asr.safetensors --model resnet164 --gate asr:se -o plain.safetensors --fuse
      attnlab fold asr.pt --model timm:resnet50 --gate asr:se -o plain.safetensors --onnx plain.onnx
      attnlab fold timm:repvgg_a0 --weights pretrained --fuse -o fast.safetensors
      attnlab fold timm:efficientnet_b0 --weights mine.pth --constants --data PHOTOS --plan
      attnlab fold runs/RUN --constants --budget 0.02 --cost answers -o plain.safetensors
      attnlab fold runs/RUN --constants --budget all --repair distil -o plain.safetensors
    """
    from attnlab.networks.checkpoint import describe

    chosen.check()
    asked.check_output(chosen.output)
    folder = Path(asked.source)
    if folder.is_dir() and describe(folder) is None:
        _fold_task_run(asked, chosen)
        return
    subject, opened = _opened(asked, chosen)
    if chosen.constants:
        print(f"images: {_classes_in_words(subject)}")
    if chosen.plan:
        _print_plan(subject, opened, chosen)
        return
    _fold_and_write(subject, chosen)
    print()
    print_python(*_python(subject, opened, chosen))


fold = opening_command(_fold, FoldOptions)


def _fold_and_write(subject: Subject, chosen: FoldOptions) -> None:
    assert chosen.output is not None  # checked
    assert subject.description is not None  # else only its task can build it
    with _resuming(chosen) as repair:
        with in_flags():
            plain, receipt = _folded(subject, chosen, repair)
        receipt = by_this_command(subject.sign(receipt))
        _show(subject, plain, receipt, chosen)
        described = subject.description.after_fold(plain, receipt)
        write_checked(plain, described, chosen.output, chosen.onnx)
        write_receipt(receipt, chosen.output)


def _opened(asked: Opening, chosen: FoldOptions) -> tuple[Subject, str]:
    """The network, and the Python that opens it. An exact fold needs no images, so a run whose data
    are not on this machine is folded all the same."""
    from attnlab.subject import open_run

    try:
        return asked.subject(), asked.python()
    except AttnlabError:
        if not Path(asked.source).is_dir() or chosen.constants or set(asked.options) - {"trust"}:
            raise
        given = {**asked.options, "images": False}
        line = f"attnlab.subject.open_run({asked.source!r}{in_python(given)})"
        return open_run(asked.source, **given), line


def _classes_in_words(subject: Subject) -> str:
    if subject.task is not None:
        return "their labels are taken for the network's own classes"
    return "their labels are not known to be the network's own classes: no accuracy"


def _batches(subject: Subject) -> list[Any]:
    """The images that make constants, with labels if those are the network's own classes."""
    labelled = subject.task is not None
    return [each if labelled else each.inputs for each in subject.own_batches(_IMAGES)]


def _folded(
    subject: Subject, chosen: FoldOptions, repair: Distil | None
) -> tuple[nn.Module, FoldReceipt]:
    from attnlab.surgery.folding import fold_budget, fold_constants
    from attnlab.surgery.folding.fold import fold as fold_network

    network, example = subject.network, subject.example()
    if not chosen.constants:
        return fold_network(
            network,
            partial=chosen.partial,
            fuse=chosen.fuse,
            add_affine=chosen.add_affine,
            example=example,
        )
    images, options = _batches(subject), {**chosen.of_constants, "example": example}
    if chosen.budget is None:
        if chosen.tolerance is not None:
            options["tolerance"] = chosen.tolerance
        plain, receipt = fold_constants(network, images, **options)
    else:
        plain, receipt = fold_budget(
            network, images, chosen.budget, cost=chosen.cost, repair=repair, **options
        )
    if not chosen.fuse:
        return plain, receipt
    fast, merged = fold_network(plain, fuse=True, example=example)
    return fast, receipt.then(merged)


def _resuming(chosen: FoldOptions) -> AbstractContextManager[Distil | None]:
    """The repair that is asked for, which goes on after a stop; or none."""
    from attnlab.surgery.repair import Distil

    if chosen.repair is None or chosen.output is None:
        return nullcontext(None)
    return resumable(chosen.output, Distil(**chosen.of_repair))


def _show(subject: Subject, plain: nn.Module, receipt: FoldReceipt, chosen: FoldOptions) -> None:
    print(receipt)
    if chosen.constants and subject.task is not None and receipt.curve is None:
        before, after = (_accuracy(subject, network) for network in (subject.network, plain))
        print(f"  accuracy    {before:.2f} → {after:.2f} % on what made the constants")
    if chosen.sites:
        console().print(rich_table(receipt.table()))


def _accuracy(subject: Subject, network: nn.Module) -> float:
    """Per cent of right answers on the images, or of the tokens, that make constants."""
    import torch

    from attnlab.surgery.answer import accuracy

    batches = _batches(subject)
    with torch.no_grad():
        answers = torch.cat([network(batch.inputs) for batch in batches])
    targets = torch.cat([batch.targets for batch in batches])
    if answers.shape[:-1] == targets.shape:  # one for each token of a text
        answers, targets = answers.flatten(0, -2), targets.flatten()
    return accuracy(answers, targets)


def _print_plan(subject: Subject, opened: str, chosen: FoldOptions) -> None:
    """Print the curve; nothing is folded."""
    from attnlab.surgery.folding import cost_curve

    with in_flags():
        curve = cost_curve(
            subject.network,
            _batches(subject),
            cost=chosen.cost,
            example=subject.example(),
            **chosen.of_constants,
        )
    print(replace(curve, budget=chosen.budget))
    print()
    given = in_python({"cost": chosen.cost, **chosen.of_constants})
    print_python(
        "import attnlab",
        "from attnlab.surgery.folding import cost_curve",
        *_opening_lines(subject, opened, chosen),
        f"curve = cost_curve(subject.network, images{given}, example=subject.example())",
    )


def _opening_lines(subject: Subject, opened: str, chosen: FoldOptions) -> list[str]:
    lines = [f"subject = {opened}"]
    if chosen.constants:
        each = "batch" if subject.task is not None else "batch.inputs"
        lines.append(f"images = [{each} for batch in subject.batches({_IMAGES})]")
    return lines


def _python(subject: Subject, opened: str, chosen: FoldOptions) -> list[str]:
    """The Python that does the same."""
    function, given = "fold", in_python(chosen.flags)
    arguments = "subject.network"
    if chosen.constants:
        arguments += ", images"
        given = in_python(chosen.of_constants)
        function = "fold_constants"
        if chosen.tolerance is not None:
            given = in_python({"tolerance": chosen.tolerance}) + given
    if chosen.budget is not None:
        function, arguments = "fold_budget", f"{arguments}, {chosen.budget!r}"
        given = (in_python({"cost": chosen.cost}) if chosen.cost != "output" else "") + given
    if chosen.repair is not None:
        given += f", repair=Distil({in_python(chosen.of_repair).removeprefix(', ')})"
    imports = ["from attnlab.surgery.repair import Distil"] if chosen.repair else []
    merge = ["fast, merged = attnlab.fold(plain, fuse=True, example=subject.example())"]
    merge += ["plain, receipt = fast, receipt.then(merged)"]
    return [
        "import attnlab",
        *imports,
        *_opening_lines(subject, opened, chosen),
        f"plain, receipt = attnlab.{function}({arguments}{given}, example=subject.example())",
        *(merge if chosen.constants and chosen.fuse else []),
        "description = subject.description.after_fold(plain, receipt)",
        f"attnlab.save(plain, {str(chosen.output)!r}, description)",
        *([] if chosen.onnx is None else _onnx_lines(chosen.onnx)),
    ]


def _onnx_lines(onnx: Path) -> list[str]:
    return [
        "from attnlab.surgery.folding.onnx import export_onnx",
        f"export_onnx(plain, description.example(plain, batch=2), {str(onnx)!r})",
    ]


def write_checked(
    plain: nn.Module,
    described: Description,
    output: Path,
    onnx: Path | None,
    *,
    say: bool = True,
) -> None:
    """Write next to the final places, read back and compare, and only then put in place; and say
    so, unless standard output is JSON."""
    from attnlab._errors import FoldError
    from attnlab._files import whole_file
    from attnlab.networks.checkpoint import load, to_bytes
    from attnlab.surgery.answer import same_answers
    from attnlab.surgery.folding.onnx import export_onnx

    images = described.example(plain, batch=2)
    with whole_file(output) as partial:
        partial.write_bytes(to_bytes(plain, described))
        reread = load(partial, trust=True)  # its classes made the network, so they are imported
        if not same_answers(reread.to(images.device), plain, images):
            raise FoldError(
                "The file, read back, gives another output than the network, so it was not written."
            )
        if onnx is not None:
            change = export_onnx(plain, images, onnx)
            print(f"wrote {onnx} (onnxruntime differs by {change:.1e}, relative)")
    if say:
        print(f"wrote {output} (read back: the same output, bit for bit)")


def write_receipt(receipt: Receipt, output: Path, kind: str = "fold", *, say: bool = True) -> None:
    """Write a receipt as data and as a page, which the file of weights does not depend on."""
    from attnlab._extras import MissingPackageError
    from attnlab.lab.pages.write import write_result_page

    file = receipt.save(output.with_suffix(f".{kind}.json"))
    try:
        done = f"wrote {file} and {write_result_page(receipt, file.with_suffix('.html'))}"
    except MissingPackageError as error:
        done = f"wrote {file}, and no page of it. {error}"
    if say:
        print(done)


def _fold_task_run(asked: Opening, chosen: FoldOptions) -> None:
    """Fold, compare and write a run whose network only its task can build."""
    from attnlab.lab.measures import fold_run

    others = [n for n in changed(chosen) if n not in _OF_TASK_RUNS]
    for name in (*others, *(n for n in asked.options if n != "trust")):
        raise OptionError(
            f"--{name.replace('_', '-')} does not go with {asked.source!r}, whose network only its "
            f"task can build. Leave it out, or use attnlab.fold in Python."
        )
    assert chosen.output is not None  # or --plan, which is refused
    options = {**chosen.flags, **asked.options}
    folded = fold_run(asked.source, **options)
    folded = replace(folded, receipt=by_this_command(folded.receipt))
    print(folded.receipt)
    if chosen.sites:
        console().print(rich_table(folded.receipt.table()))
    print(folded)
    folded.save(chosen.output)
    print(f"wrote {chosen.output} (read back: the same output, bit for bit)")
    write_receipt(folded.receipt, chosen.output)
    print()
    print_python(
        "from attnlab.lab.measures import fold_run, load_folded",
        f"folded = fold_run({asked.source!r}{in_python(options)})",
        "print(folded)",
        f"folded.save({str(chosen.output)!r})",
        f"network = load_folded({asked.source!r}, {str(chosen.output)!r})",
    )


@contextmanager
def in_flags() -> Iterator[None]:
    """Messages of the Python function, in the words of the command."""
    try:
        yield
    except AttnlabError as error:
        text = str(error)
        for python, flag in _FLAGS:
            text = text.replace(python, flag)
        raise type(error)(text) from error


def _own_gates(given: tuple[str, ...]) -> dict[str, str]:
    """Read what `--gates CLASS=SUBMODULE` was given."""
    pairs = [each.partition("=") for each in given]
    for kind, separator, submodule in pairs:
        if not (kind and separator and submodule):
            raise OptionError(
                f"Expected --gates as CLASS=SUBMODULE, for example SELayer=fc, but got "
                f"{kind + separator + submodule!r}."
            )
    return {kind: submodule for kind, _, submodule in pairs}
