"""One way to build a network: attnlab's own by bare name, those of timm, torchvision and
segmentation_models_pytorch by prefix, the user's by where it is."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import nn

from attnlab._checked import check_path, check_whole
from attnlab._errors import (
    OptionError,
    UnknownNameError,
    WeightsError,
    check_options,
    unknown_name,
)
from attnlab._extras import check_extra
from attnlab._imported import imported, is_path
from attnlab.networks._timm_options import refuse_swallowed_options
from attnlab.networks._transformers import (
    MASKED,
    causal_families,
    check_family,
    create_of_family,
    masked_families,
    pixel_families,
)
from attnlab.networks.backbones.registry import BACKBONES, build_backbone
from attnlab.networks.backbones.weights import load_weights, read_renamed, renew_head
from attnlab.surgery.history import Made, record_event

_LANGUAGE = ("transformers", MASKED)
LIBRARIES = ("timm", "torchvision", "smp", "transformers", MASKED)


def create(
    name: str,
    num_classes: int | None = None,
    weights: str | Path | None = None,
    *,
    new_head: bool = False,
    **options: object,
) -> nn.Module:
    """Build the network `name`.

    * `"resnet164"`: one of `attnlab.networks.backbones.list_models()`, 10 classes unless told.
    * `"timm:NAME"`: `timm.create_model`; `weights="pretrained"` fetches the library's weights.
    * `"torchvision:NAME"`: `torchvision.models.get_model`; `weights="DEFAULT"` or one of the names
      that torchvision has for it fetches the library's weights.
    * `"smp:NAME"`: `segmentation_models_pytorch.create_model`, such as `"smp:unet"`, a class for
      every pixel; `encoder_name="resnet18"` and the other options of the library's builder.
    * `"transformers:FAMILY"`: a network of transformers, a causal one such as "transformers:llama"
      or one with a class for every pixel such as "transformers:segformer"; `num_classes` is the
      size of the vocabulary or the number of classes, and `options` are settings of its
      configuration (`backbone_config.depths` of the one inside; a list may be text, "8, 16").
    * `"transformers-masked:FAMILY"`: likewise an encoder that guesses hidden tokens, such as
      "transformers-masked:bert".
    * `"my_networks.MyNet"`: your own class, a subclass of `torch.nn.Module`.

    Nothing is fetched otherwise. For each, `weights` may be the path of a `.safetensors` or torch
    file with a state dict, which must fit exactly; of a checkpoint with more in it, or with a
    wrapper's names, the network's part is taken and a `WeightsNote` says which. With
    `new_head=True` all is loaded but the last layer, which was trained for another number of
    classes. `options` go to the network's builder. The network remembers how it was built, for
    `attnlab.save`.
    """
    _check_arguments(name, num_classes, weights)
    check_network(name)
    made = {"model": name, "num_classes": num_classes, "model_options": dict(options)}
    network = _created(name, num_classes, weights, new_head, options)
    # With a new head, how images were prepared is up to those who train it.
    given = weights is not None and not new_head and not Path(weights).is_file()
    record_event(network, Made(made, str(weights) if given else None))
    return network


def check_network(name: str) -> None:
    """Raise what `create` raises for a name that no network has, without building one."""
    library, separator, rest = name.partition(":")
    if not separator:
        _check_own(name)
    elif library == "timm":
        _check_timm(rest)
    elif library == "torchvision":
        if rest not in _torchvision_names():
            names, listing = _torchvision_names(), "torchvision.models.list_models()"
            raise _unknown_elsewhere("torchvision", rest, names, listing)
    elif library == "smp":
        check_extra("segment", "segmentation_models_pytorch")
        import segmentation_models_pytorch as smp

        if rest not in smp.MODEL_ARCHITECTURES_MAPPING:
            raise unknown_name("network of smp", rest, smp.MODEL_ARCHITECTURES_MAPPING)
    elif library in _LANGUAGE:
        check_family(library, rest)
    else:
        raise unknown_name("library", library, LIBRARIES)


def _created(
    name: str,
    num_classes: int | None,
    weights: str | Path | None,
    new_head: bool,
    options: dict[str, object],
) -> nn.Module:
    if new_head:
        return _with_new_head(name, num_classes, weights, options)
    library, separator, rest = name.partition(":")
    if not separator:
        return _create_own(name, num_classes, weights, options)
    if library in _LANGUAGE:
        return _create_transformers(library, rest, num_classes, weights, options)
    if num_classes is not None:
        options["num_classes"] = num_classes
    if library == "timm":
        return _create_timm(rest, weights, options)
    if library == "torchvision":
        return _create_torchvision(rest, weights, options)
    assert library == "smp", library
    return _create_smp(rest, weights, options)


def _check_arguments(name: object, num_classes: int | None, weights: str | Path | None) -> None:
    if not isinstance(name, str):
        raise OptionError(
            f"Expected the name of a network, such as 'resnet20' or 'timm:resnet50', but got "
            f"{name!r}."
        )
    if num_classes is not None:
        # timm takes 0 for a network without a last layer.
        check_whole("num_classes", num_classes, 0 if name.startswith("timm:") else 1)
    if weights is not None:
        check_path("weights", weights)


def list_networks(library: str | None = None) -> dict[str, str]:
    """Return what each network is, by the name that `create` takes; of attnlab itself ("attnlab"),
    timm, torchvision, segmentation_models_pytorch ("smp") if it is installed, or all of them."""
    known = ("attnlab", *LIBRARIES)
    if library is not None and library not in known:
        raise unknown_name("library", library, known)
    found: dict[str, str] = {}
    if library in (None, "attnlab"):
        found |= {name: f"{info.title}, {info.paper}" for name, info in BACKBONES.items()}
    if library in (None, "timm"):
        found |= {f"timm:{name}": f"timm, {_family(name)}" for name in sorted(_timm_names())}
    # Asked for only: it is an extra, and its import takes seconds.
    if library == "transformers":
        found |= {f"transformers:{name}": "transformers, causal" for name in causal_families()}
        found |= {f"transformers:{name}": "a class for every pixel" for name in pixel_families()}
    if library == MASKED:
        found |= {f"{MASKED}:{name}": "transformers, encoder" for name in masked_families()}
    if library in (None, "torchvision"):
        names = sorted(_torchvision_names())
        found |= {f"torchvision:{name}": f"torchvision, {_module(name)}" for name in names}
    if library == "smp":
        check_extra("segment", "segmentation_models_pytorch")
    if library in (None, "smp") and find_spec("segmentation_models_pytorch") is not None:
        import segmentation_models_pytorch as smp

        found |= {
            f"smp:{name}": "a class for every pixel" for name in smp.MODEL_ARCHITECTURES_MAPPING
        }
    return found


def _family(name: str) -> str:
    """Return timm's file that a network is from, which is its family."""
    import timm

    module: str = timm.model_entrypoint(name).__module__
    return module.rpartition(".")[2]


