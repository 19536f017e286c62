"""What the small files of a run's directory say, as far as tables and pages rely on it; there may
be more in them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from attnlab.results.epoch import Budget


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")

    def given(self) -> dict[str, object]:
        """Return all that the file holds, as plain data."""
        return self.model_dump(exclude_unset=True)


class DataSettings(_Read):
    """Which images a run is trained on."""

    name: str = ""
    root: str | None = None


class RecipeSettings(_Read):
    """How a run is trained."""

    name: str | None = None
    epochs: int | None = None
    steps: int | None = None
    interval: int | None = None
    test_batch_size: int | None = None

    @property
    def budget(self) -> Budget:
        """How long it trains."""
        return Budget(self.epochs, self.steps, self.interval)


class RunSettings(_Read):
    """config.json: all settings, resolved."""

    backbone: str | None = None
    attention: str = "none"
    seed: int | None = None
    data: DataSettings = DataSettings()
    recipe: RecipeSettings = RecipeSettings()


class RunData(_Read):
    """data.json: facts about the images."""

    checksum: str
    name: str = ""
    notes: tuple[str, ...] = ()
    """What was left out of the data or is missing in them."""
    test: int | None = None
    """How many test images there are."""
    chance: float | None = None
    """The share of them that has the commonest class."""
    blind: float | None = None
    """Of masks, the mean overlap of the commonest class everywhere."""


class RunEnvironment(_Read):
    """The machine and the versions of one start of a run."""

    when: float | None = None

    python: str = ""
    packages: dict[str, str] = {}
    system: str = ""
    processor: str | None = None
    processors: int | None = None
    threads: int | None = None
    accelerator: str = "none"
    host: str = ""
    commit: str | None = None
    command: list[str] = []

    def shown(self) -> dict[str, object]:
        """Return all but the host and the command, which name a machine and its user."""
        return self.model_dump(exclude_unset=True, exclude={"command", "host"})


class RunStarts(_Read):
    """environment.json: every start of a run, the first one first."""

    starts: tuple[RunEnvironment, ...] = Field(min_length=1)


class RunFailure(_Read):
    """failure.json: why the last attempt at a run ended."""

    error: str = ""
    when: float | None = None
    details: str = ""
