"""Folders with a card, and a double of the Hub."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import yaml

import attnlab
from attnlab import AttnlabError
from attnlab.bridges.hub import Verdict, card, pull, push, save_folder
from attnlab.lab.statistics import judge_differences, paired_difference, summarize
from attnlab.networks.checkpoint import Description
from attnlab.results import Metric
from attnlab.results.table import Group, StudyRow, StudyTable


class LocalHub:
    """A folder that behaves as the Hub does."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> None:
        assert exist_ok
        assert not private
        (self.root / repo_id).mkdir(parents=True, exist_ok=True)

    def upload_folder(self, *, repo_id: str, folder_path: str, allow_patterns: list[str]) -> str:
        for name in allow_patterns:
            shutil.copy(Path(folder_path) / name, self.root / repo_id / name)
        return f"https://hub.example/{repo_id}"

    def snapshot_download(
        self, repo_id: str, *, revision: str | None, allow_patterns: list[str]
    ) -> str:
        del revision, allow_patterns
        return str(self.root / repo_id)


def table() -> StudyTable:
    metric = Metric(name="top1", label="top-1", unit="%")
    plain, se = {0: 70.0, 1: 71.0, 2: 70.5}, {0: 72.0, 1: 72.8, 2: 72.6}
    (comparison,) = judge_differences({"SE": paired_difference(se, plain)}).values()
    rows = tuple(
        StudyRow(
            label,
            label == "plain",
            (0, 1, 2),
            (),
            values={"top1": summarize(list(values.values()))},
            by_seed=values,
            comparison=None if label == "plain" else comparison,
        )
        for label, values in (("plain", plain), ("SE", se))
    )
    group = Group("digits resnet20", "digits", "resnet20", rows)
    return StudyTable(
        study="demo",
        title="demo",
        level=0.95,
        metrics=(metric,),
        groups=(group,),
        paper_source="",
        paper_note="",
    )


def test_round_trip_to_the_bit(tmp_path: Path) -> None:
    torch.manual_seed(0)
    description = Description("resnet20", num_classes=10, gate="se")
    network, receipt = attnlab.insert(attnlab.create("resnet20", 10), "se", place="branch")
    folder = save_folder(
        network.eval(),
        tmp_path / "out",
        description,
        licence="apache-2.0",
        receipt=receipt,
        verdict=Verdict(table(), "SE"),
        datasets=["digits"],
    )
    hub = LocalHub(tmp_path / "hub")
    (folder / "secret.txt").write_text("not to be sent")
    assert push(folder, "me/net", api=hub) == "https://hub.example/me/net"
    assert sorted(p.name for p in (tmp_path / "hub/me/net").iterdir()) == [
        "README.md",
        "model.safetensors",
    ]
    again = attnlab.load(pull("me/net", api=hub))
    assert again.state_dict().keys() == network.state_dict().keys()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(again(images), network(images))
    text = (folder / "README.md").read_text()
    _, head, body = text.split("---\n", 2)
    assert yaml.safe_load(head) == {
        "license": "apache-2.0",
        "library_name": "attnlab",
        "tags": ["attnlab", "attention"],
        "datasets": ["digits"],
    }
    # The mean of 2, 1.8 and 2.1, and Student's interval with two degrees of freedom.
    assert (
        "- digits resnet20: top-1 % 72.47 ± 0.42 over 3 seeds; +1.97 pt against the plain network, "
        "95% interval [+1.59, +2.35]: better"
    ) in body
    assert "inserted se into ResNet" in body


def test_a_folded_network_says_so(tmp_path: Path) -> None:
    network, _ = attnlab.insert(attnlab.create("resnet20", 10), "asr:se", place="branch")
    plain, folded = attnlab.fold(network.eval())
    description = Description("resnet20", num_classes=10, gate="asr:se").after_fold(plain, folded)
    folder = save_folder(plain, tmp_path, description, licence="mit", folded=folded)
    assert "## Folded" in (folder / "README.md").read_text()
    attnlab.load(folder)


