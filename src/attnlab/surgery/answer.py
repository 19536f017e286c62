"""What a network answers on an example, as far as two answers can be compared, and whether it is
right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, fields, is_dataclass, replace

from torch import Tensor, equal, nn, no_grad

from attnlab._errors import InputError
from attnlab.gates import InstanceEnhancementBatchNorm
from attnlab.residuals.attachment import Attachment
from attnlab.residuals.example import Example, MacCounter, Run, call, evaluating, unfused
from attnlab.residuals.listing import list_modules
from attnlab.residuals.selection import Call, before_selection, returns_sets, work_depends_on_values


@dataclass(frozen=True)
class Answer:
    """The output of one run, and what chosen modules returned in it."""

    output: object
    macs: int
    """Multiply-accumulates, for the whole example."""
    gate_macs: int = 0
    """The MACs of the gates among them."""
    seen: Mapping[Call, Tensor] = field(default_factory=dict)


def answer(
    model: nn.Module, example: Example | None, calls: Sequence[Call] = (), *, counted: bool = True
) -> Answer:
    """Run `model` once, in eval mode; `calls` of its modules are looked at. Modules that the
    network no longer has are passed over. Multiply-accumulates are 0 if they are not counted."""
    seen: dict[Call, Tensor] = {}
    modules = dict(model.named_modules()) if calls else {}
    counter = MacCounter()
    gates = _Gates(counter)
    with ExitStack() as hooks:
        for module in gate_modules(model) if counted else ():
            hooks.enter_context(module.register_forward_pre_hook(gates.entered))
            hooks.enter_context(module.register_forward_hook(gates.left))
        for name in dict.fromkeys(name for name, _ in calls):
            if name in modules:
                keep = _keep(name, set(calls), seen)
                hooks.enter_context(modules[name].register_forward_hook(keep))
        # Counting sees every operation, which doubles the time of a network of small ones.
        with evaluating(model), counter if counted else nullcontext():
            output = call(model, example)
    return Answer(output, counter.macs, gates.macs, seen)


def answer_with(
    model: nn.Module,
    example: Example | None,
    calls: Sequence[Call],
    before: Answer,
    came: Sequence[nn.Module],
) -> Answer:
    """The answer of a network that was `before`, now that modules `came` into it: they compute what
    it did not compute then, and multiply-accumulates are counted in them alone."""
    counter = MacCounter()
    within = _Within(counter)
    with ExitStack() as hooks:
        # First in, last out: a counter that is left here because a module raised puts back what it
        # found, which is without fused layers.
        hooks.enter_context(unfused())
        hooks.callback(within.stop)
        for module in came:
            hooks.enter_context(module.register_forward_pre_hook(within.entered))
            hooks.enter_context(module.register_forward_hook(within.left))
        plain = answer(model, example, calls, counted=False)
    return replace(
        plain, macs=before.macs + counter.macs, gate_macs=before.gate_macs + counter.macs
    )


def gate_modules(model: nn.Module) -> list[nn.Module]:
    """The gates in `model`, and its norms with a gate inside."""
    kinds = Attachment | InstanceEnhancementBatchNorm
    return [module for _, module in list_modules(model) if isinstance(module, kinds)]


def answer_of_run(
    run: Run, model: nn.Module, example: Example | None, calls: Sequence[Call]
) -> Answer:
    """The answer of a recorded run; of another one, where more than its output is needed."""
    if calls or work_depends_on_values(run.graph):
        return answer(model, example, calls)
    return Answer(run.output, run.macs, run.gate_macs)


def calls_to_compare(run: Run) -> tuple[Call, ...]:
    """The calls whose results are compared in place of the output: what the network selected from
    if it returns a set, or if its output has no numbers. Else none: the output is compared.

    Experts choose among tokens, but a network that answers each token of a text returns no set.
    """
    found = [tensor for _, tensor in leaves(run.output) if tensor.numel() and is_number(tensor)]
    tokens = {n.shape for n in run.graph.nodes if n.operation == "input" and not n.floating}
    if any(len(tensor.shape) > 2 and tuple(tensor.shape[:2]) in tokens for tensor in found):
        return ()
    return () if found and not returns_sets(run.graph) else before_selection(run.graph)


def is_number(tensor: Tensor) -> bool:
    """Return whether a distance of its values makes sense: not of classes, indices and masks."""
    return tensor.is_floating_point() or tensor.is_complex()


def leaves(tree: object, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors in nested dictionaries, lists, tuples and dataclasses, each with its place."""
    if isinstance(tree, Tensor):
        yield path, tree
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from leaves(value, f"{path}[{key!r}]")
    elif isinstance(tree, list | tuple):
        for number, value in enumerate(tree):
            yield from leaves(value, f"{path}[{number}]")
    elif is_dataclass(tree) and not isinstance(tree, type):
        for each in fields(tree):
            yield from leaves(getattr(tree, each.name), f"{path}.{each.name}")


def accuracy(answers: Tensor, labels: Tensor) -> float:
    """Per cent of the images whose largest answer is that of their label."""
    check_labels(answers, labels)
    return 100 * float(right_answers(answers, labels).double().mean())


def right_answers(answers: Tensor, labels: Tensor) -> Tensor:
    """Return whether the largest answer is that of the label, for each image: on the CPU."""
    return answers.argmax(1).cpu() == labels.cpu()


def check_labels(answers: Tensor, labels: Tensor) -> None:
    """Refuse labels that the network has no answer for."""
    if not 0 <= int(labels.min()) <= int(labels.max()) < answers.shape[1]:
        raise InputError(
            f"Expected labels from 0 to {answers.shape[1] - 1}, one for each of the network's "
            f"{answers.shape[1]} answers, but got {int(labels.min())} to {int(labels.max())}."
        )


def same_answers(one: nn.Module, other: nn.Module, images: Tensor) -> bool:
    """Return whether two networks answer the same to `images`, bit for bit."""
    with no_grad():
        first, second = (dict(leaves(network(images))) for network in (one, other))
    return first.keys() == second.keys() and all(
        equal(first[place], second[place]) for place in first
    )


class _Within:
    """Counts while one of some modules runs. A counter sees every operation, which doubles the time
    of a network of small ones."""

    def __init__(self, counter: MacCounter) -> None:
        self.counter = counter
        self.running = 0

    def entered(self, _module: nn.Module, _arguments: object) -> None:
        if not self.running:
            self.counter.__enter__()
        self.running += 1

    def left(self, _module: nn.Module, _arguments: object, _output: object) -> None:
        self.running -= 1
        if not self.running:
            self.counter.__exit__(None, None, None)

    def stop(self) -> None:
        """Leave it, if a module raised."""
        if self.running:
            self.running = 1
            self.left(nn.Module(), None, None)


class _Gates:
    """Counts what the gates of a network compute."""

    def __init__(self, counter: MacCounter) -> None:
        self.counter = counter
        self.before = 0
        self.macs = 0

    def entered(self, _module: nn.Module, _arguments: object) -> None:
        self.before = self.counter.macs

    def left(self, _module: nn.Module, _arguments: object, _output: object) -> None:
        self.macs += self.counter.macs - self.before


def _keep(name: str, calls: set[Call], seen: dict[Call, Tensor]) -> Callable[..., None]:
    count: Counter[str] = Counter()

    def hook(_module: nn.Module, _arguments: object, output: object) -> None:
        call = (name, count[name])
        count[name] += 1
        if call in calls and isinstance(output, Tensor) and is_number(output):
            seen[call] = output.detach().clone()  # it may be written to afterwards

    return hook
