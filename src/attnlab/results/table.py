"""What a study says, as it is stored: one row per module of a group, with its comparison."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from attnlab.page.tables import Table
from attnlab.results.base import Number, Result
from attnlab.results.metric import Metric
from attnlab.results.speed import GroupSpeed, TimedNetwork

Verdict = Literal["better", "worse", "no difference shown", "cannot tell"]
Standing = Literal[
    "gain", "loss", "within noise", "before correction only", "no interval", "cannot tell"
]
"""`before correction only`: zero is outside the module's own interval, but among so many modules
that happens by chance. `cannot tell`: there is an interval, but no verdict may be given."""
EquivalenceVerdict = Literal["equivalent", "not shown", "cannot tell"]


@dataclass(frozen=True)
class Summary:
    """Mean and spread over seeds, as the papers print them."""

    mean: Number
    std: float | None
    """The standard deviation of the sample (n − 1 below the line; the papers do not say which);
    None for one value."""
    number: int

    def text(self, digits: int = 2) -> str:
        """`"94.26 ± 0.14"`."""
        mean = f"{self.mean:.{digits}f}"
        return mean if self.std is None else f"{mean} ± {self.std:.{digits}f}"

    def __str__(self) -> str:
        return self.text()


@dataclass(frozen=True)
class PairedDifference:
    """Module minus plain network over the seeds that both have."""

    mean: Number
    low: float | None
    """The lower end of Student's t interval, right for a number of seeds that was fixed
    beforehand."""
    high: float | None
    p_value: float | None
    """Two-sided, of the paired t-test, before any correction."""
    seeds: tuple[int, ...]
    note: str = ""
    """Why there is no interval; empty if there is one."""
    std: float | None = None
    """The standard deviation of the differences (n − 1 below the line): the spread that
    `seeds_needed` asks for."""
    anytime_low: float | None = None
    """The lower end of the interval that is right however often one looked and added seeds."""
    anytime_high: float | None = None
    anytime_p: float | None = None
    """Valid at any time, before any correction."""
    anytime_note: str = ""
    """Why there is no anytime interval; empty if there is one."""
    cannot_tell: str = ""
    """Why no verdict may be given whatever the figures are, such as "runs of different data"."""

    def figures(self, sequential: bool) -> tuple[float | None, float | None, float | None]:
        """Low, high and p-value: the anytime ones, or those for a fixed number of seeds."""
        if sequential:
            return self.anytime_low, self.anytime_high, self.anytime_p
        return self.low, self.high, self.p_value


@dataclass(frozen=True)
class Comparison:
    """A paired difference among a family of others that were tested with it."""

    difference: PairedDifference
    adjusted_p: float | None
    """By Holm over the family; None if there is no p-value or no verdict may be given."""
    verdict: Verdict
    sequential: bool = False
    """Whether the verdict is by the anytime figures of `difference`, or by the fixed ones."""

    @property
    def low(self) -> float | None:
        """The lower end of the interval that the verdict is by."""
        return self.difference.figures(self.sequential)[0]

    @property
    def high(self) -> float | None:
        return self.difference.figures(self.sequential)[1]

    @property
    def p_value(self) -> float | None:
        """The p-value of the test that the verdict is by, before correction."""
        return self.difference.figures(self.sequential)[2]

    @property
    def note(self) -> str:
        """Why the verdict is "cannot tell"; empty if it is not."""
        own = self.difference.anytime_note if self.sequential else self.difference.note
        return self.difference.cannot_tell or own

    @property
    def standing(self) -> Standing:
        """The verdict in the words of the page. "gain" and "loss" are the study's verdicts, after
        Holm and in the metric's direction."""
        if self.low is None or self.high is None:
            return "no interval"
        if self.verdict == "cannot tell":
            return "cannot tell"
        if self.verdict in ("better", "worse"):
            return "gain" if self.verdict == "better" else "loss"
        return "within noise" if self.low <= 0 <= self.high else "before correction only"


@dataclass(frozen=True)
class Equivalence:
    """Whether a row is as good as another, within a margin: two one-sided tests, paired by seed."""

    to: str
    """The other row."""
    margin: float
    """In the metric's unit."""
    mean: Number
    """This row minus the other."""
    low: float | None
    """Of the interval that must lie within the margin. Each end is wrong with a probability of at
    most α; if seeds were added after a look, at all numbers of seeds at once."""
    high: float | None
    p_value: float | None
    """The larger of the two, before any correction."""
    seeds: tuple[int, ...]
    note: str = ""
    """Why nothing can be said; empty if something can."""
    sequential: bool = False
    adjusted_p: float | None = None
    """By Holm over the rows."""
    verdict: EquivalenceVerdict = "cannot tell"

    def judged(self, adjusted: float, alpha: float) -> Equivalence:
        """Return the comparison with its verdict, given its corrected p-value."""
        if self.p_value is None or self.low is None or self.note:
            return self
        shown: EquivalenceVerdict = "equivalent" if adjusted < alpha else "not shown"
        return replace(self, adjusted_p=adjusted, verdict=shown)

    @property
    def text(self) -> str:
        """`equivalent within ±0.3`."""
        if self.verdict != "equivalent":
            return self.verdict
        return f"equivalent within ±{self.margin:g}"


