"""Parts of a budget, each against its formula: costs and their bound, the halves, the statistics of
norms, the running means of gates."""

from __future__ import annotations

from math import inf, log, nan, sqrt

import pytest
import torch
from scipy import stats
from torch import nn

from attnlab._errors import InputError, UnknownNameError
from attnlab.surgery.folding._cost import Judge, check_cost
from attnlab.surgery.folding._fit import _Energy, _least_squares
from attnlab.surgery.folding._halves import Halves, Part, halves, in_two
from attnlab.surgery.folding._norms import Norms, set_statistics, with_statistics
from attnlab.surgery.folding._taps import Tap


def test_the_bound_is_one_sided_and_holds_95_of_100() -> None:
    torch.manual_seed(0)
    change = torch.rand(50).double()
    found = Judge("loss", (), (), ()).cost_of([(change, torch.ones(50).double())])
    error = change.std(correction=0) / 50**0.5
    expected = float(change.mean() + stats.norm.ppf(0.95) * error)
    assert found.value == pytest.approx(float(change.mean()))
    assert found.bound == pytest.approx(expected, rel=1e-4)


def test_the_bound_of_a_ratio_is_that_of_its_residuals() -> None:
    """Changes that are one share of the sizes have no error, however much the sizes differ."""
    size = torch.linspace(1, 9, 20).double()
    judge = Judge("loss", (), (), ())
    assert judge.cost_of([(0.25 * size, size)]) == pytest.approx((0.25, 0.25, None, None))
    change = size.square()
    ratio = change.mean() / size.mean()
    error = (change - ratio * size).square().mean().sqrt() / 20**0.5 / size.mean()
    bound = float(ratio + stats.norm.ppf(0.95) * error)
    assert judge.cost_of([(change, size)]).bound == pytest.approx(bound, rel=1e-4)


def test_nothing_to_relate_a_change_to_is_no_bound() -> None:
    judge = Judge("loss", (), (), ())
    for change, size in ((torch.ones(5), torch.zeros(5)), (torch.full((5,), nan), torch.ones(5))):
        assert judge.cost_of([(change.double(), size.double())])[:2] == (inf, inf)


