"""Where the files of studies are, and what is in them before it is checked; torch is not needed."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from attnlab._errors import InputError, unknown_name


def study_table_of(file: Path) -> dict[str, Any]:
    """Return what the TOML file of a study holds."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file} is not UTF-8 text, which TOML is: byte {error.start} cannot be read. Save it "
            f"as UTF-8."
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file} is not a TOML file: {error}.") from None


def stored_name(given: str, *, small: bool = False) -> str:
    """The name under which a study is stored that is given by its file or its name, as commands
    take it."""
    file = _given_file(given)
    name = given if file is None else str(study_table_of(file).get("name", file.stem))
    return f"{name}-small" if small else name


def study_file(name: str | Path) -> Path:
    """The file of a study, given as a path or as the bare name of one in `list_studies()`."""
    file = _given_file(name)
    if file is not None:
        return file
    known = list_studies()
    if str(name) not in known:
        raise unknown_name("study", str(name), known or ("(none: give the path of a TOML file)",))
    return known[str(name)]


def _given_file(given: str | Path) -> Path | None:
    """The file that is given; None if it is a bare name."""
    path = Path(given)
    if path.is_file():
        return path
    if path.suffix == ".toml" or len(path.parts) > 1:
        raise InputError(f"There is no file {str(path)!r}. Expected the TOML file of a study.")
    return None


def list_studies() -> dict[str, Path]:
    """attnlab's own studies and those of the folder `studies` here, which go first, by name."""
    folders = (_shipped(), Path("studies"))
    found = (file for folder in folders for file in sorted(folder.glob("*.toml")))
    return {file.stem: file for file in found}


def _shipped() -> Path:
    """The folder of attnlab's own studies: inside an installed wheel, else in the checkout."""
    package = Path(__file__).parents[2]
    installed = package / "_studies"
    return installed if installed.is_dir() else package.parents[1] / "studies"
