"""attnlab: attention as step size.

Put attention into any network with residual steps, vision or language, measure what it does to the
network's feature trajectory, and fold it away when it turned out to be constant.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnlab import bridges as bridges
    from attnlab import data as data
    from attnlab import evolution as evolution
    from attnlab import gates as gates
    from attnlab import instruments as instruments
    from attnlab import lab as lab
    from attnlab import networks as networks
    from attnlab import page as page
    from attnlab import residuals as residuals
    from attnlab import results as results
    from attnlab import subject as subject
    from attnlab import surgery as surgery
    from attnlab import tasks as tasks
    from attnlab import testing as testing
    from attnlab._errors import AttnlabError as AttnlabError
    from attnlab.instruments import dynamics as dynamics
    from attnlab.instruments.forms.measure import describe_steps as describe_steps
    from attnlab.instruments.maps.measure import maps as maps
    from attnlab.instruments.noise.measure import noise_response as noise_response
    from attnlab.instruments.place.measure import place as place
    from attnlab.instruments.removal.shorten import shorten as shorten
    from attnlab.instruments.stiffness.capture import capture as capture
    from attnlab.instruments.stiffness.measure import stiffness as stiffness
    from attnlab.instruments.stripe.measure import stripe as stripe
    from attnlab.instruments.trajectory.measure import trajectory as trajectory
    from attnlab.lab.comparison.compare import compare as compare
    from attnlab.lab.pages.write import report as report
    from attnlab.networks.checkpoint import load as load
    from attnlab.networks.checkpoint import save as save
    from attnlab.networks.create import create as create
    from attnlab.residuals.site import Site as Site
    from attnlab.residuals.steps import Step as Step
    from attnlab.residuals.steps import steps as steps
    from attnlab.subject import Subject as Subject
    from attnlab.subject import open as open  # noqa: A004
    from attnlab.surgery.folding.fold import fold as fold
    from attnlab.surgery.folding.fold import fold_budget as fold_budget
    from attnlab.surgery.folding.fold import fold_constants as fold_constants
    from attnlab.surgery.folding.fuse import fuse as fuse
    from attnlab.surgery.insertion.host import remove as remove
    from attnlab.surgery.insertion.insert import insert as insert
    from attnlab.surgery.receipt import Receipt as Receipt
    from attnlab.timing import latency as latency

__version__ = "0.2.0"

# Imported when first used, so that `attnlab --help` need not wait for torch. Functions are verbs
# and rooms are nouns: no file or folder here has a function's name, which importing it would hide.
_NAMES = {
    "AttnlabError": "attnlab._errors",
    "load": "attnlab.networks.checkpoint",
    "save": "attnlab.networks.checkpoint",
    "compare": "attnlab.lab.comparison.compare",
    "create": "attnlab.networks.create",
    "fold": "attnlab.surgery.folding.fold",
    "fold_budget": "attnlab.surgery.folding.fold",
    "fold_constants": "attnlab.surgery.folding.fold",
    "fuse": "attnlab.surgery.folding.fuse",
    "Receipt": "attnlab.surgery.receipt",
    "Site": "attnlab.residuals.site",
    "Step": "attnlab.residuals.steps",
    "Subject": "attnlab.subject",
    "open": "attnlab.subject",
    "insert": "attnlab.surgery.insertion.insert",
    "remove": "attnlab.surgery.insertion.host",
    "steps": "attnlab.residuals.steps",
    "latency": "attnlab.timing",
    "describe_steps": "attnlab.instruments.forms.measure",
    "maps": "attnlab.instruments.maps.measure",
    "noise_response": "attnlab.instruments.noise.measure",
    "place": "attnlab.instruments.place.measure",
    "report": "attnlab.lab.pages.write",
    "shorten": "attnlab.instruments.removal.shorten",
    "stripe": "attnlab.instruments.stripe.measure",
    "capture": "attnlab.instruments.stiffness.capture",
    "stiffness": "attnlab.instruments.stiffness.measure",
    "trajectory": "attnlab.instruments.trajectory.measure",
}
_ROOMS = {
    "bridges": "attnlab.bridges",
    "data": "attnlab.data",
    "dynamics": "attnlab.instruments.dynamics",
    "evolution": "attnlab.evolution",
    "gates": "attnlab.gates",
    "instruments": "attnlab.instruments",
    "lab": "attnlab.lab",
    "networks": "attnlab.networks",
    "page": "attnlab.page",
    "residuals": "attnlab.residuals",
    "results": "attnlab.results",
    "subject": "attnlab.subject",
    "surgery": "attnlab.surgery",
    "tasks": "attnlab.tasks",
    "testing": "attnlab.testing",
}


def __getattr__(name: str) -> object:
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    if name in _ROOMS:
        return import_module(_ROOMS[name])
    raise AttributeError(f"attnlab has no {name!r}. It has: {', '.join(__dir__())}.")


def __dir__() -> list[str]:
    return sorted((*_NAMES, *_ROOMS, "__version__"))
