"""Callbacks for the Hugging Face `Trainer`: stiffness and gates while it trains."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from attnlab.bridges.probe import Probe, StiffnessProbe, StripeProbe


class ProbeCallback(TrainerCallback):  # type: ignore[misc]
    """Adds what a probe finds to the trainer's `log_history`, which trainer_state.json holds, and
    hands it to the trackers with the next line that is logged."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self._latest: dict[str, float] = {}

    @property
    def history(self) -> list[dict[str, float]]:
        """All that was found."""
        return self.probe.history

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        del args, control
        self._measure(state, given["model"])

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        del args, control
        self._measure(state, given["model"])

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **given: Any) -> None:
        del args, state, control, given
        if logs is not None:
            logs.update(self._latest)
            self._latest = {}

    def _measure(self, state: Any, model: Any) -> None:
        if not state.is_world_process_zero:
            return
        found = self.probe.at(model, state.global_step)
        if found:
            state.log_history.append({"step": state.global_step, **found})
            self._latest = found


class StiffnessCallback(ProbeCallback):
    """`Trainer(callbacks=[StiffnessCallback(batch)])`: TNS and NSI per step."""

    def __init__(self, inputs: Any, every: int = 100, of: str = "") -> None:
        super().__init__(StiffnessProbe(inputs, every, of))


class StripeCallback(ProbeCallback):
    """The same for gates: how much they differ between inputs, and between channels."""

    def __init__(self, inputs: Any, every: int = 100, of: str = "") -> None:
        super().__init__(StripeProbe(inputs, every, of))
