"""Settings that lie beside a log: `args.yaml` (Ultralytics), `hparams.yaml` (Lightning)."""

from __future__ import annotations

from pathlib import Path


def settings_beside(log: Path, name: str) -> dict[str, str]:
    """Its plain values as text, by key; empty where there is no such file.

    Read as data only: a tag that would build an object is skipped with the whole file.
    """
    import yaml

    file = log.with_name(name)
    if not file.is_file():
        return {}
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        return {}
    if not isinstance(found, dict):
        return {}
    plain = (str, int, float, bool)
    return {str(key): str(value) for key, value in found.items() if isinstance(value, plain)}
