"""Which images, and what is done to them in training."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    field_validator,
    model_validator,
)

from attnlab._errors import InputError, OptionError, unknown_name
from attnlab._imported import is_path
from attnlab._strict import Strict

Value = bool | int | float | str
"""An option of data, of a task, a network or a gate, as settings have it."""

NAMES = (
    "digits",
    "digit-pairs",
    "digit-angles",
    "photos",
    "fake",
    "cifar10",
    "cifar100",
    "stl10",
    "npz",
    "folder",
    "shards",
    "hf",
    "shapes",
    "coco",
    "voc",
    "yolo",
    "shape-masks",
    "masks",
    "voc-masks",
    "hf-masks",
    "stdlib",
    "text",
    "tokens",
)
BOXES = ("shapes", "coco", "voc", "yolo")
"""The data sets that know boxes."""
MASKS = ("shape-masks", "masks", "voc-masks", "hf-masks")
"""The data sets that know the class of every pixel."""
TEXT = ("stdlib", "text", "tokens")
"""The data sets that are text."""
_WITH_OPTIONS = (*BOXES[1:], *MASKS[1:], *TEXT, "shards")
_KINDS = ("folder", "shards", "npz", "hf", "masks", "hf-masks", "text", "tokens")
"""Names that say how images are stored, not which they are."""


def data_title(name: str, root: str | None) -> str:
    """Return what a data set is called wherever it is named: `photos` of images in the folder
    some/photos instead of `folder`."""
    if name not in _KINDS or not root:
        return name
    path = Path(root)
    return (path.stem if name in ("npz", "text") else path.name) or name


class Augmentation(Strict):
    """What is done to training images."""

    crop: Literal["none", "padded", "resized"] = "padded"
    """`padded`: a random crop of the image padded with black; `resized`: a random part of random
    aspect, resized (`folder` and `shards`)."""
    crop_padding: NonNegativeInt = 4
    flip: bool = True
    """Mirror half of the training images."""
    policy: str | None = None
    """Of images that are read while they are used: timm's automatic augmentation by its own words,
    such as "rand-m9-mstd0.5-inc1" (RandAugment), or "trivial", torchvision's TrivialAugment."""
    erase: float = Field(default=0.0, ge=0, le=1)
    """The share of training images of which a random rectangle is noise (timm's random erasing)."""
    mixup: NonNegativeFloat = 0.0
    """Mix each batch with itself, images and classes, by a share from Beta(mixup, mixup); with
    cutmix too, one of them is chosen for each batch (torchvision's; for classes only)."""
    cutmix: NonNegativeFloat = 0.0
    """Put a rectangle of another image into each, whose share is from Beta(cutmix, cutmix)."""
    transform: str | None = None
    """Your own `torch.nn.Module`, "my_module.MyTransform", called on each training batch after
    crop, mirror and normalisation."""
    transform_options: dict[str, Value] = {}

    @model_validator(mode="after")
    def _consistent(self) -> Augmentation:
        if self.transform is None and self.transform_options:
            raise OptionError("transform_options are for a transform; none is set.")
        if self.transform is not None and not is_path(self.transform):
            raise OptionError(
                f"Expected the transform to be your own class as 'module.Class' but got "
                f"{self.transform!r}."
            )
        return self


class DataConfig(Strict):
    """Which images a network is trained and tested on."""

    name: str = "digits"
    """`digits` is scikit-learn's 8×8 digits, `digit-pairs` two of them side by side (which digits
    are there?), `digit-angles` digits that are turned (by how much?), `photos` photographs of which
    nothing is known (style transfer), `fake` random images, `npz` a numpy archive with train_x,
    train_y, test_x, test_y, `folder` one folder per class under train/ and test/ (or val/),
    `shards` tar archives of WebDataset or Parquet files of the Hugging Face hub, `hf` a data set of
    that hub, or a folder that `datasets` can read, held in memory. With boxes: `shapes` is made in
    code, `coco`, `voc` and `yolo` are folders in these formats. With a class for every pixel:
    `shape-masks` is made in code, `masks` is a folder with images/ and masks/ under train/
    and test/ (or val/), `voc-masks` a folder in VOC's format of segmentation, `hf-masks` a data set
    with a column of images and one of masks that `datasets` can read. Text: `stdlib` is
    Python's own library, `text` a file or folder of text, `tokens` a folder with files of tokens.
    Or your own `torch.utils.data.Dataset`, "my_module.MyData"."""
    options: dict[str, Value] = {}
    """The options of your own data set, or where those with boxes or masks have what below `root`;
    `bad` says whether boxes that cannot be used are an "error" or are left out ("drop"). Of text:
    `context`, the tokens of a window, and what `docs/language.md` lists. Of `shards`: `train` and
    `test`, how they are called, `label`, how the member with the class ends or the column of
    Parquet, `image`, that of the images, `together`, of how many shards images are shuffled at a
    time (of all when it is not given), or of how many row groups of Parquet (8)."""
    root: str | None = None
    """Folder of torchvision's data sets, of those with boxes and of `photos` (scikit-learn's two
    sample photographs when None), folder or address (`s3://bucket/folder`) of `folder` and
    `shards`, file of `npz`, name or folder of `hf` and `hf-masks`, file or folder of `text`, folder
    of `tokens`."""
    download: bool = False
    """Whether torchvision may fetch what is missing; nothing is ever fetched otherwise."""
    hash_all: bool = False
    """Of more than 20,000 images that are read while they are used: whether the content of all, and
    not of 2,000 beside every name and size, tells them from other images."""
    train_subset: PositiveInt | None = None
    """How many training images, the same share of every class, or windows of text, evenly spread;
    all when None."""
    test_subset: PositiveInt | None = None
    size: PositiveInt | None = None
    """Images are resized to size × size, `shapes` are made so; their own size when None (folders
    need one, and those with boxes take none). With masks, the side of the crops in training; they
    are tested on whole images. Of `photos`, the side of the training parts, 96 when
    None; held-out photographs are 4/3 as large."""
    stl_crop: Literal[32, 96] = 96
    """STL10 only: the side of the training crop. Testing is at 96. The papers do not say."""
    classes: PositiveInt = 10
    """The number of classes of `fake`."""
    augmentation: Augmentation = Augmentation()

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in NAMES and not is_path(name):
            raise unknown_name("data", name, NAMES)
        return name

    @model_validator(mode="after")
    def _consistent(self) -> DataConfig:
        if self.options and not is_path(self.name) and self.name not in _WITH_OPTIONS:
            raise OptionError(
                f"options are for your own data set ('module.Class'), "
                f"{', '.join(_WITH_OPTIONS[:-1])} and {_WITH_OPTIONS[-1]}; {self.name!r} has none."
            )
        return self

    @property
    def title(self) -> str:
        """What these data are called in tables, on pages and in messages."""
        return data_title(self.name, self.root)

    def folder(self) -> Path:
        """The folder that `root` names; an error if there is none."""
        if self.root is None:
            raise OptionError(f"Data {self.name!r} needs its folder, root = 'path/of/the/data'.")
        if not Path(self.root).is_dir():
            raise InputError(f"There is no folder {self.root!r}.")
        return Path(self.root)

    def settings(self) -> dict[str, object]:
        """Return what decides the images besides their content: not where they lie."""
        return self.model_dump(mode="json", exclude={"root", "download"})
