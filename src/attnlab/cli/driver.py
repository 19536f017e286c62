"""One driver for every instrument: open the source, measure, show, write, and print the Python.

A command is made of two signatures, that of `attnlab.open` and that of the instrument: their
keyword arguments are the options, their docstrings the help. So a new instrument needs no command.
"""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import tyro
from docstring_parser import parse

from attnlab._errors import OptionError, WeightsError
from attnlab.cli._show import check_drawing, console, print_python, rich_table

if TYPE_CHECKING:
    from attnlab.instruments.registry import Instrument
    from attnlab.networks.checkpoint import Description
    from attnlab.results.base import Result
    from attnlab.subject import Subject


_COMMAND: ContextVar[str] = ContextVar("command", default="")


@contextmanager
def as_command(arguments: Sequence[str]) -> Iterator[None]:
    """Results that are made inside the `with` block say that `attnlab ARGUMENTS` made them."""
    token = _COMMAND.set(shlex.join(["attnlab", *arguments]))
    try:
        yield
    finally:
        _COMMAND.reset(token)


def command_line() -> str:
    """The command that is running; empty where none is."""
    return _COMMAND.get()


R = TypeVar("R", bound="Result")
SOURCES = "names, files of weights, or folders of finished runs."
SOURCE = "a name, a file of weights, or the folder of a finished run."
_EACH = "weights"
"""The option that each of several networks has for itself."""


@dataclass(frozen=True)
class Output:
    """What every command can be told about its output."""

    json: bool = False
    """Print the result as JSON and nothing else."""
    out: Path | None = None
    """Folder for the page, the JSON file and SVG figures; one below it for each of several
    networks."""


@dataclass(frozen=True)
class Process:
    """What every command can be told about its process."""

    import_from: Path | None = None
    """Import your own classes from this folder."""
    threads: int | None = None
    """Threads of this process; torch's own choice if left out."""

    def prepare(self) -> None:
        """Let the user's own classes be found, and set the number of threads."""
        if self.import_from is not None:
            if not self.import_from.is_dir():
                raise OptionError(f"There is no folder {str(self.import_from)!r} to import from.")
            sys.path.insert(0, str(self.import_from.resolve()))
        if self.threads is not None:
            import torch

            from attnlab._checked import check_whole

            check_whole("--threads", self.threads, 1)
            torch.set_num_threads(self.threads)


def instrument_command(instrument: Instrument) -> Callable[..., None]:
    """The command of an instrument, for tyro."""
    measure, compare = instrument.measure, instrument.compare

    def run(
        sources: tuple[str, ...],
        opening: object,
        chosen: object,
        comparing: object,
        output: Output,
        process: Process,
    ) -> None:
        check_drawing(output.out)
        process.prepare()
        asked = Asking(instrument, sources, changed(opening), changed(chosen), changed(comparing))
        asked.check()
        for name in asked.compared if len(sources) == 1 else ():
            raise OptionError(f"--{name} compares networks, and there is one: give several.")
        subjects, found = [], []
        for source, subject in asked.subjects():
            subjects.append(subject)
            found.append(by_this_command(measure(subject, **asked.settings)))
            show(found[-1], output)
            write(found[-1], output, asked.folder_of(source))
        if len(found) > 1 and compare is not None:
            together = compare(subjects, found, **asked.compared)
            show(by_this_command(together), output)
            write(together, output, "")
        if not output.json:
            print()
            print_python(*asked.python())

    run.__doc__ = _with_example(inspect.getdoc(measure) or "", instrument.example)
    run.__annotations__ = {
        "sources": Annotated[
            tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(help=SOURCES, metavar="NETWORK")
        ],
        "opening": _flat(opening_options()),
        "chosen": _flat(options_of(measure, 1, leave_out=instrument.only_in_python)),
        "comparing": _flat(_nothing() if compare is None else options_of(compare, 2)),
        "output": _flat(Output),
        "process": _flat(Process),
    }
    return run


def describe_or_refuse(subject: Subject) -> Description:
    """How to build the network again, which a file needs to say; an error if that is not known."""
    if subject.description is None:
        raise OptionError(
            f"How {subject.name!r} is built is not known, so its network cannot be written to a "
            f"file that says it. Leave -o out."
        )
    return subject.description


