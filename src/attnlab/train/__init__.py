"""Train one network: one loop, resumable at every epoch, deterministic on the CPU."""

from attnlab._files import DiskFullError as DiskFullError
from attnlab.train.config import DataConfig as DataConfig
from attnlab.train.config import MeasureConfig as MeasureConfig
from attnlab.train.config import RunConfig as RunConfig
from attnlab.train.diagnose import NonFiniteLossError as NonFiniteLossError
from attnlab.train.loop import train as train
from attnlab.train.network import load_network as load_network
from attnlab.train.recipe import Recipe as Recipe
from attnlab.train.recipe import list_recipes as list_recipes
from attnlab.train.recipe import load_recipe as load_recipe
from attnlab.train.result import RunResult as RunResult
