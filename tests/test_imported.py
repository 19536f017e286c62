"""Gates and networks of the user's own, named by where they are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import attnlab
from attnlab._errors import (
    AttnlabError,
    InputError,
    OptionError,
    UnknownNameError,
    WeightsError,
)
from attnlab._imported import import_from, imported, own_folders
from attnlab.cli import main
from attnlab.gates import GATES, VectorGate, build_gate, parse_gate
from attnlab.lab.measures import measure_run
from attnlab.lab.training import RunConfig, train
from attnlab.networks.checkpoint import Description, load, save
from attnlab.subject import load_network

MODULE = """
import torch
from torch import nn
from attnlab.gates import BranchGate, VectorGate

class Halving(BranchGate):
    def __init__(self, channels, power=1.0):
        super().__init__(channels)
        self.weight = nn.Parameter(torch.zeros(channels, 1, 1))
        self.power = power
    def forward(self, branch):
        return 0.5**self.power + self.weight * branch.mean((2, 3), keepdim=True)
    def start_constant(self):
        return 0.5**self.power

class Scaled(VectorGate):
    def __init__(self, channels):
        super().__init__(channels)
        self.weight = nn.Parameter(torch.ones(channels))
    def forward(self, branch):
        return self.of_vector(branch.mean((2, 3)), torch.sigmoid)[:, :, None, None]
    def of_vector(self, vector, activation):
        return activation(self.weight * vector)
    def start_constant(self):
        nn.init.zeros_(self.weight)
        return 0.5

class Small(nn.Module):
    input_size = (3, 8, 8)
    def __init__(self, num_classes=4, width=8):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 1)
        self.branch = nn.Conv2d(width, width, 3, padding=1)
        self.head = nn.Linear(width, num_classes)
    def forward(self, x):
        x = self.stem(x)
        x = x + self.branch(x)
        return self.head(x.mean((2, 3)))

def three():
    return 3
