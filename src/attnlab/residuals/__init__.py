"""The residual steps of a network: one recorded run, the steps and sites found in it, and the one
way to watch them."""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on

if TYPE_CHECKING:
    from attnlab.residuals.attachment import Attachment as Attachment
    from attnlab.residuals.choose import find_sites as find_sites
    from attnlab.residuals.form import Multiplier as Multiplier
    from attnlab.residuals.form import ProductKey as ProductKey
    from attnlab.residuals.form import StepForm as StepForm
    from attnlab.residuals.gates import GateSource as GateSource
    from attnlab.residuals.site import Site as Site
    from attnlab.residuals.steps import Step as Step
    from attnlab.residuals.steps import StepKey as StepKey
    from attnlab.residuals.watching import Observer as Observer
    from attnlab.residuals.watching import SeenGate as SeenGate
    from attnlab.residuals.watching import SeenStep as SeenStep
    from attnlab.residuals.watching import Watchable as Watchable
    from attnlab.residuals.watching import watchable as watchable

__getattr__, __dir__ = handed_on(
    __name__,
    attachment=("Attachment",),
    choose=("find_sites",),
    form=("Multiplier", "ProductKey", "StepForm"),
    gates=("GateSource",),
    site=("Site",),
    steps=("Step", "StepKey"),
    watching=("Observer", "SeenGate", "SeenStep", "Watchable", "watchable"),
)
