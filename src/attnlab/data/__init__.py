"""Every source of images and what is to be learned of them; one loader for all commands."""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on

if TYPE_CHECKING:
    from attnlab.data.batches import Batch as Batch
    from attnlab.data.batches import Data as Data
    from attnlab.data.batches import Facts as Facts
    from attnlab.data.config import Augmentation as Augmentation
    from attnlab.data.config import DataConfig as DataConfig
    from attnlab.data.config import Value as Value
    from attnlab.data.folder import class_names as class_names
    from attnlab.data.load import data_checksum as data_checksum
    from attnlab.data.load import is_text as is_text
    from attnlab.data.load import load_data as load_data
    from attnlab.data.load import load_named as load_named
    from attnlab.data.load import needs_preprocessing as needs_preprocessing
    from attnlab.data.load import outputs_of as outputs_of
    from attnlab.data.memory import MemoryData as MemoryData
    from attnlab.data.memory import Pixels as Pixels

__getattr__, __dir__ = handed_on(
    __name__,
    batches=("Batch", "Data", "Facts"),
    config=("Augmentation", "DataConfig", "Value"),
    folder=("class_names",),
    load=(
        "data_checksum",
        "is_text",
        "load_data",
        "load_named",
        "needs_preprocessing",
        "outputs_of",
    ),
    memory=("MemoryData", "Pixels"),
)
