"""`attnlab.open(SOURCE)`: the one way to a network and its images, for every command and function.

A source is a name, a file of weights, the folder of a run, or a module. Each knows another part of
what is needed: a run knows all of it, a file that attnlab wrote knows its network and its
preprocessing, a name of timm or torchvision knows the preprocessing of the published weights, and a
module knows nothing. What is missing is asked for; what had to be assumed is the subject's first
note, and so the first note of every result.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from attnlab._checked import check_batches, check_whole
from attnlab._errors import InputError, OptionError, WeightsError
from attnlab.data import Data, is_text, load_named, needs_preprocessing, outputs_of
from attnlab.networks.backbones.registry import public_names
from attnlab.networks.backbones.unwrap import WeightsNote
from attnlab.networks.backbones.weights import SUFFIXES, load_weights, read_state
from attnlab.networks.checkpoint import (
    Description,
    describe,
    filled,
    is_pretrained,
    names_have_gates,
    open_pretrained,
)
from attnlab.networks.create import check_network, create
from attnlab.networks.preprocessing import IMAGENET, Preprocessing, library_preprocessing
from attnlab.residuals.example import evaluating, example_input, token_input, uncompiled
from attnlab.residuals.inputs import Batches
from attnlab.residuals.site import Place
from attnlab.results.mirror import one_result
from attnlab.results.provenance import Provenance, provenance
from attnlab.subject.building import own_preprocessing
from attnlab.subject.run import open_run, stored_settings
from attnlab.subject.subject import Part, Subject
from attnlab.surgery.answer import leaves
from attnlab.surgery.insertion.insert import insert
from attnlab.tasks import Task, TaskConfig, build_task

Source = str | Path | nn.Module | Subject
"""What a network can be given as."""
_NO_IMAGES = "No images were given: these are random pixels. Pass data, or batches of your own."
_OF_FILES = (".npz", ".npy", ".onnx", ".weights", ".pkl", ".h5", ".json", ".toml", ".model", ".zip")
"""How other files end that are given in the place of weights: no class has such a name."""
_BUILDING = ("num_classes", "gate", "where", "start", "place", "shared", "shortcut")
"""Options that say how to build a network."""


def open(  # noqa: A001
    source: Source,
    data: str | Path | None = None,
    *,
    model: str | None = None,
    num_classes: int | None = None,
    weights: str | Path | None = None,
    ema: bool = False,
    gate: str | None = None,
    where: str | None = None,
    start: Literal["paper", "identity"] = "paper",
    place: Place = "auto",
    shared: bool = False,
    shortcut: Literal["projection", "zero_pad"] | None = None,
    part: Part | None = None,
    limit: int | None = None,
    batch: int | None = None,
    size: int | None = None,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    root: str | Path | None = None,
    trust: bool = False,
) -> Subject:
    """A network with its images, its preprocessing, its task and where all of them came from.

    Args:
        source: a name as for `attnlab.create`, a file of weights, the folder of a finished run or
            of `save_pretrained` of transformers, or a module.
        data: a folder of images, an .npz archive, or the name of a data set as in a study: digits,
            cifar10, fake, and so on. A run brings its own test images.
        model: of a file that does not say which network it belongs to, the name of the network.
        num_classes: outputs of the network; what the data or the library say if left out.
        weights: of a named network: a file, timm's "pretrained", torchvision's "DEFAULT".
        ema: of a checkpoint that holds both, take the running average of the weights.
        gate: insert this gate; with --model, the gate that the file's network has.
        where: the blocks that have that gate, as for `attnlab.insert`.
        start: how that gate starts: as in its paper, or so that the network answers as before.
        place: where on the branch that gate acts, as for `attnlab.insert`.
        shared: whether the blocks of a stage have one gate in common.
        shortcut: of attnlab's CIFAR ResNets; zero_pad is what He et al. used.
        part: test images, or training images as in an epoch of training. If left out, test images;
            training images where something is chosen by looking at them.
        limit: use this many images, evenly spread.
        batch: images at a time; 64, or as many as a run was tested with, if left out.
        size: side of the images, if not what the network was trained with.
        mean: of each channel, pixels 0 to 1, if not what the network was trained with.
        std: standard deviation of each channel, likewise.
        root: where a data set that is not embedded lies.
        trust: whether classes that are not attnlab's, which a file or a run names, may be imported.
    """
    given = locals()
    asked = Asked(**{name: given[name] for name in inspect.signature(Asked).parameters})
    if isinstance(source, Subject):
        asked.refuse(tuple(asked.given()), "a subject that is already open")
        return source
    if isinstance(source, nn.Module):
        return _of_module(source, asked)
    if not isinstance(source, str | Path):
        raise OptionError(
            f"Expected a network: a name, a file of weights, the folder of a run, or a "
            f"torch.nn.Module, but got {source!r}."
        )
    path = one_result(source)
    if path.is_dir() and is_pretrained(path):
        asked.refuse(("model", "weights", "ema", *_BUILDING), f"{str(path)!r}, which says both")
        network = open_pretrained(path, trust=asked.trust).to(_device())
        return replace(_of_module(network, asked), name=path.name)
    if path.is_dir():
        return _of_run(path, asked)
    if path.is_file():
        return _of_file(path, asked)
    check_source(source)
    return _of_name(str(source), asked)


def check_source(source: str | Path) -> None:
    """Raise what `open` raises for a name, a file or a run that does not exist, without opening
    it."""
    path = one_result(source)
    if path.is_dir() and not is_pretrained(path):
        stored_settings(path)
    elif path.is_dir():
        return
    elif not path.is_file():
        if path.suffix in (*SUFFIXES, *_OF_FILES):
            raise WeightsError(f"There is no file {str(path)!r}.")
        check_network(str(source))


@dataclass(frozen=True)
class Asked:
    """The options of `open`, as they were given."""

    data: str | Path | None
    model: str | None
    num_classes: int | None
    weights: str | Path | None
    ema: bool
    gate: str | None
    where: str | None
    start: Literal["paper", "identity"]
    place: Place
    shared: bool
    shortcut: str | None
    part: Part | None
    limit: int | None
    batch: int | None
    size: int | None
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    root: str | Path | None
    trust: bool

    def __post_init__(self) -> None:
        for name in ("num_classes", "limit", "batch", "size"):
            value = getattr(self, name)
            if value is not None:
                check_whole(name, value, 1)

    def given(self) -> dict[str, object]:
        """The options that do not have their default."""
        defaults = inspect.signature(open).parameters
        return {
            name: value for name, value in vars(self).items() if value != defaults[name].default
        }

    def refuse(self, names: Sequence[str], what: str) -> None:
        """Raise an `OptionError` for the first of `names` that was given."""
        for name in names:
            if name in self.given():
                raise OptionError(f"{name} does not go with {what}. Leave it out.")

    def applied(self, subject: Subject) -> Subject:
        """The subject with the number of images that was asked for."""
        batch = self.batch or subject.batch_size
        return replace(subject, part=self.part, limit=self.limit, batch_size=batch)

    def preprocessing(self, known: Preprocessing) -> Preprocessing:
        """Return the known preprocessing, with what was asked for in its place."""
        channels, height, width = known.size
        sides = (height, width) if self.size is None else (self.size, self.size)
        return replace(
            known,
            size=(channels, *sides),
            mean=known.mean if self.mean is None else tuple(self.mean),
            std=known.std if self.std is None else tuple(self.std),
        )


def subject_of(source: Source, images: Batches | None = None) -> Subject:
    """Return what an instrument was given: anything that `open` takes, and batches in the place of
    the images that it would have. Without any images it is measured on random pixels, and says
    so."""
    subject = open(source)
    if images is not None or isinstance(source, nn.Module):
        check_batches(images)
        return replace(subject, loader=images, data=None, task=None)
    if subject.data is None and subject.loader is None:
        if token_input(subject.network) is not None:
            raise InputError(
                f"{subject.name!r} takes tokens, and random ones would say nothing of it. Pass "
                f"text: data='stdlib', or a file or folder with root."
            )
        size = None if subject.description is None else subject.description.input_size
        known = _of_imagenet(subject.network)
        shape = known.size if size is None else (known.size[0], size[1], size[2])
        fake = load_named("fake", None, replace(known, size=shape))
        return replace(subject, data=fake, notes=(*subject.notes, _NO_IMAGES))
    return subject


def _of_module(network: nn.Module, asked: Asked) -> Subject:
    asked.refuse(("model", "weights", "ema", *_BUILDING), "a network that is already built")
    network = uncompiled(network)
    images, notes = _images(asked, network, None, None, trained=True)
    return asked.applied(
        Subject(
            type(network).__name__,
            network,
            images,
            task=_task(images, network),
            notes=notes,
            device=_device_of(network),
        )
    )


def _of_run(folder: Path, asked: Asked) -> Subject:
    asked.refuse(
        ("model", "weights", "ema", *_BUILDING), f"the run {str(folder)!r}, whose network is known"
    )
    subject = open_run(folder, trust=asked.trust)
    if asked.data is None:
        asked.refuse(("size", "mean", "std", "root"), "a run's own images, unless data is given")
        return asked.applied(subject)
    facts = subject.images().facts
    own = own_preprocessing(facts)
    images, _ = _images(asked, subject.network, own, None, trained=True)
    assert images is not None
    assert subject.provenance is not None
    source = replace(subject.provenance, data=str(asked.data), data_checksum=images.facts.checksum)
    other = replace(subject, data=images, provenance=source, task=_task(images, subject.network))
    return asked.applied(other)


def _of_file(path: Path, asked: Asked) -> Subject:
    asked.refuse(("weights",), f"{str(path)!r}, which is a file of weights itself")
    description = _described(path, asked)
    network = filled(description, read_state(path, ema=asked.ema), str(path)).eval().to(_device())
    library = library_preprocessing(description.model, network, None)
    images_known = description.input_size is not None and len(description.input_size) == 3
    if library is None and images_known:
        assert description.input_size is not None
        # The file says the size of its images, though not how they were prepared.
        library = replace(_of_imagenet(network), size=_size(description.input_size))
    images, notes = _images(asked, network, description.preprocessing, library, trained=True)
    return asked.applied(
        Subject(
            path.name,
            network,
            images,
            task=_task(images, network),
            description=description,
            provenance=_provenance(description.model, description.gate, path, asked, images),
            notes=notes,
            device=_device(),
        )
    )


def _described(path: Path, asked: Asked) -> Description:
    """How to build the network of a file: as the options say it, else as the file does."""
    if asked.model is not None:
        return _description(asked.model, asked.num_classes, asked)
    asked.refuse(_BUILDING, f"{str(path)!r} without model, the network that it belongs to")
    description = describe(path)
    if description is None:
        read_state(path, ema=asked.ema)  # a file that holds no weights says so itself
        raise WeightsError(
            f"{str(path)!r} does not say which network it belongs to. Pass it, for example: "
            f"model='resnet164', gate='asr:se', num_classes=100; in a command --model resnet164 "
            f"--gate asr:se --num-classes 100."
        )
    description.check_trust(path, asked.trust)
    if asked.size is None:
        return description
    channels = 3 if description.input_size is None else description.input_size[0]
    return replace(description, input_size=[channels, asked.size, asked.size])


def _of_name(name: str, asked: Asked) -> Subject:
    asked.refuse(("model",), f"{name!r}, which is a name and not a file of weights")
    gated = _file_with_gates(name, asked)
    if gated is not None:
        return _of_file(gated, replace(asked, model=name, weights=None))
    published = asked.weights is not None and not Path(asked.weights).is_file()
    outputs = asked.num_classes
    if outputs is None and asked.data is not None and not published:
        outputs = outputs_of(asked.data, asked.root)
    description = _description(name, outputs, asked)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = _created(name, outputs, asked, description)
        if description.gate is not None:
            network = _with_gate(network, description)
    network = network.eval().to(_device())
    library = library_preprocessing(name, network, str(asked.weights) if published else None)
    trained = asked.weights is not None
    known = library if published else None
    images, notes = _images(asked, network, known, library, trained=trained)
    return asked.applied(
        Subject(
            name,
            network,
            images,
            task=_task(images, network),
            description=description,
            provenance=_provenance(name, asked.gate, asked.weights, asked, images),
            notes=notes,
            device=_device(),
        )
    )


def _created(name: str, outputs: int | None, asked: Asked, description: Description) -> nn.Module:
    """The network with its weights, or with their running average."""
    if not asked.ema:
        return create(name, outputs, asked.weights, **description.model_options)
    if asked.weights is None or not Path(asked.weights).is_file():
        raise OptionError(
            f"ema is for a checkpoint that holds a running average of its weights, but weights is "
            f"{asked.weights!r}. Pass the file as weights, or leave ema out."
        )
    network = create(name, outputs, **description.model_options)
    load_weights(network, asked.weights, public_names(name), ema=True)
    return network


def _file_with_gates(name: str, asked: Asked) -> Path | None:
    """The file of `weights`, if it holds the network with the gates that are asked for: then they
    are part of what is read, and not inserted into it afterwards."""
    path = None if asked.weights is None else Path(asked.weights)
    if path is None or not path.is_file():
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeightsNote)  # what is taken is said when it is
        if not names_have_gates(read_state(path, ema=asked.ema)):
            return None
    if asked.gate is None:
        raise WeightsError(
            f"{str(path)!r} holds a network with gates, and which is not said. Pass gate, as in "
            f"attnlab fold {name} --weights {path} --gate asr:se; a file that attnlab.save wrote "
            f"needs neither: attnlab fold {path}."
        )
    return path


def _description(model: str, outputs: int | None, asked: Asked) -> Description:
    options = {} if asked.shortcut is None else {"shortcut": asked.shortcut}
    size = None if asked.size is None else [3, asked.size, asked.size]
    return Description(
        model,
        outputs,
        options,
        asked.gate,
        asked.where,
        asked.start,
        input_size=size,
        place=Description.place if asked.gate is None else asked.place,
        shared=asked.shared,
    )


def _with_gate(network: nn.Module, description: Description) -> nn.Module:
    assert description.gate is not None
    gated, _ = insert(
        network,
        description.gate,
        description.where,
        description.start,
        place=description.place,
        shared=description.shared,
        example=description.example(network),
        inplace=True,
    )
    return gated


def _images(
    asked: Asked,
    network: nn.Module,
    known: Preprocessing | None,
    library: Preprocessing | None,
    *,
    trained: bool,
) -> tuple[Data | None, tuple[str, ...]]:
    """The images that were asked for, prepared as the network knows it, else as its library does
    for its own weights, else as the data are; and what had to be assumed."""
    if asked.data is None:
        return None, ()
    _check_kind(asked.data, asked.root, network)
    if is_text(asked.data, asked.root):
        asked.refuse(("size", "mean", "std"), f"{str(asked.data)!r}, which is text")
        text = load_named(asked.data, asked.root)
        return text, (*_other_tokens(network, text.facts.outputs), *text.facts.notes)
    assumed = known or library
    if assumed is None and needs_preprocessing(asked.data, asked.root):
        assumed = _of_imagenet(network)
    if assumed is None:
        assumed = own_preprocessing(load_named(asked.data, asked.root).facts)
        assert assumed is not None
    wanted = asked.preprocessing(assumed)
    images = load_named(asked.data, asked.root, wanted)
    noticed = images.facts.notes
    told = asked.size is not None and asked.mean is not None and asked.std is not None
    if known is not None or told or not trained:
        return images, noticed
    note = (
        f"How images were prepared when the network was trained is not known; assumed are "
        f"{wanted}. If that is wrong, so are the numbers: pass size, mean and std."
    )
    return images, (note, *noticed)


def _other_tokens(network: nn.Module, tokens: int) -> tuple[str, ...]:
    """A note on text whose tokens are not those of the network. One more is a mask."""
    own = token_input(network)
    if own is None or own[0] in (tokens, tokens + 1):
        return ()
    return (
        f"The text has {tokens} tokens and {type(network).__name__} {own[0]}: unless it was "
        f"trained on these, they mean something else to it, and so do the numbers. Pass batches "
        f"by its own tokenizer.",
    )


def _check_kind(data: str | Path, root: str | Path | None, network: nn.Module) -> None:
    """Refuse images for a network of tokens. Not text for others: not all say what they take."""
    if token_input(network) is not None and not is_text(data, root):
        raise InputError(
            f"{type(network).__name__} takes tokens, but {str(data)!r} has images. Pass text, such "
            f"as data='stdlib'."
        )


def _size(shape: Sequence[int]) -> tuple[int, int, int]:
    channels, height, width = shape
    return channels, height, width


def _of_imagenet(network: nn.Module) -> Preprocessing:
    """The network's own size, and ImageNet's statistics for photographs."""
    channels, height, width = example_input(network).shape[1:]
    mean, std = (tuple(v[:channels]) if channels <= 3 else (0.5,) * channels for v in IMAGENET)
    return Preprocessing((channels, height, width), mean, std)


def _task(images: Data | None, network: nn.Module) -> Task | None:
    """Classification, if the labels of the images can be the network's own classes, or the next
    token, if the vocabulary of a text can be the network's own."""
    if images is None or images.facts.random:
        return None
    names = {"class": "classification", "tokens": "language"}
    name = names.get(images.facts.targets)
    if name is None or _outputs(network, images) != images.facts.outputs:
        return None
    return build_task(TaskConfig(name=name), images.facts)


def _outputs(network: nn.Module, images: Data) -> int:
    """How many numbers the network answers with for one image."""
    batch = next(images.testing([torch.arange(1)], _device_of(network)))
    with evaluating(network):
        answers = [tensor for _, tensor in leaves(network(batch.inputs))]
    return answers[0].shape[-1] if answers and answers[0].ndim else 0


def _provenance(
    network: str, gate: str | None, weights: str | Path | None, asked: Asked, images: Data | None
) -> Provenance:
    return provenance(
        network,
        gate=gate,
        weights=weights,
        data="" if asked.data is None else str(asked.data),
        data_checksum="" if images is None else images.facts.checksum,
    )


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _device_of(network: nn.Module) -> torch.device:
    parameter = next(network.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device
