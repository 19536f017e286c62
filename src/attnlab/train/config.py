"""What a run is: data, network, gate, seed and recipe; nothing else decides its weights."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveInt, model_validator

from attnlab._strict import Strict
from attnlab.train.recipe import Recipe, load_recipe

Value = bool | int | float | str
"""An option of a network or a gate."""

DataName = Literal["digits", "fake", "cifar10", "cifar100", "stl10", "npz", "folder", "hf"]


class DataConfig(Strict):
    """Which images."""

    name: DataName = "digits"
    """`digits` is scikit-learn's 8×8 digits, `fake` random images, `npz` a numpy archive with
    train_x, train_y, test_x, test_y, `folder` one folder per class under train/ and test/ (or
    val/), `hf` a data set of the Hugging Face hub or a folder that `datasets` can read."""
    root: str | None = None
    """Folder of torchvision's data sets and of `folder`, file of `npz`, name of `hf`."""
    download: bool = False
    """Whether torchvision may fetch what is missing; nothing is ever fetched otherwise."""
    train_subset: PositiveInt | None = None
    """How many training images, the same share of every class; all when None."""
    test_subset: PositiveInt | None = None
    size: PositiveInt | None = None
    """Images are resized to size × size; their own size when None (folders need one)."""
    stl_crop: Literal[32, 96] = 96
    """STL10 only: the side of the training crop. Testing is at 96. The papers do not say."""
    classes: PositiveInt = 10
    """Of `fake` only."""


class MeasureConfig(Strict):
    """What is measured beside the accuracy."""

    images: NonNegativeInt = 256
    """On how many test images TNS, NSI and the gates are measured; 0 leaves them out."""
    every_epoch: bool = False
    """Whether TNS and the mean gates are also measured after every epoch."""
    inference_images: NonNegativeInt = 256
    """On how many test images inference speed is measured; 0 leaves it out."""


class RunConfig(Strict):
    """One training with one seed. `recipe` may be given as the name of one of `list_recipes()`,
    or as a table that starts from one: `{name = "digits", epochs = 3}`."""

    data: DataConfig = DataConfig()
    backbone: str
    """A name for `attnlab.create`."""
    backbone_options: dict[str, Value] = {}
    attention: str = "none"
    """A gate for `attnlab.insert`, or `none`: the plain backbone."""
    gate_options: dict[str, Value] = {}
    where: str | tuple[str, ...] | None = None
    start: Literal["paper", "identity"] = "paper"
    seed: NonNegativeInt = 0
    recipe: Recipe
    measure: MeasureConfig = MeasureConfig()

    @model_validator(mode="before")
    @classmethod
    def _named_recipe(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("data"), str):
            data = {**data, "data": {"name": data["data"]}}
        if not isinstance(data, dict) or not isinstance(data.get("recipe"), str | dict):
            return data
        given = data["recipe"]
        settings = {"name": given} if isinstance(given, str) else dict(given)
        base = settings.get("name")
        if base is None:
            return data
        loaded = load_recipe(base).model_dump()
        return {**data, "recipe": Recipe(**{**loaded, **settings})}

    @property
    def run_id(self) -> str:
        """Twelve hex digits: the hash of everything that decides the result. Labels and places
        (a recipe's name, a root that only says where well-known data lies) do not."""
        resolved = self.model_dump(mode="json")
        resolved["recipe"].pop("name")
        resolved["data"].pop("download")
        if self.data.name not in ("npz", "folder", "hf"):
            resolved["data"].pop("root")
        text = json.dumps(resolved, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        """`digits resnet20 se seed 0`: one line for tables and logs."""
        return f"{self.data.name} {self.backbone} {self.attention} seed {self.seed}"

    def to_json(self) -> str:
        """All settings, resolved; `from_json` reads them back."""
        return self.model_dump_json(indent=1)

    @classmethod
    def from_json(cls, text: str) -> RunConfig:
        """The config that `to_json` wrote."""
        data = json.loads(text)
        return cls(**{**data, "recipe": Recipe(**data["recipe"])})
