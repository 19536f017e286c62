"""A network of Hugging Face without some of its layers, as the plain network of fewer layers that
it is: what its own `from_pretrained` can read."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attnlab._errors import SiteError
from attnlab.residuals.classes import own_class
from attnlab.residuals.example import Example, call, evaluating, example_input
from attnlab.residuals.watching import Observer, SeenStep, watching


def shorter_network(network: nn.Module, replaced: Mapping[str, str]) -> nn.Module:
    """The plain network of as many layers as are left; an error where its architecture has no words
    for that, or where it would answer otherwise."""
    layers, gone = _layers(network, replaced)
    count = len(list(network.get_submodule(layers).children()))
    config: Any = copy.deepcopy(network.config)
    if getattr(config, "num_hidden_layers", None) != count:
        raise _refused(network, f"its configuration has no number for the {count} of {layers!r}")
    config.num_hidden_layers = count - len(gone)
    for name, value in vars(config).items():
        if _has_one_per_layer(name, value, count):
            setattr(config, name, [each for i, each in enumerate(value) if i not in gone])
        elif _are_numbers_of_layers(name, value, count):
            stays = [i for i in range(count) if i not in gone]
            setattr(config, name, [stays.index(i) for i in value if i in stays])
    plain: nn.Module = own_class(network)(config)
    plain.train(network.training)
    _give_types(plain, _renumbered(_tensors(network), layers, gone))
    try:
        plain.load_state_dict(_renumbered(network.state_dict(), layers, gone))
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise _refused(network, f"a network of fewer layers has other weights: {reason}") from error
    if hasattr(network, "generation_config"):  # sampling, ends, penalties: a file of their own
        plain.generation_config = copy.deepcopy(network.generation_config)
    _check_settings(network, plain, layers, gone)
    if not _same_answers(network, plain):
        raise _refused(network, "the network of fewer layers answers otherwise")
    return plain


def check_own_weights(network: nn.Module, given: Mapping[str, Tensor] | None) -> None:
    """Refuse weights given by hand that are not those of `network`: they would not be written."""
    if given is None:
        return
    own = network.state_dict()
    if given.keys() != own.keys() or not all(
        torch.equal(own[name].cpu(), given[name].cpu()) for name in own
    ):
        raise SiteError(
            f"save_pretrained of {type(network).__name__}, from which steps were removed, writes "
            f"the network's own weights, and was given others as state_dict=. Load them first, "
            f"network.load_state_dict(...), and leave state_dict= out."
        )


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    return dict([*network.named_parameters(), *network.named_buffers()])


def _give_types(plain: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Let each tensor of `plain` have the type and device that it has in the network: of one in
    bfloat16, transformers keeps rotary frequencies, routers and states in float32."""
    for prefix, module in plain.named_modules():
        for name, own in [*module._parameters.items(), *module._buffers.items()]:
            there = tensors.get(f"{prefix}.{name}".lstrip("."))
            if own is not None and there is not None:
                own.data = own.data.to(there.device, there.dtype)


def _has_one_per_layer(name: str, value: object, count: int) -> bool:
    """Whether a setting lists something for each layer, as `layer_types`. The numbers of several
    tokens that end a text may be as many as the layers are."""
    return isinstance(value, list) and len(value) == count and "token" not in name


def _are_numbers_of_layers(name: str, value: object, count: int) -> bool:
    """Whether a setting lists layers by their numbers: `mlp_only_layers`, `attn_layer_indices`."""
    return (
        isinstance(value, list)
        and re.search("layer|idx|indices", name) is not None
        and len(value) > 0
        and all(type(each) is int and 0 <= each < count for each in value)
        and value == sorted(set(value))
    )


