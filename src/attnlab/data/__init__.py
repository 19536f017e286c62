"""Every source of images and what is to be learned of them; one loader for all commands."""

from attnlab.data.config import Augmentation as Augmentation
from attnlab.data.config import DataConfig as DataConfig
from attnlab.data.data import Batch as Batch
from attnlab.data.data import Data as Data
from attnlab.data.data import Facts as Facts
from attnlab.data.load import data_checksum as data_checksum
from attnlab.data.load import load_data as load_data
from attnlab.data.memory import MemoryData as MemoryData
from attnlab.data.memory import Pixels as Pixels
from attnlab.data.named import load_named as load_named
from attnlab.data.named import needs_preprocessing as needs_preprocessing
from attnlab.data.named import outputs_of as outputs_of
from attnlab.data.source import class_names as class_names
