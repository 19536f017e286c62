"""The `attnlab` command: one file per subcommand, each a plain typed function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import tyro

from attnlab._errors import AttnlabError
from attnlab.cli.doctor import doctor
from attnlab.cli.dynamics import dynamics

COMMANDS: dict[str, Callable[..., None]] = {
    "doctor": doctor,
    "dynamics": dynamics,
}

DESCRIPTION = """Put attention into any vision network, measure what it does, fold it away.

Examples:
  attnlab doctor                              what is installed, and one fix line per problem
  attnlab dynamics theorem2                   when SAI follows SI, and when not
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an error on purpose ends in one message and exit code 2."""
    try:
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS, prog="attnlab", description=DESCRIPTION, args=arguments
        )
    except AttnlabError as error:
        print(f"attnlab: {error}", file=sys.stderr)
        raise SystemExit(2) from None