def _check_settings(network: nn.Module, plain: nn.Module, layers: str, gone: set[int]) -> None:
    """Refuse if a layer that stays has other settings in the plain network: a sliding window that
    every second layer has shows on long inputs only, which the comparison of answers has not."""
    stays = [i for i in range(len(gone) + _number(plain, layers)) if i not in gone]
    for new, old in enumerate(stays):
        there = plain.get_submodule(f"{layers}.{new}")
        for name, module in network.get_submodule(f"{layers}.{old}").named_modules():
            after = _settings(there.get_submodule(name))
            for setting, value in _settings(module).items():
                if (
                    setting in after
                    and after[setting] != value
                    and (value, after[setting])
                    != (
                        old,
                        new,
                    )
                ):
                    where = f"{layers}.{old}.{name}".rstrip(".")
                    raise _refused(
                        network,
                        f"in the network of fewer layers, {setting} of {where!r} would be "
                        f"{after[setting]!r} and not {value!r}",
                    )


def _number(network: nn.Module, layers: str) -> int:
    return len(list(network.get_submodule(layers).children()))


def _settings(module: nn.Module) -> dict[str, object]:
    """What a module was told of itself: numbers, words and switches."""
    plain = (bool, int, float, str, type(None))
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, plain) and name != "training" and not name.startswith("__")
    }


def _layers(network: nn.Module, replaced: Mapping[str, str]) -> tuple[str, set[int]]:
    """The list of layers, and the numbers of those that are gone."""
    lists = {name.rpartition(".")[0] for name in replaced}
    whole = all(
        re.fullmatch(r"identity(:\d)?", word) and name.rpartition(".")[2].isdigit()
        for name, word in replaced.items()
    )
    if not whole or len(lists) != 1:
        first = next(iter(replaced))
        around = re.match(r"(.*\.\d+)\.", first)
        if around and not _takes_steps(network, around[1]):
            raise _refused(
                network,
                f"other layers read more of {around[1]!r} than its state, so that modules of it "
                f"stayed",
            )
        nearest = f" (the nearest whole layer: remove=[{around[1]!r}])" if around else ""
        raise _refused(
            network, f"{first!r} is only a part of a layer, or not one of a list{nearest}"
        )
    return lists.pop(), {int(name.rpartition(".")[2]) for name in replaced}


def _takes_steps(network: nn.Module, layer: str) -> bool:
    """Whether a layer of which parts are gone still adds anything but zeros to its state."""
    example, added = _inputs(network), _Added(layer)
    with evaluating(network), watching(network, added, example):
        call(network, example)
    return added.anything


class _Added(Observer):
    """Notes whether a step of a layer adds anything."""

    def __init__(self, layer: str) -> None:
        self.layer = layer
        self.anything = False

    def step_seen(self, seen: SeenStep) -> None:
        own = f"{seen.step.owner}.".startswith(f"{self.layer}.")
        self.anything |= own and bool(seen.branch.any())


def _renumbered(state: Mapping[str, Tensor], layers: str, gone: set[int]) -> dict[str, Tensor]:
    found = {}
    for name, tensor in state.items():
        match = re.match(rf"{re.escape(layers)}\.(\d+)\.", name)
        if match is None:
            found[name] = tensor
            continue
        number = int(match[1])
        if number not in gone:
            before = sum(each < number for each in gone)
            found[f"{layers}.{number - before}.{name[match.end() :]}"] = tensor
    return found


def _same_answers(network: nn.Module, plain: nn.Module) -> bool:
    """Whether both give the same answer, to the bit: they make the same calls."""
    answers = []
    for each in (network, plain):
        with evaluating(each):
            output: Any = call(each, _inputs(each))
        answers.append(output[0])
    return torch.equal(answers[0], answers[1])


def _inputs(network: nn.Module) -> Example:
    """What a network of transformers is tried on."""
    if getattr(network, "main_input_name", "") == "pixel_values":
        return example_input(network)
    return dict(getattr(network, "dummy_inputs", {}))


def _refused(network: nn.Module, reason: str) -> SiteError:
    name = type(network).__name__
    return SiteError(
        f"save_pretrained would write a folder from which {name}.from_pretrained builds another "
        f"network, with the steps that were removed at random weights, and no plain {name} says "
        f"what this one is: {reason}. Remove whole layers, or save it with attnlab.save and a "
        f"description of the network."
    )