def _module(name: str) -> str:
    from torchvision.models import get_model_builder

    module: str = get_model_builder(name).__module__
    return module.removeprefix("torchvision.models.")


def _create_own(
    name: str, num_classes: int | None, weights: str | Path | None, options: dict[str, object]
) -> nn.Module:
    if name not in BACKBONES:
        return _create_imported(name, num_classes, weights, options)
    if weights is not None:
        _check_path(weights, f"attnlab ships no trained weights for {name!r}")
    network = build_backbone(name, num_classes, **options)
    if weights is not None:
        load_weights(network, weights, BACKBONES[name].public_names)
    return network


def _create_imported(
    name: str, num_classes: int | None, weights: str | Path | None, options: dict[str, object]
) -> nn.Module:
    build = imported("network", name)
    if num_classes is not None:
        options = {"num_classes": num_classes, **options}
    check_options(f"Network {name!r}", build, options)
    if weights is not None:
        _check_path(weights, f"attnlab knows no trained weights for {name!r}")
    network = build(**options)
    if weights is not None:
        load_weights(network, weights)
    return network


def _with_new_head(
    name: str, num_classes: int | None, weights: str | Path | None, options: dict[str, Any]
) -> nn.Module:
    """The trained network of the weights' own number of classes, its last layer as it starts."""
    if num_classes is None or weights is None:
        raise OptionError("new_head=True needs num_classes and weights.")
    network = create(name, num_classes, **options)
    if Path(weights).is_file():
        names = BACKBONES[name].public_names if name in BACKBONES else {}
        state = read_renamed(network, weights, names)
        renew_head(network, state, num_classes, str(weights))
    else:
        trained = create(name, weights=weights, **options)
        renew_head(network, trained.state_dict(), num_classes, f"{name} {weights}")
    return network


def _check_own(name: str) -> None:
    if name in BACKBONES:
        return
    if not is_path(name):
        raise _unknown_own(name)
    try:
        imported("network", name)
    except UnknownNameError:
        if name.partition(".")[0] in _timm_names():
            raise _unknown_own(name) from None
        raise


def _unknown_own(name: str) -> UnknownNameError:
    if "/" in name:
        return UnknownNameError(
            f"There is no file or folder {name!r}, and no network has a '/' in its name."
        )
    elsewhere = []
    if name.partition(".")[0] in _timm_names():  # after the dot, timm names a set of weights
        elsewhere.append(f"timm:{name}")
    if name in _torchvision_names():
        elsewhere.append(f"torchvision:{name}")
    if elsewhere:
        return UnknownNameError(
            f"{name!r} is not one of attnlab's own networks. "
            f"Did you mean {' or '.join(map(repr, elsewhere))}?"
        )
    return unknown_name("network", name, BACKBONES)


