"""Callbacks for the Hugging Face `Trainer`, stiffness and gates while it trains, and
`from_pretrained` for folders of networks with gates."""

from __future__ import annotations

from torch import nn
from transformers import (
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from attnlab.bridges.probe import Inputs, Probe, StiffnessProbe, StripeProbe
from attnlab.networks.checkpoint.pretrained import load_pretrained

from_pretrained = load_pretrained
"""`from_pretrained(folder, TheClass)`: as `attnlab.load(folder)`, also for classes of your own."""


class HuggingFaceProbe(TrainerCallback):  # type: ignore[misc]
    """Adds what a probe finds to the trainer's `log_history`, which trainer_state.json holds, and
    hands it to the trackers with the next line that is logged."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self._latest: dict[str, float] = {}

    @property
    def history(self) -> list[dict[str, float]]:
        """All records that the probe has made."""
        return self.probe.history

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        model: nn.Module,
        **_: object,
    ) -> None:
        del args, control
        self._measure(state, model)

    on_train_begin = on_step_end

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: object,
    ) -> None:
        del args, state, control
        if logs is not None:
            logs.update(self._latest)
            self._latest = {}

    def _measure(self, state: TrainerState, model: nn.Module) -> None:
        if not state.is_world_process_zero:
            return
        found = self.probe.at(model, state.global_step)
        if found:
            state.log_history.append({"step": state.global_step, **found})
            self._latest = found


class HuggingFaceStiffness(HuggingFaceProbe):
    """`Trainer(callbacks=[HuggingFaceStiffness(batch)])`: TNS and NSI per step."""

    def __init__(self, inputs: Inputs, every: int = 100, of: str = "") -> None:
        super().__init__(StiffnessProbe(inputs, every, of))


class HuggingFaceStripe(HuggingFaceProbe):
    """Measure the gates while it trains: how much they differ between inputs and between
    channels."""

    def __init__(self, inputs: Inputs, every: int = 100, of: str = "") -> None:
        super().__init__(StripeProbe(inputs, every, of))
