"""Language models of transformers, causal ones and encoders, by the name of their family and the
settings of their configuration; random weights, and nothing is fetched."""

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


def check_family(library: str, name: str) -> None:
    """Refuse a family that "transformers" or "transformers-masked" does not have."""
    masked = library == MASKED
    kind = "masked" if masked else "causal"
    found = masked_families() if masked else causal_families()
    if name not in found:
        raise unknown_name(f"{kind} network of transformers", name, found)


def create_language_model(
    library: str, name: str, vocabulary: int | None, options: Mapping[str, object]
) -> nn.Module:
    """The network of the family `name`, its configuration as by default but for `options`."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    made = AutoModelForMaskedLM if library == MASKED else AutoModelForCausalLM
    # The configuration keeps every keyword, also a misspelt one, without a word.
    known = AutoConfig.for_model(name).to_dict()
    for option in options:
        if option not in known:
            raise OptionError(
                f"The configuration of {library}:{name} has no setting {option!r}."
                f"{nearest(option, known)}"
            )
    sizes = {} if vocabulary is None else {"vocab_size": vocabulary}
    # Ids of special tokens lie beyond a small vocabulary, and a padding id would zero a row.
    special = dict.fromkeys(f"{kind}_token_id" for kind in ("pad", "bos", "eos", "cls", "sep"))
    config = AutoConfig.for_model(name, **{**special, **sizes, **options})
    _check_memory(f"{library}:{name}", config, made)
    network = made.from_config(config)
    # In training and measurements keys and values are used once; `generate` has its own setting.
    network.config.use_cache = False
    built: nn.Module = network
    return built


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
