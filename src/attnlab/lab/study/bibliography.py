"""BibTeX of the papers whose modules or measures a study used."""

from __future__ import annotations

from collections.abc import Iterable


def bibliography(gates: Iterable[str], *, stiffness: bool) -> str:
    """Entries for gate names such as `se`, `asr:se*2`, `asr:se+se`; `stiffness` if TNS is shown.

    The entries are those of the registry; a gate of the user's own has none there.
    """
    from attnlab.gates import REFERENCES

    wanted = ["step"] if stiffness else []
    for gate in gates:
        base, _, inner = gate.partition(":")
        names = [base, *inner.split("+")] if inner else base.split("+")
        wanted += [name.split("*")[0] for name in names]
    entries = (REFERENCES[name].bibtex() for name in wanted if name in REFERENCES)
    return "\n".join(dict.fromkeys(entries))