def rows(*values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


IMAGES = torch.zeros(3, 1)


def changes(cost, before, after, classes=None) -> tuple[list[float], list[float]]:
    """What a judge of three images says of two answers."""
    judge = Judge(cost, (Part(IMAGES, classes, 3),), (), (before,))
    change, size = judge.changes([after])
    assert change.dtype == size.dtype == torch.float64
    return change.tolist(), size.tolist()


BEFORE, AFTER = rows([1, 2], [0, -3], [5, 0]), rows([1, 4], [1, -3], [5, 0])


def test_the_change_of_an_output_is_by_image_where_all_of_it_is():
    assert changes("output", (BEFORE,), (AFTER,)) == ([4, 1, 0], [5, 9, 25])
    vector = rows([1, 0, 2])[0]
    assert changes("output", (BEFORE, vector), (AFTER, 2 * vector)) == ([5, 1, 4], [6, 9, 29])
    for other in (rows([3, 1, 1, 1])[0], rows([3], [1], [1], [1])):  # of no image
        assert changes("output", (BEFORE, other), (AFTER, 0 * other)) == ([17], [51])
    one = torch.tensor(2.0, dtype=torch.float64)
    assert changes("output", (one, BEFORE), (one + 1, AFTER)) == ([6], [43])


def test_what_is_masked_out_in_both_outputs_is_not_compared():
    masked = BEFORE.clone()
    masked[0, 0] = -inf
    after = AFTER.clone()
    after[0, 0] = -inf
    assert changes("output", (masked,), (after,)) == ([4, 1, 0], [4, 9, 25])
    for other in (AFTER, AFTER[:, :1], AFTER.reshape(2, 3)):  # not so in one, or another shape
        assert changes("output", (masked,), (other,)) == ([inf], [1])
    assert changes("output", (BEFORE,), (after,)) == ([inf], [1])


def test_changes_of_answers_and_classes_by_hand():
    classes = torch.tensor([1, 0, 1])
    before, after = rows([0, 1], [2, 0], [3, 1]), rows([1, 0], [0, 2], [0, 1])
    assert changes("answers", (before,), (after,)) == ([1, 1, 1], [1, 1, 1])
    assert changes("answers", (before,), (2 * before,)) == ([0, 0, 0], [1, 1, 1])
    # Right before: the first two; after: the last.
    assert changes("accuracy", (before,), (after,), classes) == ([1, 1, -1], [1, 1, 1])
    change, size = changes("loss", (before,), (after,), classes)

    def loss(row: torch.Tensor, number: int) -> float:
        return log(float(row.exp().sum())) - float(row[number])

    expected = [
        loss(b, n) - loss(a, n) for a, b, n in zip(before, after, classes.tolist(), strict=True)
    ]
    assert change == pytest.approx(expected)
    assert size == [1, 1, 1]


def test_a_cost_is_of_all_changes_together():
    found = [(rows([4, 1])[0], rows([8, 8])[0]), (rows([0])[0], rows([4])[0])]
    output = Judge("output", (), (), ()).cost_of(found)
    loss = Judge("loss", (), (), ()).cost_of(found)
    counted = Judge("answers", (), (), ()).cost_of(found)
    assert loss.value == counted.value == 5 / 20
    assert output.value == sqrt(loss.value)
    assert output.bound == sqrt(loss.bound)
    assert counted.bound == pytest.approx(loss.bound + 3 / 3)  # none of three: up to 3 in 3


class Answers(nn.Module):
    """A network that answers with what it was told, whatever it is asked."""

    def __init__(self, answers: torch.Tensor) -> None:
        super().__init__()
        self.answers = answers

    def forward(self, x):
        return self.answers[: len(x)]


def judge_of(cost: str, before: torch.Tensor, *classes: list[int] | None) -> Judge:
    parts = [
        Part(IMAGES, None if each is None else torch.tensor(each), len(IMAGES)) for each in classes
    ]
    return Judge.of(cost, parts, Answers(before), ())


def test_accuracy_and_the_error_of_its_gain_by_hand():
    before, after = rows([0, 1], [2, 0], [3, 1]), rows([1, 0], [0, 2], [0, 1])
    judge = judge_of("answers", before, [1, 0, 1], [1, 1, 1])
    assert judge.images == 6
    assert judge.accuracy == 3 / 6  # the first two of one part, the first of the other
    cost = judge.judge(Answers(after))
    assert cost.value == 1.0
    assert cost.accuracy == 3 / 6  # the last; the second and the last
    gained = rows([-1, -1, 1, -1, 1, 1])[0]
    assert cost.accuracy_error == pytest.approx(float(gained.std(correction=0)) / sqrt(6))


@pytest.mark.parametrize(
    "classes", [([1, 0, 1], None), ([1, 0, 2], [0, 0, 0]), ([-1, 0, 1], [0] * 3)]
)
def test_no_accuracy_if_a_class_is_not_known(classes):
    judge = judge_of("answers", BEFORE, *classes)
    assert judge.accuracy is None
    assert judge.judge(Answers(AFTER))[2:] == (None, None)


@pytest.mark.parametrize("answers", [BEFORE[:, 0], BEFORE[..., None]])
def test_no_accuracy_if_answers_are_not_classes(answers):
    assert judge_of("output", answers, [0, 0, 0]).accuracy is None
    with pytest.raises(InputError) as raised:
        judge_of("answers", answers, [0, 0, 0])
    assert str(raised.value) == (
        "cost='answers' is for networks that answer with one number per class, (images, classes), "
        f"but this one answers with {tuple(answers.shape)} to 3 images. Expected cost='output', "
        "which takes any."
    )


@pytest.mark.parametrize(("classes", "said"), [([0, 2, 1], 2), ([0, 1, -1], -1), ([5, 0, -2], -2)])
def test_classes_that_the_network_does_not_know(classes, said):
    with pytest.raises(InputError) as raised:
        judge_of("loss", BEFORE, [1, 1, 0], classes)
    assert str(raised.value) == (
        f"There are images of class {said}, and the network knows 2 classes, from 0 on. Expected "
        "the classes that it was trained for, or a cost that needs none: 'output' or 'answers'."
    )
    judge_of("answers", BEFORE, classes)  # needs none
    judge_of("accuracy", BEFORE, [0, 1, 1])


def test_an_answer_without_numbers():
    with pytest.raises(InputError, match=r"^The network's output on the images has no numbers.$"):
        judge_of("output", torch.tensor([1, 2, 3]), None)


def test_costs_that_are_not_known_or_need_classes():
    check_cost("answers", Halves((Part(IMAGES, None, 3),), ()))
    with pytest.raises(UnknownNameError, match="Unknown cost 'output2'"):
        check_cost("output2")
    known, unknown = Part(IMAGES, torch.zeros(3), 3), Part(IMAGES, None, 3)
    check_cost("loss", Halves((known,), (known,)))
    check_cost("loss")
    for data in (Halves((known, unknown), (known,)), Halves((known,), (unknown,))):
        assert not data.labelled
        with pytest.raises(InputError) as raised:
            check_cost("loss", data)
        assert str(raised.value) == (
            "cost='loss' needs the class of every image, and the batches have none. Expected "
            "batches (images, classes), or a cost that needs no classes: 'output' or 'answers'."
        )


@pytest.mark.parametrize(
    ("images", "sizes"), [(64, [64, 64]), (66, [33, 33, 33, 33]), (40, [60, 20])]
)
def test_halves_run_up_to_64_images_at_once(images, sizes) -> None:
    batches = [torch.full((images, 1), float(number)) for number in range(4)]
    found = halves(nn.Identity(), batches)
    assert [part.images for part in found.choosing] == sizes
    assert [part.images for part in found.held_out] == sizes
    seen = torch.cat([part.inputs for part in found.choosing])
    torch.testing.assert_close(
        seen.flatten().unique(return_counts=True)[1], torch.full((4,), images // 2)
    )


def test_every_second_image_is_held_out_across_batches_of_odd_size() -> None:
    images = torch.arange(132.0)[:, None]
    found = halves(nn.Identity(), images.split(33))
    for parts, first in ((found.choosing, 0), (found.held_out, 1)):
        assert torch.equal(torch.cat([part.inputs for part in parts]), images[first::2])


def test_images_of_two_sizes_do_not_run_together() -> None:
    found = halves(nn.Identity(), [torch.ones(20, 1, 4, 4), torch.ones(20, 1, 6, 6)])
    assert [tuple(part.inputs.shape) for part in found.choosing] == [(10, 1, 4, 4), (10, 1, 6, 6)]


def test_tensors_and_dictionaries_do_not_run_together():
    images = torch.ones(10, 2)
    found = halves(nn.Identity(), [images, {"x": images}, {"x": images}, images])
    assert [type(part.inputs) for part in found.choosing] == [
        torch.Tensor,
        dict,
        dict,
        torch.Tensor,
    ]


def test_batches_with_classes_and_without_do_not_run_together():
    images = torch.arange(10.0)[:, None]
    found = halves(nn.Identity(), [(images, torch.arange(10)), images, images + 10] * 2)
    assert [part.images for part in found.choosing] == [5, 10, 5, 10]
    assert [part.classes is None for part in found.choosing] == [False, True, False, True]
    assert found.choosing[0].classes.tolist() == [0, 2, 4, 6, 8]
    assert found.held_out[2].classes.tolist() == [1, 3, 5, 7, 9]


def test_classes_of_batches_that_run_together_stay_with_their_images():
    images = torch.arange(36.0)[:, None]
    batches = [(each, each[:, 0].long() + 100) for each in images.split(9)]
    found = halves(nn.Identity(), batches)
    for parts, first in ((found.choosing, 0), (found.held_out, 1)):
        (part,) = parts
        assert torch.equal(part.inputs, images[first::2])
        assert part.classes.tolist() == list(range(100 + first, 136, 2))


def test_every_second_input_of_a_dictionary_and_of_a_list():
    """What has as many rows as there are inputs is theirs; the rest belongs to all of them."""
    ids = torch.arange(16)
    batch = {"ids": ids, "scale": torch.tensor(2.0), "table": torch.ones(3), "flag": True}
    found = halves(nn.Identity(), [batch] * 2)
    assert [part.images for part in found.choosing] == [8, 8]
    given = found.held_out[1].inputs
    assert given["ids"].tolist() == list(range(1, 16, 2))
    assert (given["scale"].shape, given["table"].shape, given["flag"]) == ((), (3,), True)
    images = [torch.full((1, 2, 2), float(number)) for number in range(32)]
    listed = halves(nn.Identity(), [(images,)])
    ((taken,),) = (part.inputs for part in listed.held_out)
    assert [int(each[0, 0, 0]) for each in taken] == list(range(1, 32, 2))


def test_a_batch_of_one_image_is_in_one_half_alone():
    found = halves(nn.Identity(), [([torch.full((1, 2, 2), float(n))],) for n in range(32)])
    for parts, first in ((found.choosing, 0), (found.held_out, 1)):
        assert [int(part.inputs[0][0][0, 0, 0]) for part in parts] == list(range(first, 32, 2))


def test_parts_in_two():
    parts = [
        Part(torch.arange(5.0)[:, None], torch.arange(5), 5),
        Part(torch.ones(1, 1), None, 1),  # cannot be in both
        Part(torch.arange(2.0)[:, None], None, 2),
    ]
    for found, first in zip(in_two(parts), (0, 1), strict=True):
        assert [part.images for part in found] == [3 - first, 1]
        assert [len(part.inputs) for part in found] == [3 - first, 1]
        assert found[0].inputs[:, 0].tolist() == found[0].classes.tolist()
        assert found[0].classes.tolist() == list(range(first, 5, 2))
        assert found[1].inputs.item() == first
        assert found[1].classes is None


@pytest.mark.parametrize("count", [0, 31])
def test_too_few_images(count):
    with pytest.raises(InputError) as raised:
        halves(nn.Identity(), [torch.ones(1, 1)] * count)
    assert str(raised.value) == (
        "There are 31 images. Expected at least 32 for a budget: half of them choose, and half are "
        "held out to measure what was chosen. Some hundreds are better."
        if count
        else "The images gave no batch. Expected an iterable of input batches."
    )


class Shifted(nn.Module):
    """A norm after something that can be changed, with an epsilon that is not small."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = 1.0, 0.0
        self.norm = nn.BatchNorm1d(3, eps=0.5)
        nn.init.uniform_(self.norm.running_mean, 0.5, 1.5)
        nn.init.uniform_(self.norm.running_var, 0.5, 1.5)

    def forward(self, x):
        return self.norm(self.scale * x + self.shift)


def test_statistics_move_by_what_the_norm_sees() -> None:
    torch.manual_seed(0)
    network = Shifted().double().eval()
    first, second = torch.randn(30, 3).double(), 3 * torch.randn(10, 3).double()
    parts = [Part(first, None, 30), Part(second, None, 10)]
    mean, variance = (b.clone() for b in (network.norm.running_mean, network.norm.running_var))
    norms = Norms.of(network, parts)
    set_statistics(network, norms.moved(network))  # nothing changed, so nothing moves
    torch.testing.assert_close(network.norm.running_mean, mean)
    torch.testing.assert_close(network.norm.running_var, variance)
    network.scale, network.shift = 2.0, 0.25
    set_statistics(network, norms.moved(network))
    shift, ratio = torch.zeros(3).double(), torch.zeros(3).double()
    for images in (first, second):
        share = len(images) / 40
        shift += share * (images.mean(0) + 0.25)  # (2 m + 0.25) − m
        spread = images.var(0, correction=0)
        ratio += share * ((4 * spread + 0.5) / (spread + 0.5)).log()
    torch.testing.assert_close(network.norm.running_mean, mean + shift)
    torch.testing.assert_close(network.norm.running_var, (variance + 0.5) * ratio.exp() - 0.5)


class Reused(nn.Module):
    """One norm that runs twice, one that runs once, and one without statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0
        self.twice, self.once = nn.BatchNorm2d(3, eps=0.25), nn.BatchNorm2d(3, eps=0.25)
        self.own = nn.BatchNorm2d(3, track_running_stats=False)

    def forward(self, x):
        return self.own(self.once(self.scale * self.twice(self.twice(x))))


def test_a_norm_of_several_inputs_keeps_its_statistics():
    torch.manual_seed(0)
    network, images = Reused().double().eval(), torch.randn(8, 3, 4, 5).double()
    norms = Norms.of(network, [Part(images, None, 8)])
    assert list(norms.seen[0]) == ["once"]
    mean, variance = norms.seen[0]["once"]
    with torch.no_grad():
        given = network.twice(network.twice(images))
    torch.testing.assert_close(mean, given.mean((0, 2, 3)))
    torch.testing.assert_close(variance, given.var((0, 2, 3), correction=0) + 0.25)
    network.scale = 3.0
    moved = norms.moved(network)
    assert moved.keys() == {"twice", "once"}
    torch.testing.assert_close(moved["twice"][0], torch.zeros(3).double())
    torch.testing.assert_close(moved["twice"][1], torch.ones(3).double() + 0.25)
    torch.testing.assert_close(moved["once"][0], 2 * mean)
    # It moves the statistics of the network only while it looks.
    assert torch.equal(network.once.running_mean, torch.zeros(3).double())
    with with_statistics(network, moved):
        torch.testing.assert_close(network.once.running_mean, 2 * mean)
        torch.testing.assert_close(network.twice.running_var, torch.ones(3).double())
    assert torch.equal(network.once.running_mean, torch.zeros(3).double())
    assert torch.equal(network.once.running_var, torch.ones(3).double())


def test_a_variance_is_not_negative():
    """One that falls below the epsilon is zero."""
    norm = nn.BatchNorm1d(2, eps=0.5)
    set_statistics(norm, {"": (torch.tensor([1.0, 2.0]), torch.tensor([0.25, 0.75]))})
    assert norm.running_mean.tolist() == [1, 2]
    assert norm.running_var.tolist() == [0, 0.25]


def test_the_running_mean_of_a_gate_is_that_of_all_images():
    torch.manual_seed(0)
    gates = torch.rand(9, 4, 1)
    tap = Tap()
    for batch in gates.split([2, 4, 3]):
        tap.see(batch, None)
    values = gates[:, :, 0].double()
    assert tap.images == 9
    assert not tap.varies_in_space
    torch.testing.assert_close(tap.mean, values.mean(0))
    torch.testing.assert_close(tap.deviations, (values - values.mean(0)).square().sum(0))
    spread = values.var(0, correction=0).sum().sqrt() / values.mean(0).norm()
    assert tap.spread() == pytest.approx(float(spread))


def test_a_gate_that_differs_between_places_is_told():
    gate = torch.rand(2, 3, 1).expand(2, 3, 5).clone()
    tap = Tap()
    tap.see(gate, None)
    assert not tap.varies_in_space
    gate[1, 2, 4] += 1
    tap.see(gate, None)
    assert tap.varies_in_space
    tap.see(torch.rand(2, 3, 1), None)
    assert tap.varies_in_space


@pytest.mark.parametrize("padded", [False, True])
def test_every_token_counts_alike_and_padding_does_not(padded):
    torch.manual_seed(0)
    gates = torch.rand(3, 4, 5)  # inputs, channels, tokens
    valid = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 1, 1, 1.0]])
    tap = Tap(by_token=True)
    tap.see(gates, valid if padded else None)
    tap.see(gates[:1], None)
    each = gates.movedim(1, 2)[valid > 0] if padded else gates.movedim(1, 2).flatten(0, 1)
    values = torch.cat((each, gates[0].t())).double()
    assert tap.images == len(values) == (10 if padded else 15) + 5
    assert not tap.varies_in_space
    torch.testing.assert_close(tap.mean, values.mean(0))
    torch.testing.assert_close(tap.deviations, (values - values.mean(0)).square().sum(0))


