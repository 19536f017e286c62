"""A trained network as a folder that others can load, with a card, and its way to the Hub.

Nothing here goes over the network but `push` and `pull`, which say so by their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from attnlab._errors import InputError, WeightsError
from attnlab._files import write_whole
from attnlab.networks import checkpoint
from attnlab.networks.checkpoint import Description
from attnlab.results.table import StudyTable
from attnlab.surgery.folding import FoldReceipt
from attnlab.surgery.receipt import Receipt

if TYPE_CHECKING:
    from huggingface_hub import HfApi

CARD = "README.md"
WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Verdict:
    """The row of a study that a network belongs to."""

    table: StudyTable
    """`attnlab.lab.study.show_study(...)`."""
    row: str


def save_folder(
    network: nn.Module,
    folder: str | Path,
    description: Description,
    *,
    licence: str,
    receipt: Receipt | None = None,
    folded: FoldReceipt | None = None,
    verdict: Verdict | None = None,
    datasets: Sequence[str] = (),
) -> Path:
    """Write weights and card; return the folder. `attnlab.load(folder)` gives the network back.

    Args:
        network: the network.
        folder: where the files go.
        description: how to build it.
        licence: the licence of the weights, in the Hub's words: "apache-2.0", "mit", "other".
        receipt: the receipt of the insertion.
        folded: the receipt of the fold.
        verdict: the study that compared it.
        datasets: names of the data that it was trained on.
    """
    if not licence:
        raise InputError('Expected a licence in the Hub\'s words, such as "apache-2.0" or "other".')
    out = Path(folder)
    text = card(
        description,
        licence=licence,
        receipt=receipt,
        folded=folded,
        verdict=verdict,
        datasets=datasets,
    )
    checkpoint.save(network, out / WEIGHTS, description)
    write_whole(out / CARD, text)
    return out


def card(
    description: Description,
    *,
    licence: str,
    receipt: Receipt | None = None,
    folded: FoldReceipt | None = None,
    verdict: Verdict | None = None,
    datasets: Sequence[str] = (),
) -> str:
    """The card: what it is, what was done to it, what is known of it, how to load it."""
    import yaml

    head: dict[str, object] = {
        "license": licence,
        "library_name": "attnlab",
        "tags": ["attnlab", *_tags(description)],
    }
    if datasets:
        head["datasets"] = list(datasets)
    gate = "" if description.gate is None else f" with {description.gate}"
    parts = [
        f"---\n{yaml.safe_dump(head, sort_keys=False, allow_unicode=True)}---",
        f"# {description.model}{gate}",
        "```python\nimport attnlab\n\n"
        'network = attnlab.load("FOLDER")  # a clone, or bridges.hub.pull(REPOSITORY)\n'
        "```",
        f"Built by `{description.shown()}`.",
    ]
    if verdict is not None:
        parts += ["## Is it better?", _verdict(verdict)]
    if receipt is not None:
        parts += ["## The gates", f"```text\n{receipt}\n```"]
    if folded is not None:
        parts += ["## Folded", f"```text\n{folded}\n```"]
    return "\n\n".join(parts) + "\n"


def push(
    folder: str | Path, repository: str, *, private: bool = False, api: HfApi | None = None
) -> str:
    """Upload what `save_folder` wrote; return the address. Needs a login (`hf auth login`).

    Args:
        folder: the folder.
        repository: "user/name".
        private: whether only its owner sees it, if it is new.
        api: a `huggingface_hub.HfApi`; a new one unless given.
    """
    out = Path(folder)
    for name in (WEIGHTS, CARD):
        if not (out / name).is_file():
            raise InputError(f"There is no {str(out / name)!r}. save_folder writes it.")
    checkpoint.load(out)  # what cannot be loaded is not sent
    hub = _api(api)
    hub.create_repo(repository, private=private, exist_ok=True)
    return str(
        hub.upload_folder(repo_id=repository, folder_path=str(out), allow_patterns=[WEIGHTS, CARD])
    )


def pull(repository: str, *, revision: str | None = None, api: HfApi | None = None) -> Path:
    """Download a folder that `push` sent; `attnlab.load` reads it. No code is fetched or run."""
    hub = _api(api)
    found = Path(
        hub.snapshot_download(repository, revision=revision, allow_patterns=[WEIGHTS, CARD])
    )
    if not (found / WEIGHTS).is_file():
        raise WeightsError(
            f"{repository!r} has no {WEIGHTS}: attnlab did not write it. For a network of timm, "
            f'attnlab.create("timm:hf-hub:{repository}").'
        )
    return found


def _api(given: HfApi | None) -> HfApi:
    if given is not None:
        return given
    from huggingface_hub import HfApi

    return HfApi()


def _tags(description: Description) -> list[str]:
    return [] if description.gate is None else ["attention"]


def _verdict(verdict: Verdict) -> str:
    metric, level = verdict.table.metric, f"{verdict.table.level:.0%}"
    lines = []
    for group in verdict.table.groups:
        row = next((row for row in group.rows if row.label == verdict.row), None)
        if row is None:
            continue
        value = row.values.get(metric.name)
        if value is None:
            continue
        text = f"{metric.title} {value.text(metric.digits)} over {len(row.seeds)} seeds"
        compared = row.comparison
        if compared is not None:
            text += (
                f"; {metric.difference_text(compared.difference.mean)} against the plain network"
            )
            if compared.low is not None and compared.high is not None:
                interval = metric.interval_text(compared.low, compared.high)
                text += f", {level} interval {interval}"
            text += f": {compared.verdict}"
        lines.append(f"- {group.name}: {text}")
    if not lines:
        rows = dict.fromkeys(row.label for group in verdict.table.groups for row in group.rows)
        raise InputError(
            f"The study {verdict.table.study!r} has no finished row {verdict.row!r}. It has: "
            f"{', '.join(rows)}."
        )
    about = "This network is one of these seeds; the figures are of all of them."
    return "\n".join([*lines, "", about])
