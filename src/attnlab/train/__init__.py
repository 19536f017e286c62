"""Train one network: one loop, resumable at every epoch, deterministic on the CPU."""

from attnlab._files import DiskFullError as DiskFullError
from attnlab.data import DataConfig as DataConfig
from attnlab.stored import RunResult as RunResult
from attnlab.tasks import TaskConfig as TaskConfig
from attnlab.train.config import RunConfig as RunConfig
from attnlab.train.diagnose import NonFiniteLossError as NonFiniteLossError
from attnlab.train.identity import Identity as Identity
from attnlab.train.identity import identify as identify
from attnlab.train.loop import train as train
from attnlab.train.network import load_network as load_network
from attnlab.train.recipe import Recipe as Recipe
from attnlab.train.recipe import list_recipes as list_recipes
from attnlab.train.recipe import load_recipe as load_recipe
from attnlab.train.schedule import Schedule as Schedule