def test_the_card_of_a_plain_network_claims_no_gate() -> None:
    text = card(Description("resnet20", num_classes=10), licence="other")
    assert text == (
        "---\nlicense: other\nlibrary_name: attnlab\ntags:\n- attnlab\n---\n\n# resnet20\n\n"
        '```python\nimport attnlab\n\nnetwork = attnlab.load("FOLDER")  # a clone, or '
        "bridges.hub.pull(REPOSITORY)\n```\n\nBuilt by `Description('resnet20', num_classes=10)`.\n"
    )


def test_a_card_says_what_is_known_of_each_group() -> None:
    """Without an interval it has none, and a group that has no result of the row is left out."""
    found = table()
    (group,) = found.groups
    plain, se = group.rows
    (once,) = judge_differences({"SE": paired_difference({0: 72.0}, {0: 70.0})}).values()
    alone = replace(se, seeds=(0,), values={"top1": summarize([72.0])}, comparison=once)
    groups = (
        replace(group, name="one seed", rows=(plain, alone)),
        replace(group, name="not finished", rows=(plain, replace(se, values={}))),
        replace(group, name="another", rows=(plain,)),
    )
    text = card(
        Description("resnet20"),
        licence="other",
        verdict=Verdict(replace(found, groups=groups), "SE"),
    )
    assert text.endswith(
        "## Is it better?\n\n- one seed: top-1 % 72.00 over 1 seeds; +2.00 pt against the plain "
        "network: cannot tell\n\n"
        "This network is one of these seeds; the figures are of all of them.\n"
    )
    text = card(Description("resnet20"), licence="other", verdict=Verdict(found, "plain"))
    assert "- digits resnet20: top-1 % 70.50 ± 0.50 over 3 seeds\n\n" in text


def test_what_the_hub_is_asked(tmp_path: Path) -> None:
    class Noting(LocalHub):
        asked: ClassVar[dict[str, object]] = {}

        def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> None:
            self.asked["private"] = private
            super().create_repo(repo_id, private=False, exist_ok=exist_ok)

        def snapshot_download(
            self, repo_id: str, *, revision: str | None, allow_patterns: list[str]
        ) -> str:
            self.asked.update(revision=revision, files=sorted(allow_patterns))
            return super().snapshot_download(
                repo_id, revision=revision, allow_patterns=allow_patterns
            )

    hub, description = Noting(tmp_path / "hub"), Description("resnet20", num_classes=10)
    save_folder(attnlab.create("resnet20", 10), tmp_path / "out", description, licence="mit")
    push(tmp_path / "out", "me/net", private=True, api=hub)
    pull("me/net", revision="v1", api=hub)
    assert hub.asked == {
        "private": True,
        "revision": "v1",
        "files": ["README.md", "model.safetensors"],
    }


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda folder: push(folder, "a/b", api=LocalHub(folder)),
            "There is no '{folder}/model.safetensors'. save_folder writes it.",
        ),
        (
            lambda folder: pull("a/b", api=LocalHub(folder)),
            "'a/b' has no model.safetensors: attnlab did not write it. For a network of timm, "
            'attnlab.create("timm:hf-hub:a/b").',
        ),
        (
            lambda folder: save_folder(
                attnlab.create("resnet20"), folder, Description("resnet20"), licence=""
            ),
            'Expected a licence in the Hub\'s words, such as "apache-2.0" or "other".',
        ),
        (
            lambda folder: save_folder(
                attnlab.create("resnet20"),
                folder,
                Description("resnet20"),
                licence="mit",
                verdict=Verdict(table(), "CBAM"),
            ),
            "The study 'demo' has no finished row 'CBAM'. It has: plain, SE.",
        ),
    ],
)
def test_refusals(make: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(AttnlabError) as caught:
        make(tmp_path)
    assert str(caught.value) == message.replace("{folder}", str(tmp_path))
