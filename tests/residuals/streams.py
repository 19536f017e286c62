"""Tiny networks of transformers whose state has several streams, or whose steps have gates."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def tokens(batch: int = 2, length: int = 8) -> dict[str, Tensor]:
    """Token numbers for all of them."""
    numbers = torch.randint(1, 90, (batch, length), generator=torch.Generator().manual_seed(3))
    return {"input_ids": numbers}


def stirred(model: nn.Module) -> nn.Module:
    """The network with weights that leave no gate and no matrix at what it starts from."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.1 * noise.to(parameter.dtype))
    return model.eval()


_TEXT = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "moe_intermediate_size": 16,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": False,
}


def qwen4_exp() -> nn.Module:
    """Two streams that lie in the channels, gated residuals, a mixture of experts."""
    import transformers
    from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpTextConfig

    config = Qwen4ExpTextConfig(
        **_TEXT,
        experts_implementation="eager",
        shared_expert_intermediate_size=16,
        hc_count=2,
        hc_lowrank=4,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        indexer_n_heads=2,
        indexer_kv_heads=1,
        indexer_head_dim=8,
        indexer_budget=8,
        indexer_compress_ratio=2,
        layer_types=["linear_attention", "full_attention"],
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 1e4,
            "mrope_section": [2, 1, 1],
            "partial_rotary_factor": 1.0,
        },
    )
    return stirred(transformers.Qwen4ExpForCausalLM(config))


def glm5_next() -> nn.Module:
    """Four streams that a matrix mixes; a mixture of experts in the second layer."""
    from transformers.models.glm5_next.configuration_glm5_next import Glm5NextTextConfig
    from transformers.models.glm5_next.modeling_glm5_next import Glm5NextTextModel

    text = {k: v for k, v in _TEXT.items() if k not in ("num_experts", "head_dim")}
    config = Glm5NextTextConfig(
        **(text | {"num_key_value_heads": 4}),
        experts_implementation="eager",  # the grouped products of torch take no float64
        intermediate_size=48,
        n_routed_experts=4,
        kv_lora_rank=8,
        q_lora_rank=16,
        v_head_dim=8,
        qk_nope_head_dim=8,
        linear_head_dim=8,
        linear_num_heads=4,
        index_head_dim=8,
        index_n_heads=2,
        index_topk=8,
        index_kpool=4,
        layer_types=["linear_attention", "full_attention"],
        mlp_layer_types=["dense", "sparse"],
    )
    return stirred(Glm5NextTextModel(config))


_COMPUTED = dict.fromkeys(("deepseek_v4", "hy_v4", "minicpm3"), ("head_dim", "num_experts"))
"""Settings that follow from others."""


def tiny(family: str, **settings: object) -> nn.Module:
    """A small causal network of this family."""
    import transformers

    known = transformers.AutoConfig.for_model(family)
    text = {
        k: v for k, v in _TEXT.items() if hasattr(known, k) and k not in _COMPUTED.get(family, ())
    }
    chosen = text | {"intermediate_size": 48, "experts_implementation": "eager"} | settings
    config = transformers.AutoConfig.for_model(family, **chosen)
    return stirred(transformers.AutoModelForCausalLM.from_config(config))


def qwen3_next() -> nn.Module:
    """Gated attention in the second layer, a mixture of experts with a gated shared one."""
    return tiny(
        "qwen3_next",
        shared_expert_intermediate_size=16,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        layer_types=["linear_attention", "full_attention"],
    )


LATENT = {
    "n_routed_experts": 4,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "index_n_heads": 2,
    "index_head_dim": 16,
    "index_topk": 4,
}


def deepseek_v4() -> nn.Module:
    """Four streams that a matrix mixes, a mixture of experts in every layer."""
    return tiny("deepseek_v4", **LATENT, o_lora_rank=16, o_groups=2, sliding_window=8)


HEADS = {"kv_lora_rank": 16, "qk_nope_head_dim": 8, "v_head_dim": 8}


def hy_v4() -> nn.Module:
    """Four streams that go on as they are, gated attention."""
    return tiny("hy_v4", **LATENT, **HEADS, n_group=1, topk_group=1)


def minicpm3(**settings: object) -> nn.Module:
    """A constant factor on every branch."""
    latent = {"q_lora_rank": 16, "qk_rope_head_dim": 8, "num_key_value_heads": 4}
    return tiny("minicpm3", **latent, **HEADS, **settings)