def _timm_names() -> frozenset[str]:
    import timm

    return frozenset(timm.list_models())


def _torchvision_names() -> frozenset[str]:
    from torchvision.models import list_models

    return frozenset(list_models())


def _check_timm(name: str) -> None:
    import timm

    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        raise _unknown_elsewhere("timm", architecture, _timm_names(), "timm.list_models()")
    tags = [known.partition(".")[2] for known in timm.models.get_arch_pretrained_cfgs(architecture)]
    if tag and tag not in tags:
        raise unknown_name(f"pretrained tag of timm:{architecture}", tag, filter(None, tags))


def _create_timm(name: str, weights: str | Path | None, options: dict[str, object]) -> nn.Module:
    import timm

    for option in ("pretrained", "checkpoint_path"):
        if option in options:
            raise OptionError(
                f"Expected weights='pretrained' or weights=PATH instead of timm's {option!r}."
            )
    pretrained = weights == "pretrained"
    if weights is not None and not pretrained:
        _check_path(weights, "timm's own weights are weights='pretrained'")
    build = partial(timm.create_model, name)
    network = _call(f"timm:{name}", build, pretrained=pretrained, **options)
    refuse_swallowed_options(f"timm:{name}", build, network, options)
    if weights is not None and not pretrained:
        load_weights(network, weights)
    return network


def _create_torchvision(
    name: str, weights: str | Path | None, options: dict[str, object]
) -> nn.Module:
    from torchvision.models import get_model_builder, get_model_weights

    builder = get_model_builder(name)
    if "weights_backbone" in inspect.signature(builder).parameters:
        # torchvision's detectors and segmenters fetch the backbone's weights unless told not to.
        options.setdefault("weights_backbone", None)
    published = list(get_model_weights(name).__members__)
    library_weights = weights if weights in published else None
    path = weights if library_weights is None else None
    if path is not None:
        known = ", ".join(published) or "none"
        _check_path(path, f"the names of torchvision's own weights for it: {known}")
    network = _call(f"torchvision:{name}", builder, weights=library_weights, **options)
    if path is not None:
        load_weights(network, path)
    return network


def _create_smp(name: str, weights: str | Path | None, options: dict[str, object]) -> nn.Module:
    import segmentation_models_pytorch as smp

    if weights is not None:
        _check_path(weights, "trained encoders of the library are encoder_weights='imagenet'")
    if "num_classes" in options:
        options["classes"] = options.pop("num_classes")
    # Its builder swallows unknown keywords, and fetches the encoder's weights unless told not to.
    check_options(f"smp:{name}", smp.MODEL_ARCHITECTURES_MAPPING[name], options)
    network: nn.Module = smp.create_model(name, **{"encoder_weights": None, **options})
    if weights is not None:
        load_weights(network, weights)
    return network


def _create_transformers(
    library: str,
    name: str,
    number: int | None,
    weights: str | Path | None,
    options: dict[str, object],
) -> nn.Module:
    if weights is not None:
        _check_path(weights, "published weights are read by transformers' own from_pretrained")
    network = create_of_family(library, name, number, options)
    if weights is not None:
        load_weights(network, weights)
    return network


def _unknown_elsewhere(
    library: str, name: str, names: Iterable[str], listing: str
) -> UnknownNameError:
    close = difflib.get_close_matches(name.lower(), sorted(names), n=3, cutoff=0.5)
    prefixed = " or ".join(repr(f"{library}:{c}") for c in close)
    hint = f" Did you mean {prefixed}?" if close else ""
    return UnknownNameError(
        f"{library} has no network {name!r}.{hint} All of its names: `{listing}`."
    )


def _check_path(weights: str | Path, otherwise: str) -> None:
    if not Path(weights).is_file():
        raise WeightsError(
            f"There is no file of weights at {str(weights)!r}. Expected the path of a .safetensors "
            f"or torch file; {otherwise}."
        )


def _call(what: str, build: Callable[..., nn.Module], **options: object) -> nn.Module:
    try:
        return build(**options)
    except ValueError as error:
        # torchvision's answer to a class count that its published weights do not have.
        if "num_classes" not in str(error):
            raise
        raise OptionError(
            f"{what} with published weights: {error} Pass new_head=True, which leaves its last "
            "layer untrained."
        ) from error
    except TypeError as error:
        got = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if got is None or got[1] not in options:
            raise
        raise OptionError(f"{what} has no option {got[1]!r}.") from error
