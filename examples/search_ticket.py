"""LTH4SA: does a search find blocks in which attention does better than in blocks that are drawn?

    python examples/search_ticket.py                     94 s of processor time on one core
    python examples/search_ticket.py --seeds 5 --out runs

Digits, ResNet-20, SE in one of the three blocks of every stage: 27 codes of equal cost. Fixed
before the first run:

* A supernet with SE in all nine blocks is trained for five epochs on three quarters of the training
  digits; at every step each gate is on with probability one half, as in the paper's supernet. A
  code's reward is minus the loss of the supernet with that code on the other quarter.
* Three searches: a policy (REINFORCE over one softmax for each stage, its mean reward as baseline),
  which asks for at most 9 rewards, because it may settle before, and proposes the best that it saw;
  9 codes that are drawn without repetition, of which the best is proposed, at the same cost; and
  all 27, the best that any search can do by this reward.
* The proposed codes and four that are drawn without looking are trained from scratch, five epochs,
  on all training digits, with the recipe of the small studies and the same seed. Test top-1 of each
  proposal minus the mean of the four, by seed, with a 95 % interval and Holm's correction over the
  three.

Simpler than the paper's: no bonus for novelty, no reward for sparsity, since the cost is fixed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import attnlab
from attnlab.data import Data, DataConfig, load_data
from attnlab.data.batches import Chunk
from attnlab.gates import BranchGate, SqueezeExcitation
from attnlab.lab.statistics import judge_differences, paired_difference, summarize
from attnlab.lab.training import RunConfig, identify, train

Code = tuple[int, ...]
"""The block of each stage that has a gate."""
CODES: list[Code] = list(product(range(3), repeat=3))
ASKED = 9
DRAWN = 4
EPOCHS = 5
BATCH = 64


class Switched(BranchGate):
    """SE that can be switched off: a gate of ones."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.gate = SqueezeExcitation(channels)
        self.on = True

    def forward(self, branch: Tensor) -> Tensor:
        gate = self.gate(branch)
        return gate if self.on else torch.ones_like(gate)

    def start_constant(self) -> float:
        return self.gate.start_constant()


def bits(code: Code) -> list[bool]:
    """One for each block of the network."""
    return [block == chosen for chosen in code for block in range(3)]


def where(code: Code) -> str:
    """The code as `insert` reads it."""
    return "code:" + "".join(str(int(bit)) for bit in bits(code))


def switch(supernet: nn.Module, on: Sequence[bool]) -> None:
    """Which gates act."""
    gates = [module for module in supernet.modules() if isinstance(module, Switched)]
    for gate, bit in zip(gates, on, strict=True):
        gate.on = bit


