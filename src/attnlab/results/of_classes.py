"""What measurements of networks with classes found, as far as tables and pages rely on it."""

from __future__ import annotations

from pydantic import BaseModel, model_validator


class Classes(BaseModel):
    """How often which class was taken for which."""

    classes: list[str]
    confusion: list[list[int]]

    @model_validator(mode="after")
    def _square(self) -> Classes:
        sides = {len(self.confusion), *(len(row) for row in self.confusion)}
        if sides != {len(self.classes)}:
            raise ValueError("expected a number for every pair of classes")
        return self


class _Figures(BaseModel):
    top1: float
    ece: float
    nll: float


class _Corrupted(BaseModel):
    corruption: str
    top1: float


class Corruptions(BaseModel):
    """Figures of clean and corrupted images."""

    clean: _Figures
    mean: _Figures
    rows: list[_Corrupted]
