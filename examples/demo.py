"""`make tour`: put attention into a small network, see what it changes, train it, fold it away.

No data and no download: images and labels are random, so no number here is an accuracy.
"""

from __future__ import annotations

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch import nn

import attnlab

GATES = ("se", "eca", "srm", "dia", "step", "asr:se")
CONSOLE = Console(highlight=False, markup=False)


def main() -> None:
    torch.manual_seed(0)
    net = attnlab.create("resnet20").eval()
    show_steps(net)
    show_gates(net)
    show_stiffness(net)
    show_fold(net)
    print_next()


def show_steps(net: nn.Module) -> None:
    heading("1. A residual network takes steps x_{t+1} = x_t + f(x_t). These were found:")
    print("attnlab.steps(net)\n")
    for step in attnlab.steps(net):
        print(f"  {step}")


def show_gates(net: nn.Module) -> None:
    heading("2. Attention is the size of the step. Each gate, put into a copy of the network:")
    print('attnlab.insert(net, GATE)  and  attnlab.insert(net, GATE, start="identity")\n')
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("gate", "sites", "parameters", "MACs", "output moves by", "start=identity"):
        table.add_column(column, justify="left" if column == "gate" else "right")
    kept = True
    for gate in GATES:
        copy, receipt = attnlab.insert(net, gate)
        kept = kept and net.state_dict().keys() <= copy.state_dict().keys()
        _, identity = attnlab.insert(net, gate, start="identity")
        table.add_row(
            gate,
            str(len(receipt.sites)),
            f"{receipt.parameters_added:+,}",
            f"{receipt.macs_added:+,}",
            f"{receipt.relative_change:.0%}",
            f"{identity.relative_change:.0e}",
        )
    CONSOLE.print(table)
    print(f"Every copy has all state-dict keys of the network: {kept}")


def show_stiffness(net: nn.Module) -> None:
    heading("3. What the gates do to the steps: the stiffness index (NSI) of each, and TNS of all:")
    print("attnlab.stiffness(net, loader)\n")
    loader = [torch.randn(32, 3, 32, 32) for _ in range(2)]
    gates = ("se", "step")
    networks = (net, *(attnlab.insert(net, gate)[0] for gate in gates))
    results = [attnlab.stiffness(network, loader, progress=False) for network in networks]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("step")
    for title in ("no gate", *gates):
        table.add_column(title, justify="right")
    for steps in zip(*(result.nsi for result in results), strict=True):
        table.add_row(steps[0].label, *(f"{step.mean:.3f}" for step in steps))
    table.add_section()
    table.add_row("TNS", *(f"{result.tns:.4f}" for result in results))
    CONSOLE.print(table)
    print("Weights and images are random: this shows the measure, not a finding.")


def show_fold(net: nn.Module) -> None:
    heading("4. 'asr:se' learns a gate that is the same for every image, so it folds away:")
    trained, _ = attnlab.insert(net, "asr:se")
    first, last = train(trained, steps=15)
    print(f"15 steps on random images and labels: loss {first:.2f} → {last:.2f}\n")
    plain, receipt = attnlab.fold(trained.eval())
    print(receipt)
    same = list(plain.state_dict()) == list(net.state_dict())
    print(f"\nState-dict keys are those of the network before insertion: {same}")
    images = torch.randn(1, 3, 32, 32)
    attended, _ = attnlab.insert(net, "se")
    print("Time of one forward run, as a ratio to the plain network, in turns, 95 % interval:")
    for name, network in (("se", attended), ("asr:se", trained), ("asr:se, folded", plain)):
        found = attnlab.latency(net, network, images, seconds=1.5)
        print(f"  {name:16}{found.ratio:.2f}× [{found.low:.2f}, {found.high:.2f}]")


def train(network: nn.Module, steps: int) -> tuple[float, float]:
    """A few steps of SGD on one random batch; the first and the last loss."""
    images, labels = torch.randn(32, 3, 32, 32), torch.randint(10, (32,))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    losses = []
    network.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[0], losses[-1]


def print_next() -> None:
    heading("Next:")
    print("  .venv/bin/attnlab modules                        every gate, its paper, its cost")
    print("  .venv/bin/attnlab try eca timm:resnet50  the same for a network of your own")
    print("  .venv/bin/attnlab stiffness resnet20             the measure of part 3, on your data")
    print("  .venv/bin/attnlab doctor                         what is installed, what is missing")
    print("  make test                                        everything that is promised, checked")


def heading(text: str) -> None:
    print(f"\n{text}")


if __name__ == "__main__":
    main()
