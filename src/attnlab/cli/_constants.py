"""What `attnlab fold --constants` needs: images with the normalisation and the classes that belong
to the network, the plan, and messages in the words of the command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._errors import AttnlabError, OptionError
from attnlab.cli._networks import images_line
from attnlab.cli._show import print_python

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.data import Dataset

    from attnlab.networks.checkpoint import Description
    from attnlab.surgery.folding import Budget, CostName

_FLAGS = (
    ("constants=loader", "--constants DATA"),
    ("constants=", "--constants"),
    ("partial=True", "--partial"),
    ("add_affine=True", "--add-affine"),
    ("fuse=True", "--fuse"),
    ("tolerance=", "--tolerance"),
    ("budget=", "--budget"),
    ("repair=", "--repair"),
    ("gates=", "--gates"),
    ("cost=", "--cost "),
)
_BATCH = 32
_SETS = ("digits", "cifar10")
"""Data sets by name; both have ten classes."""


@dataclass(frozen=True)
class Images:
    """Batches, once more on every pass."""

    batches: Iterable[Any]
    lines: list[str]
    """The Python that makes `loader`."""
    said: str
    """What is known of their classes."""
    labelled: bool


def images(
    network: nn.Module, description: Description, source: str, data: str, limit: int
) -> Images:
    """The images `data`, at most `limit`, for the network that `source` names."""
    run = Path(source).is_dir()
    if data == "run":
        if not run:
            raise OptionError(
                f"--constants run takes the test images of a run, and {source!r} is not a run's "
                f"folder. Expected a folder of images, digits, cifar10 or fake."
            )
        return _of_run(source, limit)
    from attnlab.data import images_for

    options: dict[str, Any] = {"limit": limit, "batch": _BATCH, "size": description.input_size}
    if run:  # it was trained with the mean and deviation of its own data
        from attnlab.subject.run import read_facts

        facts = read_facts(Path(source))
        options |= {"mean": list(facts.mean), "std": list(facts.std)}
    loader = images_for(network, data, **options)
    lines = ["from attnlab.data import images_for", images_line(data, **options)]
    classes, outputs = _classes(data, loader.dataset), _outputs(network, description)
    if classes is not None and classes == outputs:
        said = f"{classes} classes, as many as the network has"
        return Images(loader, lines, f"{said}: taken for its own, in their order", True)
    kind = ("class", "classes") if data in _SETS else ("folder", "folders")
    known = "no classes" if classes is None else f"{classes} {kind[classes != 1]}"
    said = f"{known}, and the network has {outputs} outputs: no accuracy"
    lines.append("loader = [images for images, _ in loader]")
    return Images([batch for batch, _ in loader], lines, said, False)


def _of_run(source: str, limit: int) -> Images:
    from attnlab.subject import open_run

    opened = replace(open_run(source, trust=True), limit=limit, batch_size=_BATCH)
    batches = list(opened.batches())
    lines = [f"loader = attnlab.open({source!r}, limit={limit}, batch={_BATCH}).batches()"]
    return Images(batches, lines, "test images of the run, with its classes", True)


def _classes(data: str, dataset: Dataset[Any]) -> int | None:
    """Of how many classes the images are; None where they have none."""
    from torch.utils.data import Subset

    if data in _SETS:
        return 10
    inner = dataset.dataset if isinstance(dataset, Subset) else dataset
    names = getattr(inner, "classes", None)
    return None if names is None else len(names)


def _outputs(network: nn.Module, description: Description) -> int:
    """How many numbers the network answers with."""
    import torch

    from attnlab.surgery.answer import leaves

    with torch.no_grad():
        answers = [tensor for _, tensor in leaves(network(description.example(network)))]
    return answers[0].shape[-1] if answers and answers[0].ndim else 0


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


def own_gates(given: tuple[str, ...]) -> dict[str, str]:
    """Of `--gates CLASS=SUBMODULE`."""
    pairs = [each.partition("=") for each in given]
    for kind, separator, submodule in pairs:
        if not (kind and separator and submodule):
            raise OptionError(
                f"Expected --gates as CLASS=SUBMODULE, for example SELayer=fc, but got "
                f"{kind + separator + submodule!r}."
            )
    return {kind: submodule for kind, _, submodule in pairs}


def print_plan(
    network: nn.Module,
    description: Description,
    data: Images,
    cost: CostName,
    budget: Budget | None,
    options: dict[str, Any],
    lines: list[str],
) -> None:
    """Print the curve; nothing is folded."""
    from attnlab.surgery.folding import cost_curve

    kept = {name: value for name, value in options.items() if name in ("gates", "add_affine")}
    with in_flags():
        curve = cost_curve(
            network, data.batches, cost=cost, example=description.example(network), **kept
        )
    print(replace(curve, budget=budget))
    words = [f"cost={cost!r}", *(f"{name}={value!r}" for name, value in kept.items())]
    arguments = ", ".join(["network", "loader", *words, "example=description.example(network)"])
    print()
    print_python(
        "import attnlab",
        *lines,
        "from attnlab.surgery.folding import cost_curve",
        f"curve = cost_curve({arguments})",
    )


def accuracy(network: nn.Module, batches: Iterable[Any]) -> float:
    """The share of right answers."""
    import torch

    from attnlab.surgery.answer import right_answers

    right = []
    for inputs, classes in batches:
        with torch.no_grad():
            right.append(right_answers(network(inputs), classes))
    return float(torch.cat(right).double().mean())
