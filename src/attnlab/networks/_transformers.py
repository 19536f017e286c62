"""Networks of transformers: language models, causal ones and encoders, and networks with a class
for every pixel, by the name of their family and the settings of their configuration; random
weights, and nothing is fetched."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from attnlab._errors import InputError, OptionError, nearest, unknown_name
from attnlab._extras import needs

if TYPE_CHECKING:
    from transformers import PretrainedConfig


MASKED = "transformers-masked"
"""The library of encoders that guess hidden tokens."""


def causal_families() -> tuple[str, ...]:
    """The names that "transformers:NAME" can have: those of `AutoModelForCausalLM`."""
    with needs("huggingface"):
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def masked_families() -> tuple[str, ...]:
    """The names that "transformers-masked:NAME" can have: those of `AutoModelForMaskedLM`."""
    with needs("huggingface"):
        from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    return tuple(MODEL_FOR_MASKED_LM_MAPPING_NAMES)


def pixel_families() -> tuple[str, ...]:
    """The names of networks with a class for every pixel: those of
    `AutoModelForSemanticSegmentation`."""
    with needs("huggingface"):
        from transformers.models.auto.modeling_auto import (
            MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES as NAMES,
        )

    return tuple(NAMES)


def check_family(library: str, name: str) -> None:
    """Refuse a family that "transformers" or "transformers-masked" does not have."""
    if library == MASKED:
        if name not in masked_families():
            raise unknown_name("masked network of transformers", name, masked_families())
        return
    found = (*causal_families(), *pixel_families())
    if name not in found:
        raise unknown_name("network of transformers", name, found)


def create_of_family(
    library: str, name: str, number: int | None, options: Mapping[str, object]
) -> nn.Module:
    """The network of the family `name`, its configuration as by default but for `options`; `number`
    of tokens, or of classes."""
    given = _settings(library, name, options)
    if library == MASKED or name in causal_families():
        return _create_language_model(library, name, number, given)
    return _create_of_pixels(library, name, number, given)


def _create_language_model(
    library: str, name: str, vocabulary: int | None, given: Mapping[str, object]
) -> nn.Module:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    made = AutoModelForMaskedLM if library == MASKED else AutoModelForCausalLM
    sizes = {} if vocabulary is None else {"vocab_size": vocabulary}
    # Ids of special tokens lie beyond a small vocabulary, and a padding id would zero a row.
    special = dict.fromkeys(f"{kind}_token_id" for kind in ("pad", "bos", "eos", "cls", "sep"))
    config = AutoConfig.for_model(name, **{**special, **sizes, **given})
    _check_memory(f"{library}:{name}", config, made)
    network = made.from_config(config)
    # In training and measurements keys and values are used once; `generate` has its own setting.
    network.config.use_cache = False
    built: nn.Module = network
    return built


def _create_of_pixels(
    library: str, name: str, classes: int | None, given: Mapping[str, object]
) -> nn.Module:
    from transformers import AutoConfig, AutoModelForSemanticSegmentation

    labels = {} if classes is None else {"num_labels": classes}
    # A second head answers only beside the library's own loss, so here nothing would train it.
    has_second = "use_auxiliary_head" in AutoConfig.for_model(name).to_dict()
    second = {"use_auxiliary_head": False} if has_second else {}
    config = AutoConfig.for_model(name, **{**second, **labels, **given})
    _check_memory(f"{library}:{name}", config, AutoModelForSemanticSegmentation)
    built: nn.Module = AutoModelForSemanticSegmentation.from_config(config)
    return built


def _settings(library: str, name: str, options: Mapping[str, object]) -> dict[str, Any]:
    """Settings for the configuration. It keeps every keyword, also a misspelt one, without a word,
    so they are looked up. `backbone_config.depths` is one of the configuration inside."""
    from transformers import AutoConfig

    known = AutoConfig.for_model(name).to_dict()
    found: dict[str, Any] = {}
    for option, value in options.items():
        part, dot, below = option.partition(".")
        table = known.get(part) if dot else known
        names = {f"{part}.{each}": each for each in table} if dot and _is_table(table) else known
        if option not in names:
            raise OptionError(
                f"The configuration of {library}:{name} has no setting {option!r}."
                f"{nearest(option, names)}"
            )
        if dot:
            kept = {each: table[each] for each in ("model_type", "out_features") if each in table}
            found.setdefault(part, kept)[below] = _listed(value, table[below])
        else:
            found[option] = _listed(value, known[option])
    return found


def _is_table(found: object) -> bool:
    return isinstance(found, dict)


def _listed(value: object, default: object) -> object:
    """A setting that is a list, given as text: "8, 16" is [8, 16], since an option of a study is
    one value."""
    if not isinstance(value, str) or not isinstance(default, list | tuple):
        return value
    return [_number(word.strip()) for word in value.split(",")]


def _number(word: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def _check_memory(name: str, config: PretrainedConfig, made: Any) -> None:
    """A family's own sizes are those of its published networks, up to hundreds of gigabytes: a
    machine that begins to fill its memory with them answers nobody any more."""
    there = physical_memory()
    if there is None or torch.get_default_device().type != "cpu":
        return
    try:
        with torch.device("meta"):
            network: nn.Module = made.from_config(config)
    except (
        Exception
    ):  # settings that do not fit each other: building says so, where it is asked for
        return
    tensors = (*network.parameters(), *network.buffers())
    needed = sum(tensor.nbytes for tensor in tensors)
    if needed > there:
        raise InputError(
            f"{name} needs {needed / 1e9:,.0f} GB for its weights, and this machine "
            f"has {there / 1e9:,.0f} GB. Make it smaller by settings of its configuration, "
            f'in Python, such as attnlab.create("{name}", num_hidden_layers=2).'
        )


def physical_memory() -> int | None:
    """The bytes of memory of this machine; None where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None
