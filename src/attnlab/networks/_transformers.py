"""Causal networks of transformers, by the name of their family and the settings of their
configuration; random weights, and nothing is fetched."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from attnlab._errors import OptionError, nearest, unknown_name
from attnlab._extras import needs


def causal_families() -> tuple[str, ...]:
    """The names that "transformers:NAME" can have: those of `AutoModelForCausalLM`."""
    with needs("huggingface"):
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def create_causal(name: str, vocabulary: int | None, options: Mapping[str, object]) -> nn.Module:
    """The network of the family `name`, its configuration as by default but for `options`."""
    if name not in causal_families():
        raise unknown_name("causal network of transformers", name, causal_families())
    from transformers import AutoConfig, AutoModelForCausalLM

    # The configuration keeps every keyword, also a misspelt one, without a word.
    known = AutoConfig.for_model(name).to_dict()
    for option in options:
        if option not in known:
            raise OptionError(
                f"The configuration of transformers:{name} has no setting {option!r}."
                f"{nearest(option, known)}"
            )
    sizes = {} if vocabulary is None else {"vocab_size": vocabulary}
    # Ids of special tokens lie beyond a small vocabulary, and a padding id would zero a row.
    special = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
    network = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(name, **{**special, **sizes, **options})
    )
    # In training and measurements keys and values are used once; `generate` has its own setting.
    network.config.use_cache = False
    built: nn.Module = network
    return built
