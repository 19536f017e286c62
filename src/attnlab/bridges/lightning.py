"""Lightning callbacks: stiffness and gates while a `Trainer` trains.

`lightning` and `pytorch_lightning` each have their own callbacks; the one that is imported is used.
"""

from __future__ import annotations

import sys

from attnlab.bridges.probe import Inputs, Probe, StiffnessProbe, StripeProbe

if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback, LightningModule, Trainer
else:
    from lightning.pytorch import Callback, LightningModule, Trainer


class LightningProbe(Callback):  # type: ignore[misc]
    """Logs what a probe finds, before the first step and then as often as it says."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe

    @property
    def history(self) -> list[dict[str, float]]:
        """All records that the probe has made."""
        return self.probe.history

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._measure(trainer, pl_module)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: object) -> None:
        self._measure(trainer, pl_module)

    def _measure(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero:  # others go on; nothing here waits for them
            return
        found = self.probe.at(pl_module, trainer.global_step)
        if found:
            for logger in trainer.loggers:
                logger.log_metrics(found, step=trainer.global_step)


class LightningStiffness(LightningProbe):
    """`Trainer(callbacks=[LightningStiffness(images, of="model")])`: TNS and NSI per step."""

    def __init__(self, inputs: Inputs, every: int = 100, of: str = "") -> None:
        super().__init__(StiffnessProbe(inputs, every, of))


class LightningStripe(LightningProbe):
    """Log the gates while it trains: how much they differ between images and between channels."""

    def __init__(self, inputs: Inputs, every: int = 100, of: str = "") -> None:
        super().__init__(StripeProbe(inputs, every, of))
