"""Train one network: one loop, resumable at every epoch, deterministic on the CPU."""

from typing import TYPE_CHECKING

from attnlab._files import DiskFullError as DiskFullError
from attnlab._folders import handed_on
from attnlab.data import DataConfig as DataConfig
from attnlab.results import RunResult as RunResult
from attnlab.tasks import TaskConfig as TaskConfig

if TYPE_CHECKING:
    from attnlab.lab.training.config import RunConfig as RunConfig
    from attnlab.lab.training.diagnose import NonFiniteLossError as NonFiniteLossError
    from attnlab.lab.training.identity import Identity as Identity
    from attnlab.lab.training.identity import identify as identify
    from attnlab.lab.training.loop import train as train
    from attnlab.lab.training.placement import load_network as load_network
    from attnlab.lab.training.recipe import Recipe as Recipe
    from attnlab.lab.training.recipe import list_recipes as list_recipes
    from attnlab.lab.training.recipe import load_recipe as load_recipe
    from attnlab.lab.training.schedule import Schedule as Schedule

__getattr__, __dir__ = handed_on(
    __name__,
    config=("RunConfig",),
    diagnose=("NonFiniteLossError",),
    identity=("Identity", "identify"),
    loop=("train",),
    placement=("load_network",),
    recipe=("Recipe", "list_recipes", "load_recipe"),
    schedule=("Schedule",),
)
