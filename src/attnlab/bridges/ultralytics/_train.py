"""Training with gates: whatever weights it begins with, the trainer's network has the gates of the
network that it was asked to train.

With `pretrained=False`, or with the weights of a file, a trainer builds the network from its YAML
and never sees the gates. They go into the new network with the values that they had at insertion,
before it is handed on to other processes and before the optimizer is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from attnlab._errors import GateLostError
from attnlab._files import write_whole
from attnlab.bridges.ultralytics._transplant import check_same_gates, gates_of, transplant_anew

if TYPE_CHECKING:
    from ultralytics.engine.model import Model
    from ultralytics.engine.trainer import BaseTrainer

Method = Callable[..., object]
"""A method of Ultralytics, as it is or with gates."""
_asked: ContextVar[nn.Module | None] = ContextVar(
    "the network that is asked to train", default=None
)
_LOOKED = "_attnlab_looked"


def trains(train: Method) -> Method:
    """Return their `Model.train`: its trainers learn which network was asked to train."""

    @wraps(train)
    def train_with_gates(self: Model, *args: object, **kwargs: object) -> object:
        network = self.model
        with _asked_to_train(network):
            result = train(self, *args, **kwargs)
        if gates_of(network) and not gates_of(self.model) and not _resumes(self.trainer):
            raise GateLostError(
                f"The network had {len(gates_of(network))} gates, and what its training left has "
                f"none: {type(self.trainer).__name__} built another network on the way."
            )
        return result

    return train_with_gates


def starts(train: Method) -> Method:
    """Return their `BaseTrainer.train`: it may hand its network on to other processes."""

    @wraps(train)
    def train_from_gates(self: BaseTrainer) -> object:
        if isinstance(self.model, nn.Module):
            _give_gates(self, _asked.get())
        return train(self)

    return train_from_gates


def sets_up(setup_model: Method) -> Method:
    """Return their `BaseTrainer.setup_model`, where a trainer reads the network from a file."""

    @wraps(setup_model)
    def setup_with_gates(self: BaseTrainer) -> object:
        network = _asked.get()
        if network is None and not isinstance(self.model, nn.Module):
            network = _network_in_file(self)
        checkpoint = setup_model(self)
        _give_gates(self, network)
        setattr(self, _LOOKED, True)
        return checkpoint

    return setup_with_gates


def builds(build_pipeline: Method) -> Method:
    """Return their `BaseTrainer._build_train_pipeline`, which makes the optimizer: the last
    moment."""

    @wraps(build_pipeline)
    def build_with_gates(self: BaseTrainer) -> object:
        from ultralytics.utils import RANK
        from ultralytics.utils.torch_utils import unwrap_model

        network = unwrap_model(self.model)
        if not getattr(self, _LOOKED, False):  # reading the file has imported this, just now
            _check_not_lost(network, _network_in_file(self), self.args.model)
        kept = getattr(getattr(network, "student_model", network), "attention", None)
        if kept is not None and kept.receipt and RANK in {-1, 0}:
            write_whole(Path(self.save_dir) / "attention.txt", f"{kept.receipt}\n")
        return build_pipeline(self)

    return build_with_gates


@contextmanager
def _asked_to_train(network: object) -> Iterator[None]:
    token = _asked.set(network if isinstance(network, nn.Module) else None)
    try:
        yield
    finally:
        _asked.reset(token)


def _give_gates(trainer: BaseTrainer, network: nn.Module | None) -> None:
    """Let the network that `trainer` built have the gates of `network`."""
    from ultralytics.utils import LOGGER

    wanted = gates_of(network)
    if not wanted or network is trainer.model or _resumes(trainer):
        return
    if gates_of(trainer.model):
        check_same_gates(network, trainer.model)
        return
    transplant_anew(network, trainer.model)
    LOGGER.info(
        f"attnlab: pretrained={trainer.args.pretrained}, so the {len(wanted)} gates begin with the "
        f"values that they had at insertion"
    )


def _network_in_file(trainer: BaseTrainer) -> nn.Module | None:
    """The network in the file that `trainer` trains, if it does not begin with its weights."""
    from ultralytics.nn.tasks import load_checkpoint

    file, pretrained = str(trainer.args.model), trainer.args.pretrained
    begins_with_it = pretrained is not False and not isinstance(pretrained, str | Path)
    if not file.lower().endswith(".pt") or begins_with_it or _resumes(trainer):
        return None
    network: nn.Module = load_checkpoint(file)[0]
    return network


def _check_not_lost(network: nn.Module, asked: nn.Module | None, file: object) -> None:
    if gates_of(asked) and not gates_of(network):
        raise GateLostError(
            f"{file} has {len(gates_of(asked))} gates, and its trainer has built a network without "
            f"them: it was told to leave the weights, before it had read that there are gates. Put "
            f'"import attnlab.bridges.ultralytics" above the trainer.'
        )


def _resumes(trainer: BaseTrainer) -> bool:
    return bool(getattr(trainer, "resume", False))