def trained_supernet(data: Data, mine: Tensor, seed: int) -> nn.Module:
    """Half of the gates on at every step, drawn anew."""
    torch.manual_seed(seed)
    plain = attnlab.create("resnet20", data.facts.outputs, in_channels=data.facts.shape[0])
    supernet, _ = attnlab.insert(plain, Switched, example=data.facts.example())
    draws = torch.Generator().manual_seed(seed)
    steps = EPOCHS * -(-len(mine) // BATCH)
    optimizer = torch.optim.SGD(supernet.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for epoch in range(EPOCHS):
        order = mine[torch.randperm(len(mine), generator=draws)]
        chunks = [Chunk(chunk, 1.0) for chunk in order.split(BATCH)]
        for batch in data.training(chunks, seed, epoch, torch.device("cpu")):
            switch(supernet, (torch.rand(9, generator=draws) < 0.5).tolist())
            optimizer.zero_grad()
            F.cross_entropy(supernet(batch.inputs), batch.targets).backward()
            optimizer.step()
            schedule.step()
    return supernet.eval()


def rewards(supernet: nn.Module, data: Data, held_out: Tensor, seed: int) -> dict[Code, float]:
    """Of every code, on the images that the supernet did not see."""
    chunk = [Chunk(held_out, 1.0)]
    (batch,) = data.training(chunk, seed, 0, torch.device("cpu"))
    found = {}
    for code in CODES:
        switch(supernet, bits(code))
        with torch.no_grad():
            found[code] = -F.cross_entropy(supernet(batch.inputs), batch.targets).item()
    return found


def policy(reward: Callable[[Code], float], asked: int, generator: torch.Generator) -> Code:
    """REINFORCE; the best of the codes that it asked for."""
    scores = torch.zeros(3, 3, requires_grad=True)
    optimizer = torch.optim.Adam([scores], lr=0.3)
    seen: dict[Code, float] = {}
    tries = 0
    while len(seen) < asked and tries < 100 * asked:  # a code that is known costs nothing again
        tries += 1
        choice = torch.multinomial(scores.detach().softmax(1), 1, generator=generator)
        code = cast(Code, tuple(choice.flatten().tolist()))
        baseline = fmean(seen.values()) if seen else None
        seen.setdefault(code, reward(code))
        if baseline is None:
            continue
        chance = scores.log_softmax(1).gather(1, choice).sum()
        optimizer.zero_grad()
        (-(seen[code] - baseline) * chance).backward()
        optimizer.step()
    return max(seen, key=lambda each: seen[each])


def proposals(of: dict[Code, float], seed: int) -> dict[str, list[Code]]:
    """The code of every search, and the codes that are drawn without looking."""
    generator = torch.Generator().manual_seed(seed)
    order = [CODES[place] for place in torch.randperm(len(CODES), generator=generator)]
    return {
        "policy": [policy(of.__getitem__, ASKED, generator)],
        "random search": [max(order[:ASKED], key=lambda code: of[code])],
        "all 27": [max(of, key=lambda code: of[code])],
        "drawn": order[-DRAWN:],
    }


def accuracy(code: Code, seed: int, out: Path) -> float:
    """Test top-1 in percent of the network that is trained from scratch with a code's gates."""
    config = RunConfig(
        data=DataConfig(name="digits"),
        backbone="resnet20",
        attention="se",
        where=where(code),
        seed=seed,
        recipe={"name": "digits", "epochs": EPOCHS},
    )
    folder = out / identify(config, threads=1).run_id
    result = train(config, folder, threads=1, progress=lambda _: None)
    top1 = result.values["top1"]
    if top1 is None:
        raise SystemExit(f"{folder} has no top-1.")
    return 100 * top1


def main() -> None:
    """Search and train for every seed, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    data = load_data(DataConfig(name="digits"))
    found: dict[str, dict[int, float]] = {}
    reward: dict[str, dict[int, float]] = {}
    for seed in range(asked.seeds):
        order = torch.randperm(data.facts.train, generator=torch.Generator().manual_seed(seed))
        held_out, mine = order.tensor_split([data.facts.train // 4])
        of = rewards(trained_supernet(data, mine, seed), data, held_out, seed)
        for search, codes in proposals(of, seed).items():
            values = [accuracy(code, seed, asked.out) for code in codes]
            found.setdefault(search, {})[seed] = fmean(values)
            reward.setdefault(search, {})[seed] = fmean(of[code] for code in codes)
            print(seed, search, [where(code) for code in codes], values, flush=True)
    report(found, reward)


def report(found: dict[str, dict[int, float]], reward: dict[str, dict[int, float]]) -> None:
    """The table: reward in the supernet, top-1, and the difference to codes that are drawn."""
    drawn = found["drawn"]
    far = {name: paired_difference(each, drawn) for name, each in found.items() if name != "drawn"}
    judged = judge_differences(far)
    print("| search | reward | top-1 | minus drawn | p (Holm) | verdict |")
    print("| --- | ---: | ---: | ---: | ---: | --- |")
    for name, each in found.items():
        seen, top1 = (list(values.values()) for values in (reward[name], each))
        cells = [summarize(seen).text(3), summarize(top1).text()]
        if name in judged:
            own = judged[name].difference
            p = judged[name].adjusted_p
            cells += [f"{own.mean:+.2f} [{own.low or 0:+.2f}, {own.high or 0:+.2f}]"]
            cells += ["" if p is None else f"{p:.3f}", judged[name].verdict]
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
