"""attnlab: attention as step size.

Put attention into any vision network, measure what it does to the network's feature trajectory, and
fold it away when it turned out to be constant.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnlab import attention as attention
    from attnlab import backbones as backbones
    from attnlab import checkpoint as checkpoint
    from attnlab import data as data
    from attnlab import dynamics as dynamics
    from attnlab import evolution as evolution
    from attnlab import measure as measure
    from attnlab import noise as noise
    from attnlab import statistics as statistics
    from attnlab import stored as stored
    from attnlab import study as study
    from attnlab import tasks as tasks
    from attnlab import testing as testing
    from attnlab import train as train
    from attnlab import trajectory as trajectory
    from attnlab._errors import AttnlabError as AttnlabError
    from attnlab.checkpoint import load as load
    from attnlab.checkpoint import save as save
    from attnlab.compare import compare as compare
    from attnlab.create import create as create
    from attnlab.fold import fold as fold
    from attnlab.insert import Receipt as Receipt
    from attnlab.insert import Site as Site
    from attnlab.insert import Step as Step
    from attnlab.insert import insert as insert
    from attnlab.insert import remove as remove
    from attnlab.insert import steps as steps
    from attnlab.latency import latency as latency
    from attnlab.place import place as place
    from attnlab.reporting import report as report
    from attnlab.shorten import shorten as shorten
    from attnlab.stripe import stripe as stripe
    from attnlab.trajectory import capture as capture
    from attnlab.trajectory import stiffness as stiffness

__version__ = "0.1.0"

_ROOMS = (
    "attention",
    "backbones",
    "checkpoint",
    "data",
    "dynamics",
    "evolution",
    "measure",
    "noise",
    "statistics",
    "stored",
    "study",
    "tasks",
    "testing",
    "train",
    "trajectory",
)


class _Public:
    """A public name, imported when first used, so that `attnlab --help` need not wait for torch.

    It is a data descriptor on the module's class: only that wins over the subpackage of the same
    name (`attnlab.insert`, `attnlab.fold`), which the import system binds to the package.
    """

    def __init__(self, module: str) -> None:
        self.module = module

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, package: ModuleType | None, owner: type) -> Any:
        return getattr(importlib.import_module(self.module), self.name)

    def __set__(self, package: ModuleType, value: object) -> None:
        if not isinstance(value, ModuleType):
            raise AttributeError(f"attnlab.{self.name} cannot be replaced.")


class _Package(ModuleType):
    AttnlabError = _Public("attnlab._errors")
    load = _Public("attnlab.checkpoint")
    save = _Public("attnlab.checkpoint")
    compare = _Public("attnlab.compare")
    create = _Public("attnlab.create")
    fold = _Public("attnlab.fold")
    Receipt = _Public("attnlab.insert")
    Site = _Public("attnlab.insert")
    Step = _Public("attnlab.insert")
    insert = _Public("attnlab.insert")
    remove = _Public("attnlab.insert")
    steps = _Public("attnlab.insert")
    latency = _Public("attnlab.latency")
    place = _Public("attnlab.place")
    report = _Public("attnlab.reporting")
    shorten = _Public("attnlab.shorten")
    stripe = _Public("attnlab.stripe")
    capture = _Public("attnlab.trajectory")
    stiffness = _Public("attnlab.trajectory")

    def __getattr__(self, name: str) -> Any:
        if name in _ROOMS:
            return importlib.import_module(f"attnlab.{name}")
        raise AttributeError(f"attnlab has no {name!r}. It has: {', '.join(self.__dir__())}.")

    def __dir__(self) -> list[str]:
        names = (name for name, value in vars(_Package).items() if isinstance(value, _Public))
        return sorted((*names, *_ROOMS, "__version__"))


sys.modules[__name__].__class__ = _Package
