"""Packages that only some parts need: `pip install 'attnlab[study]'`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from attnlab._errors import AttnlabError

DISTRIBUTIONS = {
    "lightning_fabric": "lightning-fabric",
    "pyarrow": "pyarrow",
    "scipy": "scipy",
    "segmentation_models_pytorch": "segmentation-models-pytorch",
    "sklearn": "scikit-learn",
    "tokenizers": "tokenizers",
    "transformers": "transformers",
    "vl_convert": "vl-convert-python",
}
"""The name of the package for pip, by the name that is imported."""


class MissingPackageError(AttnlabError, ImportError):
    """A package that is needed for this and not installed; the message says how to install it."""


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Around the import of a package that comes with `extra`."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in DISTRIBUTIONS:
            raise
        raise _missing(package, extra) from None


def check_extra(extra: str, *packages: str) -> None:
    """Refuse, before anything takes time, what would need a package of `extra` at its end. They are
    not imported."""
    for package in packages:
        if find_spec(package) is None:
            raise _missing(package, extra)


def _missing(package: str, extra: str) -> MissingPackageError:
    return MissingPackageError(
        f"This needs {DISTRIBUTIONS[package]}, which is not installed: "
        f"pip install 'attnlab[{extra}]'."
    )