def test_a_gate_of_zeros_has_no_infinite_spread():
    tap = Tap()
    tap.see(torch.zeros(3, 2, 1), None)
    assert tap.spread() == 0.0


def test_a_channel_without_energy_has_the_plain_mean():
    tap = Tap(mean=torch.tensor([0.25, 0.5]).double())
    energy = _Energy(torch.tensor([0.0, 4.0]).double(), torch.tensor([0.0, 3.0]).double())
    assert _least_squares(tap, energy).tolist() == [0.25, 0.75]


def test_the_energy_of_a_branch_weighs_its_gate():
    """Sums over images and places, batch by batch; a gate may be one row for all images."""
    torch.manual_seed(0)
    branches, gates = torch.rand(2, 4, 3).double(), torch.rand(2, 4, 3, 1)
    energy = _Energy()
    for branch, gate in zip(branches, (gates[0], gates[1, :1]), strict=True):
        energy.now = branch
        energy.see(gate)
    torch.testing.assert_close(energy.of_branch, branches.sum((0, 1)))
    gated = (gates[0, :, :, 0] * branches[0]).sum(0) + (gates[1, :1, :, 0] * branches[1]).sum(0)
    torch.testing.assert_close(energy.of_gated, gated)


@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize("padded", [True, False])
def test_the_energy_of_each_place(channels, padded):
    torch.manual_seed(0)
    gate, branch = torch.rand(2, channels, 5), torch.rand(2, 3, 5)
    valid = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1.0]]).double()
    energy = _Energy()
    for _ in range(2):
        energy.see_places(gate, branch, valid if padded else None)
    counted = valid[:, None] if padded else torch.ones(2, 1, 5)
    squares = branch.double().square() * counted
    torch.testing.assert_close(energy.of_branch, 2 * squares.sum((0, 2)))
    torch.testing.assert_close(energy.of_gated, 2 * (gate.double() * squares).sum((0, 2)))