"""


@pytest.fixture(autouse=True)
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_code.py").write_text(MODULE)
    (tmp_path / "their_broken.py").write_text("import no_such_package")
    monkeypatch.syspath_prepend(tmp_path)


def message(kind: type[AttnlabError], function: Callable[[], object]) -> str:
    with pytest.raises(kind) as error:
        function()
    return str(error.value)


def test_a_gate_by_its_path() -> None:
    gate = build_gate("their_code.Halving", 6, power=2.0)
    assert torch.equal(gate(torch.randn(2, 6, 3, 3)), torch.full((2, 6, 1, 1), 0.25))
    assert [str(spec) for spec in parse_gate("asr:their_code.Scaled*2+se")] == [
        "asr:their_code.Scaled*2",
        "se",
    ]
    gated, receipt = attnlab.insert(attnlab.create("resnet20").eval(), "asr:their_code.Scaled")
    assert len(receipt.sites) == 9
    _, folded = attnlab.fold(gated)
    assert folded.parameters_after == receipt.parameters_before
    assert folded.float64_change is not None
    assert folded.float64_change < 1e-12


def test_a_network_by_its_path(tmp_path: Path) -> None:
    network = attnlab.create("their_code.Small", 7, width=5)
    assert network.head.weight.shape == (7, 5)
    assert attnlab.create("their_code.Small").head.out_features == 4
    save_file(network.state_dict(), tmp_path / "w.safetensors")
    again = attnlab.create("their_code.Small", 7, tmp_path / "w.safetensors", width=5)
    assert torch.equal(again.head.weight, network.head.weight)
    assert [step.channels for step in attnlab.steps(network)] == [5]


def test_what_is_said_about_wrong_paths() -> None:
    create = attnlab.create
    assert message(UnknownNameError, lambda: parse_gate("their_gates.Halving")[0].info) == (
        "There is no module 'their_gates' for the gate 'their_gates.Halving'. Install it, or put "
        "the folder that holds it on PYTHONPATH; for a study, also --import-from FOLDER."
    )
    assert message(UnknownNameError, lambda: build_gate("their_code.Halfing", 3)) == (
        "Module 'their_code' has no subclass of torch.nn.Module named 'Halfing' for the gate "
        "'their_code.Halfing'. Did you mean 'Halving'?"
    )
    assert message(OptionError, lambda: build_gate("their_code.Small", 3)) == (
        "Expected the gate 'their_code.Small' to be a subclass of attnlab.gates.BranchGate, "
        "StepGate or StageGate but got <class 'their_code.Small'>."
    )
    assert message(OptionError, lambda: build_gate("asr:their_code.Halving", 3)) == (
        "'asr:their_code.Halving' does not exist: it is not a VectorGate. "
        f"ASR takes: {', '.join(name for name, info in GATES.items() if info.on_vector)}."
    )
    assert message(UnknownNameError, lambda: create("their_nets.Small")) == (
        "There is no module 'their_nets' for the network 'their_nets.Small'. Install it, or put "
        "the folder that holds it on PYTHONPATH; for a study, also --import-from FOLDER."
    )
    assert message(OptionError, lambda: create("their_code.Small", widht=3)) == (
        "Network 'their_code.Small' has no option 'widht'. Did you mean 'width'? "
        "It takes: num_classes, width."
    )
    assert message(UnknownNameError, lambda: create("./runs/x.pth")) == (
        "Expected the network './runs/x.pth' to be a name that comes with attnlab, or a class of "
        "your own as 'module.Class'."
    )
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        create("their_broken.Small")  # the module is there: what is wrong in it is its own


def test_only_modules_are_called(tmp_path: Path) -> None:
    """A run's settings may be a stranger's: they must not be able to run a program."""
    made = tmp_path / "made"
    for path, options in (
        ("subprocess.Popen", {"args": ["touch", str(made)]}),
        ("os.system", {"command": f"touch {made}"}),
        ("their_code.three", {}),
    ):
        module, _, name = path.rpartition(".")
        said = message(UnknownNameError, lambda: attnlab.create(path, **options))  # noqa: B023
        own = module == "their_code"
        why = f"no subclass of torch.nn.Module named {name!r}" if own else "is a part of Python"
        assert said.startswith(f"Module {module!r} ")
        assert why in said
    assert not made.exists()


def test_the_class_must_be_a_subclass_of_what_is_asked_for() -> None:
    small = imported("network", "their_code.Small")
    assert imported("gate", "their_code.Scaled", VectorGate).__name__ == "Scaled"
    assert imported("network", "their_code.Small", torch.nn.Module) is small
    assert message(UnknownNameError, lambda: imported("gate", "their_code.Smal", VectorGate)) == (
        "Module 'their_code' has no subclass of attnlab.gates.VectorGate named 'Smal' for the "
        "gate 'their_code.Smal'."
    )
    optimiser = "their_code.Small"
    assert message(
        UnknownNameError, lambda: imported("optimiser", optimiser, torch.optim.Optimizer)
    ) == (
        "Module 'their_code' has no subclass of torch.optim.Optimizer named 'Small' for the "
        "optimiser 'their_code.Small'."
    )
    assert message(UnknownNameError, lambda: imported("error", "torch.nn.Linear", Theirs)) == (
        f"Module 'torch.nn' has no subclass of {__name__}.Theirs named 'Linear' for the error "
        f"'torch.nn.Linear'."
    )


class Theirs:
    """A base that no package hands on."""


def test_a_run_with_both_trains_loads_and_folds(tmp_path: Path) -> None:
    config = RunConfig(
        data={"name": "digits", "train_subset": 40, "test_subset": 20},
        backbone="their_code.Small",
        attention="asr:their_code.Scaled",
        recipe={"name": "digits", "epochs": 1, "warmup_epochs": 0, "batch_size": 20},
    )
    train(config, tmp_path / "run", threads=1, progress=lambda _: None)
    folded = measure_run(tmp_path / "run", only=["fold"])["fold"]
    assert folded.found is not None
    assert folded.found["float64_change"] < 1e-10
    network = load_network(tmp_path / "run")
    assert network.head.out_features == 10
    main(["fold", str(tmp_path / "run"), "--trust", "-o", str(tmp_path / "plain.safetensors")])
    plain = attnlab.create("their_code.Small", 10, tmp_path / "plain.safetensors").eval()
    images = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(plain(images), network(images))


def test_a_file_of_weights_alone_imports_nothing(tmp_path: Path) -> None:
    description = Description("their_code.Small", 4, gate="se+their_code.Halving")
    save(description.build(), tmp_path / "w.safetensors", description)
    path = str(tmp_path / "w.safetensors")
    assert message(WeightsError, lambda: load(path)) == (
        f"{path!r} names classes that are not attnlab's (their_code.Small, their_code.Halving), "
        "and a file of weights may not have code imported. If you trust them, pass trust=True, in "
        "a command --trust."
    )
    assert load(path, description).head.out_features == 4
    assert load(path, trust=True).head.out_features == 4
    # A tag of timm has a dot as well, and names no code.
    assert Description("timm:resnet18.a1_in1k").own_classes == []


def test_a_command_on_a_file_imports_nothing_unless_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    description = Description("their_code.Small", 4, gate="asr:their_code.Scaled")
    path = save(description.build(), tmp_path / "w.safetensors", description)
    del sys.modules["their_code"]
    command = ["fold", str(path), "-o", str(tmp_path / "plain.safetensors")]
    with pytest.raises(SystemExit):
        main(command)
    assert (
        "may not have code imported. If you trust them, pass trust=True, in a command --trust"
        in (capsys.readouterr().err)
    )
    assert "their_code" not in sys.modules
    main([*command, "--trust"])
    assert (tmp_path / "plain.safetensors").is_file()


@pytest.mark.parametrize("path", ["antigravity.Net", "this.Net", "collections.OrderedDict"])
def test_modules_of_python_itself_are_not_even_imported(path: str) -> None:
    module = path.partition(".")[0]
    before = sys.modules.pop(module, None)
    try:
        with pytest.raises(UnknownNameError) as raised:
            imported("network", path)
        assert module not in sys.modules
    finally:
        if before is not None:
            sys.modules[module] = before
    assert str(raised.value) == (
        f"Module {module!r} is a part of Python itself and holds no network, so {path!r} is not "
        f"imported. Expected a class of your own as 'module.Class'."
    )


def test_a_folder_to_import_from_goes_behind_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    before = [*sys.path]
    monkeypatch.setattr(sys, "path", [*before])
    import_from(folder)
    assert sys.path == [*before, str(folder.resolve())]
    assert str(folder.resolve()) in own_folders()
    assert [folder for folder in own_folders() if "site-packages" in folder] == []
    with pytest.raises(InputError) as raised:
        import_from(tmp_path / "none")
    assert str(raised.value) == f"There is no folder {str(tmp_path / 'none')!r} to import from."
