"""The residual steps of a network: one recorded run, the steps and sites found in it, and the one
way to watch them."""

from attnlab.residuals.attachment import Attachment as Attachment
from attnlab.residuals.choose import find_sites as find_sites
from attnlab.residuals.gates import GateSource as GateSource
from attnlab.residuals.site import Site as Site
from attnlab.residuals.step import Step as Step
from attnlab.residuals.step import StepKey as StepKey
from attnlab.residuals.watching import Observer as Observer
from attnlab.residuals.watching import SeenGate as SeenGate
from attnlab.residuals.watching import SeenStep as SeenStep
from attnlab.residuals.watching import Watchable as Watchable
from attnlab.residuals.watching import watchable as watchable
