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
from attnlab.residuals.example import evaluating, example_input


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
        if isinstance(value, list) and len(value) == count:  # layer_types and its like
            setattr(config, name, [each for i, each in enumerate(value) if i not in gone])
        elif _are_numbers_of_layers(name, value, count):
            stays = [i for i in range(count) if i not in gone]
            setattr(config, name, [stays.index(i) for i in value if i in stays])
    plain: nn.Module = own_class(network)(config)
    parameter = next(network.parameters())
    plain.to(parameter.device, parameter.dtype).train(network.training)
    try:
        plain.load_state_dict(_renumbered(network.state_dict(), layers, gone))
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise _refused(network, f"a network of fewer layers has other weights: {reason}") from error
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
        nearest = f" (the nearest whole layer: remove=[{around[1]!r}])" if around else ""
        raise _refused(
            network, f"{first!r} is only a part of a layer, or not one of a list{nearest}"
        )
    return lists.pop(), {int(name.rpartition(".")[2]) for name in replaced}


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
            if getattr(each, "main_input_name", "") == "pixel_values":
                output: Any = each(example_input(each))
            else:
                inputs: Any = getattr(each, "dummy_inputs", {})
                output = each(**inputs)
        answers.append(output[0])
    return torch.equal(answers[0], answers[1])


def _refused(network: nn.Module, reason: str) -> SiteError:
    name = type(network).__name__
    return SiteError(
        f"save_pretrained would write a folder from which {name}.from_pretrained builds another "
        f"network, with the steps that were removed at random weights, and no plain {name} says "
        f"what this one is: {reason}. Remove whole layers, or save it with attnlab.save and a "
        f"description of the network."
    )