@dataclass(frozen=True)
class Asking:
    """What a command was asked: which networks, and all options that do not have their default."""

    instrument: Instrument
    sources: Sequence[str]
    opened: Mapping[str, Any]
    settings: Mapping[str, Any]
    compared: Mapping[str, Any]

    def each(self) -> Iterator[Opening]:
        """Every source with its options: `--weights` has one for each, or none."""
        if not self.sources:
            raise OptionError(
                f"Expected at least one network, for example: {self.instrument.example}."
            )
        weights = self.opened.get(_EACH, ())
        if weights and len(weights) != len(self.sources):
            raise OptionError(
                f"Expected one of --weights per network but got {len(weights)} for "
                f"{len(self.sources)} networks; write none for a network without."
            )
        for place, source in enumerate(self.sources):
            options = {name: value for name, value in self.opened.items() if name != _EACH}
            if weights and weights[place] != "none":
                options[_EACH] = weights[place]
            yield Opening(source, options)

    def check(self) -> None:
        """Refuse words that are not networks before the first network is measured."""
        from attnlab.data.config import NAMES
        from attnlab.gates.registry import GATES
        from attnlab.subject import check_source

        for source in self.sources:
            option = "--data" if source in NAMES else "--gate" if source in GATES else None
            if option is not None and not Path(source).exists():
                what = "a data set" if option == "--data" else "a gate"
                raise OptionError(f"{source!r} is {what} and not a network: {option} {source}.")
            check_source(source)

    def subjects(self) -> Iterator[tuple[str, Subject]]:
        """Open every source, and yield it with its subject."""
        for each in self.each():
            yield each.source, each.subject()

    def folder_of(self, source: str) -> str:
        """The folder below `--out` of one of several networks; a single one has that for itself."""
        if len(self.sources) == 1:
            return ""
        names = [Path(each).name.replace(":", "-") for each in self.sources]
        place = list(self.sources).index(source)
        number = "" if names.count(names[place]) == 1 else f"-{place + 1}"
        return f"{names[place]}{number}"

    def python(self) -> list[str]:
        """The Python that does the same."""
        name, settings = self.instrument.python_name, in_python(self.settings)
        opened = [each.python() for each in self.each()]
        if len(opened) == 1:
            return ["import attnlab", f"result = attnlab.{name}({opened[0]}{settings})"]
        lines = ["import attnlab", f"subjects = [{', '.join(opened)}]"]
        lines.append(f"results = [attnlab.{name}(each{settings}) for each in subjects]")
        if self.instrument.comparison:
            function = self.instrument.comparison
            lines.append(f"comparison = {function}(subjects, results{in_python(self.compared)})")
        return lines


def opening_options() -> type:
    """The options of `attnlab.open`, the same for every command; each of several networks has
    weights of its own."""
    from attnlab.subject import open as open_subject

    return options_of(open_subject, 1, {_EACH: tuple[str, ...]})


@dataclass(frozen=True)
class Opening:
    """The one network that a command opens, and the options of `attnlab.open` that were given."""

    source: str
    options: Mapping[str, Any]

    @property
    def is_name(self) -> bool:
        """Whether the source is the name of a network, and not a file or a folder."""
        return not Path(self.source).exists()

    def subject(self) -> Subject:
        """Open the network."""
        from attnlab.subject import open as open_subject

        return open_subject(self.source, **self.options)

    def python(self) -> str:
        """The Python that opens it."""
        return f"attnlab.open({self.source!r}{in_python(self.options)})"

    def check_output(self, output: Path | None) -> None:
        """Refuse to write weights to a file of another kind, to a folder that is not there, or over
        what the command reads."""
        if output is None:
            return
        if output.suffix != ".safetensors":
            raise OptionError(f"Expected -o to end in .safetensors but got {str(output)!r}.")
        if not output.parent.is_dir():
            raise WeightsError(f"There is no folder {str(output.parent)!r} to write to.")
        # The gates of a file that its folded network replaces could not be trained any more.
        read = [Path(str(name)) for name in (self.source, self.options.get("weights"))]
        if output.exists() and any(
            place.exists() and (place.samefile(output) or place.samefile(output.parent))
            for place in read
        ):
            raise OptionError(f"-o {output} would be written over what is read. Give another name.")


