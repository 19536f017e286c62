"""Where the `attnlab` command begins, and `python -m attnlab`.

Ctrl-C is answered here, before the first import that takes time: otherwise an early one would end
in a traceback of somebody else's code.
"""

from __future__ import annotations

import sys

_INTERRUPTED = 130
"""128 + 2, as a shell writes it."""


def from_the_shell() -> None:
    """Run the command line."""
    try:
        from attnlab.cli import main as run

        run()
    except KeyboardInterrupt:
        print("attnlab: stopped by Ctrl-C.", file=sys.stderr)
        raise SystemExit(_INTERRUPTED) from None


if __name__ == "__main__":
    from_the_shell()
