"""What a command makes of the words that it was given, without running an instrument."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from attnlab._errors import OptionError, WeightsError
from attnlab.cli.driver import Asking, Opening, Process, as_command, command_line
from attnlab.instruments.registry import Instrument

INSTRUMENT = Instrument("look", "nowhere", "looks", "attnlab look resnet20", comparison="m.compare")


def asking(*sources: str, **opened: object) -> Asking:
    return Asking(INSTRUMENT, sources, opened, {"draws": 3}, {})


def test_each_network_has_its_weights_and_the_options_of_all() -> None:
    both = list(asking("a", "b", weights=("a.pth", "none"), data="digits").each())
    assert both == [
        Opening("a", {"data": "digits", "weights": "a.pth"}),
        Opening("b", {"data": "digits"}),
    ]
    assert list(asking("a", "b").each()) == [Opening("a", {}), Opening("b", {})]
    with pytest.raises(OptionError) as error:
        list(asking("a", "b", weights=("a.pth",)).each())
    assert str(error.value) == (
        "Expected one of --weights per network but got 1 for 2 networks; write none for a network "
        "without."
    )
    with pytest.raises(OptionError, match="at least one network, for example: attnlab look res"):
        list(asking().each())


def test_words_that_are_no_network_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for word, message in (
        ("digits", "'digits' is a data set and not a network: --data digits."),
        ("se", "'se' is a gate and not a network: --gate se."),
    ):
        with pytest.raises(OptionError) as error:
            asking("resnet20", word).check()
        assert str(error.value) == message
    asking("resnet20").check()


def test_folders_of_several_networks_are_told_apart() -> None:
    assert asking("runs/a").folder_of("runs/a") == ""
    several = asking("runs/a", "timm:resnet18", "other/a")
    assert [several.folder_of(each) for each in several.sources] == ["a-1", "timm-resnet18", "a-3"]


def test_the_python_that_does_the_same() -> None:
    assert asking("a", data="digits").python() == [
        "import attnlab",
        "result = attnlab.look(attnlab.open('a', data='digits'), draws=3)",
    ]
    several = replace(asking("a", "b", weights=("none", "b.pth")), compared={"level": 0.9})
    opened = "attnlab.open('a'), attnlab.open('b', weights='b.pth')"
    assert several.python() == [
        "import attnlab",
        f"subjects = [{opened}]",
        "results = [attnlab.look(each, draws=3) for each in subjects]",
        "comparison = m.compare(subjects, results, level=0.9)",
    ]
    alone = replace(several, instrument=replace(INSTRUMENT, comparison="", function="look_at"))
    assert alone.python()[2:] == ["results = [attnlab.look_at(each, draws=3) for each in subjects]"]


def test_weights_are_not_written_over_what_is_read(tmp_path: Path) -> None:
    run, weights = tmp_path / "run", tmp_path / "a.safetensors"
    run.mkdir()
    (run / "model.safetensors").touch()
    weights.touch()
    named = Opening("resnet20", {"weights": str(weights)})
    assert named.is_name
    assert not Opening(str(run), {}).is_name
    for opening, output in ((Opening(str(run), {}), run / "model.safetensors"), (named, weights)):
        with pytest.raises(OptionError) as error:
            opening.check_output(output)
        assert str(error.value) == (
            f"-o {output} would be written over what is read. Give another name."
        )
    for output in (None, tmp_path / "b.safetensors", run / "new.safetensors"):
        named.check_output(output)
    named.check_output(run / "model.safetensors")  # there, and not what is read
    with pytest.raises(OptionError, match=r"Expected -o to end in .safetensors but got"):
        named.check_output(tmp_path / "b.pth")
    with pytest.raises(WeightsError, match="There is no folder"):
        named.check_output(tmp_path / "no" / "b.safetensors")


def test_a_process_has_its_threads_and_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    before, set_to = list(sys.path), []
    monkeypatch.setattr(torch, "set_num_threads", set_to.append)
    Process().prepare()
    assert (sys.path, set_to) == (before, [])
    Process(tmp_path, 1).prepare()
    assert (sys.path, set_to) == ([str(tmp_path), *before], [1])
    with pytest.raises(OptionError, match="Expected --threads to be at least 1 but got 0"):
        Process(threads=0).prepare()
    with pytest.raises(OptionError, match=r"There is no folder '.*no' to import from"):
        Process(tmp_path / "no").prepare()


def test_a_command_is_known_while_it_runs() -> None:
    assert command_line() == ""
    with as_command(["look", "my net"]):
        assert command_line() == "attnlab look 'my net'"
    assert command_line() == ""