def opening_command(
    act: Callable[..., None],
    chosen: type,
    leave_out: Sequence[str] = (),
    default: str | None = None,
    with_output: bool = False,
) -> Callable[..., None]:
    """The command that opens one network and does what `act` does with it, for tyro.

    Args:
        act: what is done, given an `Opening` and the options; its docstring is the help.
        chosen: a dataclass of the command's own options.
        leave_out: options of `attnlab.open` that mean something else in this command.
        default: the network if none is given; an error if this is None.
        with_output: whether the command has `--json` and `--out`, which `act` is then given too.
    """

    def run(chosen: object, opening: object, output: Output, process: Process) -> None:
        if with_output:
            check_drawing(output.out)
        process.prepare()
        options = changed(opening)
        source = options.pop("source", default)
        act(Opening(source, options), chosen, *([output] if with_output else []))

    run.__doc__ = inspect.getdoc(act)
    run.__annotations__ = {
        "chosen": _flat(chosen),
        "opening": _flat(_one_network(leave_out, default)),
        "output": _flat(Output if with_output else _nothing()),
        "process": _flat(Process),
    }
    return run


def _one_network(leave_out: Sequence[str], default: str | None) -> type:
    from attnlab.subject import open as open_subject

    positional = tyro.conf.arg(metavar="NETWORK", help=SOURCE)
    kind = Annotated[str, tyro.conf.Positional, positional]
    given = field() if default is None else field(default=default)
    source = make_dataclass("Source", [("source", kind, given)], frozen=True)
    options = options_of(open_subject, 1, leave_out=leave_out)
    return make_dataclass("OneNetwork", [], bases=(options, source), frozen=True)


def options_of(
    function: Callable[..., Any],
    first: int,
    other_types: Mapping[str, Any] | None = None,
    leave_out: Sequence[str] = (),
) -> type:
    """A dataclass of the arguments of `function` from number `first` on, with their defaults and
    the texts of its docstring, for tyro."""
    others = other_types or {}
    texts = {
        each.arg_name: each.description for each in parse(inspect.getdoc(function) or "").params
    }
    found = []
    for each in list(inspect.signature(function, eval_str=True).parameters.values())[first:]:
        if each.name in leave_out:
            continue
        given: Any = others.get(each.name, each.annotation)
        kind = Annotated[given, tyro.conf.arg(help=texts[each.name])]
        found.append((each.name, kind, field(default=() if each.name in others else each.default)))
    return make_dataclass(f"{function.__name__.capitalize()}Options", found, frozen=True)


def changed(options: object) -> dict[str, Any]:
    """The options that do not have their default."""
    pairs = ((each, getattr(options, each.name)) for each in fields(options))  # type: ignore[arg-type]
    return {each.name: value for each, value in pairs if value != each.default}


def by_this_command(result: R) -> R:
    """The result, with the command that made it in its provenance."""
    if result.provenance is None:
        return result
    return replace(result, provenance=replace(result.provenance, command=command_line()))


def show(result: Result, output: Output) -> None:
    """Print the table, the verdict and the notes; or all of it as JSON."""
    from attnlab.results.provenance import UNTRAINED

    if output.json:
        print(result.to_json())
        return
    console().print(rich_table(result.table()))
    print(result.verdict)
    if result.provenance is not None and not result.provenance.trained:
        print(UNTRAINED)
    for note in result.notes:
        print(f"note: {note}")
    print(f"{result.seconds:.1f} s")


def write(result: Result, output: Output, below: str) -> None:
    """Write the file, the figures and the page of a result. Where standard output is JSON, the
    names of the files go to standard error."""
    from attnlab.lab.pages.write import write_result_page
    from attnlab.page.plot import write_svg

    if output.out is None:
        return
    folder, where = output.out / below, sys.stderr if output.json else sys.stdout
    figures = result.figures()
    for name, spec in figures.items():
        write_svg(spec, folder / f"{name.replace(' ', '-')}.svg")
    saved = result.save(folder / f"{result.instrument()}.json")
    page = write_result_page(result, saved.with_suffix(".html"))
    number = f" and {len(figures)} figure{'s' * (len(figures) > 1)}" if figures else ""
    print(f"wrote {saved}\nwrote {page}{number}", file=where)


def in_python(options: Mapping[str, Any]) -> str:
    """Keyword arguments as they are written in Python, each after a comma."""
    texts = {k: str(v) if isinstance(v, Path) else v for k, v in options.items()}
    return "".join(f", {name}={value!r}" for name, value in texts.items())


def _with_example(text: str, example: str) -> str:
    """The help of a command: what its function says before its arguments, and an example."""
    before, _, _ = text.partition("Args:\n")
    return before if "Examples:\n" in before else f"{before.rstrip()}\n\nExamples:\n  {example}"


def _flat(options: Any) -> Any:
    """The options of a dataclass, without its name before each."""
    return Annotated[options, tyro.conf.OmitArgPrefixes]


def _nothing() -> type:
    return make_dataclass("NoOptions", [], frozen=True)
