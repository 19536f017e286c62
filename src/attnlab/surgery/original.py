"""A network before surgery, and the figures of a receipt that compare it with what it became."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import TypedDict

from torch import nn

from attnlab.residuals.example import Example, Run, run_once
from attnlab.residuals.selection import Call, work_depends_on_values
from attnlab.surgery.answer import Answer, answer, answer_of_run, answer_with, calls_to_compare
from attnlab.surgery.change import change_between
from attnlab.surgery.receipt import count_parameters


class Figures(TypedDict):
    """The fields of a `Receipt` that every surgery fills in the same way."""

    parameters_before: int
    parameters_after: int
    macs_before: int | None
    macs_after: int | None
    max_change: float | None
    relative_change: float | None
    compared: str
    seconds: float


@dataclass(frozen=True)
class Original:
    """What a network computes, answers and costs on the example, before it is changed."""

    run: Run
    example: Example | None
    calls: tuple[Call, ...]
    """What is compared in place of the output; none if the output is."""
    answer: Answer
    parameters: int
    began: float

    @classmethod
    def of(cls, model: nn.Module, example: Example | None, began: float) -> Original:
        """Run `model` once; the surgery began at `began`, a time of `perf_counter`."""
        run = run_once(model, example)
        calls = calls_to_compare(run)
        before = answer_of_run(run, model, example, calls)
        return cls(run, example, calls, before, count_parameters(model), began)

    @cached_property
    def work_depends_on_values(self) -> bool:
        """Whether the network computes more the more it finds, as detectors do."""
        return work_depends_on_values(self.run.graph)

    def answer_of(self, network: nn.Module) -> Answer:
        """Return what the changed network answers to the same example."""
        return answer(network, self.example, self.calls)

    def answer_without_gates(self, network: nn.Module) -> Answer:
        """The same, if nothing but all gates that attnlab inserted was taken out: what they
        computed is known, and counting takes half as long as a network of small layers."""
        after = self.answer_with(network, ())
        return replace(after, macs=self.answer.macs - self.answer.gate_macs, gate_macs=0)

    def answer_with(self, network: nn.Module, came: Sequence[nn.Module]) -> Answer:
        """Let the network as it was answer, with the modules that `came` into it since."""
        return answer_with(network, self.example, self.calls, self.answer, came)

    def figures(self, network: nn.Module, after: Answer, macs_after: int | None) -> Figures:
        """Both compared; without `macs_after`, no MACs: the two did not compute the same."""
        change = change_between(self.answer, after)
        return {
            "parameters_before": self.parameters,
            "parameters_after": count_parameters(network),
            "macs_before": None if macs_after is None else self.answer.macs,
            "macs_after": macs_after,
            "max_change": change.largest,
            "relative_change": change.relative,
            "compared": change.compared,
            "seconds": perf_counter() - self.began,
        }
