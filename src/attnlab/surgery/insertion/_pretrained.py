"""Hugging Face: a folder from which `from_pretrained` would build the network without its gates."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import nn

from attnlab._errors import SiteError
from attnlab.surgery.insertion._hosted import hosted_by


def loud_saving(save: Callable[..., Any]) -> Callable[..., Any]:
    """`save_pretrained`, which a network with gates refuses."""

    @functools.wraps(save)
    def save_pretrained(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if hosted_by(self) is not None:
            _check(self)
        return save(self, *args, **kwargs)

    return save_pretrained


def _check(network: nn.Module) -> None:
    configuration: Any = getattr(network, "config", None)
    if getattr(configuration, "attnlab", None):
        return
    raise SiteError(
        f"save_pretrained would write a folder from which {type(network).__name__}.from_pretrained "
        f"builds the network without its gates. Save all its weights instead, "
        f"torch.save(network.state_dict(), file), and load them into a network with the same "
        f"gates: attnlab.insert, then load_state_dict. Constant gates can be folded first: "
        f"attnlab.fold(network). A training loop that resumes with the gated network may write "
        f"its folders: network.config.attnlab = True."
    )
