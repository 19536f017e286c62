"""The `attnlab` command. Commands of instruments are made by the driver; the others have a file
each, with a plain typed function."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import tyro

from attnlab._errors import AttnlabError, OptionError, unknown_name
from attnlab.cli._words import in_order, refuse_words
from attnlab.cli.driver import as_command
from attnlab.instruments.registry import INSTRUMENTS

_UNUSABLE = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
"""What a path that was given may be; the commands say more where they look first."""

COMMANDS: dict[str, str] = {
    "doctor": "attnlab.cli.doctor",
    "modules": "attnlab.cli.modules",
    "networks": "attnlab.cli.networks",
    "operators": "attnlab.cli.operators",
    "try": "attnlab.cli.try_",
    "insert": "attnlab.cli.insert",
    **dict.fromkeys(INSTRUMENTS, ""),
    "dynamics": "attnlab.cli.dynamics",
    "fold": "attnlab.cli.fold",
    "fuse": "attnlab.cli.fuse",
    "shorten": "attnlab.cli.shorten",
    "speed": "attnlab.cli.speed",
    "style": "attnlab.cli.style",
    "study": "attnlab.cli.study",
    "report": "attnlab.cli.report_page",
    "compare": "attnlab.cli.compare_logs",
    "yolo": "attnlab.cli.yolo",
}
"""Where each command is; those of instruments are made by the driver."""

_ONLY_PRINT = ("doctor", "modules", "operators")
_BROKEN_PIPE = 141
"""128 + 13, as a shell writes it."""

_LINES = "".join(f"  {each.example:<42}  {each.what}\n" for each in INSTRUMENTS.values())

DESCRIPTION = f"""usage: attnlab COMMAND [OPTIONS]; attnlab COMMAND --help says more.

Put attention into vision networks and language models, measure what it does, fold it away.

Examples:
  attnlab doctor                              what is installed, and one fix line per problem
  attnlab modules                             every gate, its paper, its cost, its first value
  attnlab networks --match 'resnet*'          names for create, --model and studies
  attnlab operators                           convolution, involution, attention: cost and time
  attnlab try se timm:resnet50                what a gate does to a network, in seconds
  attnlab insert resnet164 --gate asr:se -o gated.safetensors   to train elsewhere, then fold
{_LINES}\
  attnlab study run demo                      many seeds, resumable; intervals, cost, TNS, fold
  attnlab report runs -o report.html          what a study says, as one page
  attnlab fold runs/RUN -o plain.safetensors  constant gates back into the layers
  attnlab fuse timm:fastvit_t8 -o fast.safetensors   branches and norms into the layers
  attnlab shorten runs/RUN --remove 3 --plan  which steps can go, and what that costs
  attnlab speed se asr:se --out speed         what attention costs at inference, folded or not
  attnlab style train strokes -o runs/style   photographs in the style of a picture
  attnlab compare runs/*/results.csv          a verdict for results that others made
  attnlab yolo train yolo11n.pt --gate se ... Ultralytics with gates
  attnlab dynamics theorem2                   when SAI follows SI, and when not
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an error on purpose ends in one message and exit code 2. `--version`
    alone prints the version."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    name = given[0] if given else "--help"
    if given == ["--version"]:
        from attnlab import __version__

        print(f"attnlab {__version__}")
        return
    try:
        if name in COMMANDS:
            command = command_named(name)
            description = _description(command)
            with as_command(given), _plain_warnings():
                _run(command, f"attnlab {name}", description, given[1:])
            sys.stdout.flush()  # here, where a closed pipe is noticed, and not at the very end
        elif name in ("-h", "--help"):
            print(DESCRIPTION, end="")
            raise SystemExit(0)
        elif name == "version":
            raise OptionError("Unknown command 'version'. Did you mean 'attnlab --version'?")
        else:
            raise unknown_name("command", name, COMMANDS)
    except AttnlabError as error:
        print(f"attnlab: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except _UNUSABLE as error:
        print(f"attnlab: {error.filename}: {(error.strerror or '').lower()}.", file=sys.stderr)
        raise SystemExit(2) from None
    except BrokenPipeError:  # `attnlab modules | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # What only prints has done its work. Anything else was cut off, and is not a success.
        raise SystemExit(0 if name in _ONLY_PRINT else _BROKEN_PIPE) from None


def _run(command: Callable[..., None], prog: str, description: str, given: list[str]) -> None:
    """Run the command. Words that one of networks does not take are put where it takes them, if
    that can be said."""

    @functools.wraps(command)
    def bound(**named: object) -> dict[str, object]:
        return named

    if "action" in inspect.signature(command).parameters:  # a word may be a misspelt action
        tyro.cli(command, prog=prog, description=description, args=given)
        return
    named, left_over = tyro.cli(
        bound, prog=prog, description=description, args=given, return_unknown_args=True
    )
    if left_over:
        if not {"sources", "opening"} & named.keys():
            refuse_words(prog, left_over, inspect.signature(command).parameters)
        given = in_order(given, left_over, named) or given
        # What it does not take is refused this time, with the nearest option.
        named = tyro.cli(bound, prog=prog, description=description, args=given)
    command(**named)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show a warning as one line, without the place in the code that gave it."""
    before = warnings.formatwarning

    def one_line(message: Warning | str, category: type[Warning], *_: object, **__: object) -> str:
        ours = category.__module__.startswith("attnlab.")
        return f"{'note' if ours else category.__name__}: {message}\n"

    warnings.formatwarning = one_line
    try:
        yield
    finally:
        warnings.formatwarning = before


def command_named(name: str) -> Callable[..., None]:
    """The function of a command, imported when it is used: `attnlab --help` need not wait for
    torch."""
    if name in INSTRUMENTS:
        from attnlab.cli.driver import instrument_command

        return instrument_command(INSTRUMENTS[name])
    module = importlib.import_module(COMMANDS[name])
    found: Callable[..., None] = getattr(module, COMMANDS[name].rpartition(".")[2])
    return found


def _description(command: Callable[..., None]) -> str:
    """The docstring with its examples, which tyro would leave out, and without its arguments."""
    return (inspect.getdoc(command) or "").partition("Args:\n")[0].strip()