@dataclass(frozen=True)
class PaperFigure:
    """A figure that a paper prints, in the metric's unit."""

    mean: float
    std: float | None = None

    def text(self, digits: int = 2) -> str:
        """`"94.26 ± 0.14"`."""
        return Summary(self.mean, self.std, 1).text(digits)

    def __str__(self) -> str:
        return self.text()


@dataclass(frozen=True)
class Beside:
    """A figure beside the result, over seeds, in its metric's unit."""

    metric: Metric
    summary: Summary
    difference: PairedDifference | None
    """From the plain backbone; None for that itself."""


@dataclass(frozen=True)
class StudyRow:
    """One module of a group over the seeds that are finished; values in their metric's unit."""

    label: str
    plain: bool
    seeds: tuple[int, ...]
    missing: tuple[int, ...]
    """Seeds that are planned but not finished."""
    stale: tuple[str, ...] = ()
    """Why finished runs of earlier plans do not count, each reason with how many have it."""
    values: dict[str, Summary] = field(default_factory=dict)
    """Last epoch, by the metric's name. Empty before any run is finished, like all below."""
    by_seed: dict[int, Number] = field(default_factory=dict)
    """The result of every seed."""
    best: Summary | None = None
    """The result's metric at its best epoch on the test images: optimistic, for comparison with
    papers that print it."""
    best_by_seed: dict[int, Number] = field(default_factory=dict)
    best_verdict: Verdict | None = None
    """What the verdict would be if every run were taken at its best epoch."""
    comparison: Comparison | None = None
    """With the plain backbone, by seed."""
    parameters: int | None = None
    macs: int | None = None
    train_speed: float | None = None
    """Images per second, median over seeds; each run is timed alone, so no ratio of these is
    better than the machine was quiet."""
    inference_speed: float | None = None
    """Images per second, interleaved with the other rows."""
    speed: TimedNetwork | None = None
    """Interleaved with the other rows, against the first; None if that was not done."""
    folded_speed: TimedNetwork | None = None
    """The time of the folded network, in the same way."""
    tns: Summary | None = None
    fold_error: float | None = None
    """Largest over seeds; None where nothing folds."""
    folded_parameters: int | None = None
    folded: Summary | None = None
    """The result's metric of the folded networks."""
    paper: dict[str, PaperFigure] = field(default_factory=dict)
    """By the metric's name."""
    beside: dict[str, Beside] = field(default_factory=dict)
    """On clean and corrupted images, where that was measured, by the metric's name."""
    equivalence: Equivalence | None = None
    """With the row that the study names, where it names one and a margin."""
    by_corruption: dict[str, Number] = field(default_factory=dict)
    """The mean over strengths and seeds of the result on corrupted images."""


@dataclass(frozen=True)
class Group:
    """The rows that share data and backbone; Holm's correction is over these."""

    name: str
    data: str
    backbone: str
    rows: tuple[StudyRow, ...]
    timed: GroupSpeed | None = None
    """How the rows were timed."""
    why_not_timed: str = ""

    @property
    def plain(self) -> StudyRow | None:
        """The row of the backbone without attention."""
        return next((row for row in self.rows if row.plain), None)


@dataclass(frozen=True, kw_only=True)
class StudyTable(Result):
    """The table of a study; `table.json` of its directory."""

    FORMAT: ClassVar[str] = "attnlab study table 1"

    study: str
    title: str
    level: float
    metrics: tuple[Metric, ...]
    """What the values are; the first is the result."""
    groups: tuple[Group, ...]
    paper_source: str
    paper_note: str
    changes: tuple[str, ...] = ()
    """What happened to the study's plan after results had been seen."""
    mixed: tuple[str, ...] = ()
    """Versions of torch or attnlab that differ within a comparison."""
    sequential: bool = False
    """Whether verdicts are by the anytime intervals: seeds were added after a look."""
    planned: int = 0
    unit: str = "epoch"
    """What the runs count and are tested after, `epoch` or `step`; `test` where they differ."""
    finished: tuple[str, ...] = ()
    """The directories of the runs that it was made of, as in `RunEntry.folder`."""

    @property
    def metric(self) -> Metric:
        """What the results are measured in."""
        return self.metrics[0]

    @property
    def verdict(self) -> str:
        """Which modules beat the plain backbone, in one sentence."""
        from attnlab.results.verdict import table_verdict

        rows = [row for group in self.groups for row in group.rows]
        return table_verdict(self, max(len(row.seeds) + len(row.missing) for row in rows))

    def table(self) -> Table:
        """A line per module: its result and Δ on every data set, and the cost."""
        from attnlab.results.columns import StudyColumns

        return replace(StudyColumns(self).main(), caption=self.title)
