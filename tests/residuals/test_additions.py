"""Which additions of a network are steps: an update is made where it is added, and made to be
added. The expected steps are written down by hand."""

import pytest
import torch
from tests.residuals.additions import (
    AddingUp,
    Attention,
    AttentionUp,
    Detr,
    GivenBoxes,
    LogitSum,
    Pyramid,
    PyramidAttention,
    QueriedBoxes,
    WithHead,
    Yolo,
)
from tests.surgery.insertion.networks import Branch
from torch import nn
from torch.nn import functional

import attnlab
from attnlab._errors import StepsNotFoundError

IMAGES = torch.randn(2, 3, 16, 16)
BACKBONE = [f"backbone.blocks.{k} identity" for k in range(3)]


def found(model, example=IMAGES):
    return [f"{step.owner} {step.kind}" for step in attnlab.steps(model.eval(), example)]


class Branch1d(nn.Sequential):
    """A branch that reads the last axis."""

    def __init__(self, width: int) -> None:
        super().__init__(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))


class Adds(nn.Module):
    """One step."""

    def __init__(self, branch: nn.Module | None = None) -> None:
        super().__init__()
        self.branch = branch or Branch1d(8)

    def forward(self, x):
        return x + self.branch(x)


# --- sums that are no steps


@pytest.mark.parametrize("embed", [False, True], ids=["in the layer", "in the attention"])
def test_embeddings_of_positions_and_queries_are_no_steps(embed):
    """The first self-attention of the decoder sees the same learned queries whatever the input, so
    that its addition is none either."""
    assert found(Detr(embed)) == [
        *["encoder.layers.0 identity"] * 2,
        *["encoder.layers.1 identity"] * 2,
        *["decoder.layers.0 identity"] * 2,
        *["decoder.layers.1 identity"] * 3,
    ]


@pytest.mark.parametrize("head", [Pyramid, LogitSum, AttentionUp])
def test_heads_that_fuse_levels_make_no_steps(head):
    assert found(WithHead(head())) == BACKBONE


def test_a_way_up_that_adds_takes_steps_only_in_its_blocks():
    up = [f"head.blocks.{k} identity" for k in range(2)]
    assert found(WithHead(AddingUp())) == BACKBONE + up


def test_boxes_are_no_states():
    assert found(Yolo()) == [f"{part}.m.{k} identity" for part in ("c1", "c2") for k in range(2)]


@pytest.mark.parametrize("like", ["type_as", "zeros_like", "new_zeros"])
def test_what_has_the_type_or_shape_of_a_state_was_not_computed_from_it(like):
    """Anchors that are made while the network runs, in the features' type."""

    class Anchored(nn.Module):
        def __init__(self):
            super().__init__()
            self.block, self.head = Branch(8), nn.Conv2d(8, 8, 1)
            self.stem = nn.Conv2d(3, 8, 1)

        def forward(self, x):
            x = self.stem(x)
            x = x + self.block(x)
            anchors = {
                "type_as": lambda: torch.ones(x.shape).type_as(x),
                "zeros_like": lambda: torch.zeros_like(x) + 1,
                "new_zeros": lambda: x.new_zeros(x.shape) + 1,
            }[like]()
            return anchors + torch.relu(self.head(x))

    assert found(Anchored()) == [" identity"]


def test_resolutions_that_are_fused_in_one_module():
    with pytest.raises(StepsNotFoundError):
        attnlab.steps(nn.Sequential(nn.Conv2d(3, 8, 1), PyramidAttention()), IMAGES)


@pytest.mark.parametrize("model", [GivenBoxes, QueriedBoxes])
def test_boxes_that_are_refined_are_no_states(model):
    with pytest.raises(StepsNotFoundError):
        attnlab.steps(model(), torch.randn(2, 5, 8))


@pytest.mark.parametrize("batch", [1, 2])
def test_anchors_of_the_features_type_are_constants(batch):
    """YOLO's boxes, `anchors + distances`: for a single image the two have one shape."""

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 8, 1), nn.SiLU())
            self.boxes = nn.Sequential(Branch(), nn.Conv2d(8, 2, 1))

        def forward(self, x):
            x = self.stem(x)
            distances = self.boxes(x).flatten(2)
            anchors = torch.arange(distances[0].numel()).type_as(x).view(1, 2, -1)
            return anchors + distances

    with pytest.raises(StepsNotFoundError):
        attnlab.steps(Head(), torch.randn(batch, 3, 8, 8))


def test_a_straight_through_estimator_replaces_and_does_not_update():
    class Quantised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.block = nn.Conv2d(3, 8, 1), Branch()

        def forward(self, x):
            x = self.stem(x)
            quantised = torch.tanh(x).round()
            x = x + (quantised - x).detach()
            return x + self.block(x)

    steps = attnlab.steps(Quantised(), IMAGES)
    assert [step.branch_modules for step in steps] == [("block.2", "block")]


@pytest.mark.parametrize("minus_twice", [lambda d, p: d - 2 * p, lambda d, p: d + (-2) * p])
@pytest.mark.parametrize("nearest", [lambda d: d.argmin(1), lambda d: torch.max(-d, dim=1)[1]])
def test_distances_to_the_codes_of_a_quantiser_are_not_a_state(minus_twice, nearest):
    class Quantised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.block = nn.Conv2d(3, 8, 1), Branch()
            self.codes = nn.Embedding(5, 8)

        def forward(self, x):
            x = self.stem(x)
            flat, codes = x.movedim(1, -1).flatten(0, 2), self.codes.weight
            squares = (flat**2).sum(1, keepdim=True) + (codes**2).sum(1)
            places = nearest(minus_twice(squares, flat @ codes.t()))
            quantised = self.codes(places).view_as(x.movedim(1, -1)).movedim(-1, 1)
            x = x + (quantised - x).detach()
            return x + self.block(x)

    steps = attnlab.steps(Quantised(), IMAGES)
    assert [step.branch_modules for step in steps] == [("block.2", "block")]


@pytest.mark.parametrize("returned", [0, 1, 2, 3])
def test_a_sum_is_a_state_if_the_network_returns_it_or_its_largest_place(returned):
    class Labels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.block = nn.Conv2d(3, 8, 1), Branch()

        def forward(self, x):
            x = self.stem(x)
            x = x + self.block(x)
            places = x.argmax(1)
            return (x, places, places + 1, (x, places.float()))[returned]

    assert len(attnlab.steps(Labels(), IMAGES)) == 1


def test_what_others_read_as_well_was_not_made_to_be_added():
    class Reading(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.a, self.b = nn.Conv2d(3, 8, 1), Branch(), Branch()

        def forward(self, x):
            x = self.stem(x)
            y = self.a(x)
            return torch.cat([self.b(x + y), y], 1)

    with pytest.raises(StepsNotFoundError):
        attnlab.steps(Reading(), IMAGES)


# --- sums that are


def test_a_block_may_compute_in_one_module_and_add_in_another():
    class Output(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Linear(8, 8)

        def forward(self, update, x):
            return self.dense(update) + x

    class Bert(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.output = Attention(8), Output()

        def forward(self, x):
            return self.output(self.attention(x, x, x), x)

    model = nn.Sequential(nn.Linear(8, 8), Bert(), Bert())
    assert found(model, torch.randn(2, 4, 8)) == ["1.output identity", "2.output identity"]


def test_a_module_that_only_adds_works_for_its_caller():
    class Sum(nn.Module):
        def forward(self, x, y):
            return x + y

    class Block(nn.Module):
        def __init__(self, stride: int) -> None:
            super().__init__()
            self.branch = nn.Sequential(nn.Conv2d(8, 8, 3, stride, 1), nn.ReLU())
            self.shortcut = nn.Conv2d(8, 8, 1, stride) if stride > 1 else nn.Identity()
            self.sum = Sum()

        def forward(self, x):
            return self.sum(self.branch(x), self.shortcut(x))

    model = nn.Sequential(nn.Conv2d(3, 8, 1), Block(1), Block(2))
    assert found(model) == ["1.sum identity", "2.sum projection"]


def test_the_terms_of_a_sum_of_several_updates():
    class Parallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = Branch(), Branch()

        def forward(self, x):
            return x + self.a(x) + self.b(x)

    model = nn.Sequential(nn.Conv2d(3, 8, 1), Parallel())
    assert found(model) == ["1 identity", "1 identity"]


class Late(nn.Module):
    """LongCat's layer: what `f` makes of the state is added two steps later."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.f, self.g, self.h = (Branch1d(width) for _ in range(3))

    def forward(self, x):
        late = self.f(self.norm(x))
        x = x + self.g(x)
        x = x + self.h(x)
        return x + late


TOKENS = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))


def test_a_branch_may_be_added_after_other_steps():
    model = nn.Sequential(nn.Linear(8, 8), Late(), Late())
    assert found(model, TOKENS) == ["1 identity"] * 3 + ["2 identity"] * 3
    late = attnlab.steps(model, TOKENS)[2]
    gated, _ = attnlab.insert(model, "rezero", where=lambda site: site.step == late, example=TOKENS)
    with torch.no_grad():  # at its start it is zero, so that branch is away
        x = model[0](TOKENS)
        x = x + model[1].g(x)
        x = x + model[1].h(x)
        torch.testing.assert_close(gated(TOKENS), model[2](x))


def test_what_another_module_made_of_an_earlier_state_is_not_a_late_branch():
    """A decoder that adds, level by level, what was made of the encoder's states before."""

    class Lateral(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.side, self.first, self.second = Branch1d(8), Adds(), Adds()

        def forward(self, x):
            return self.second(self.first(x)) + self.side(x)

    model = nn.Sequential(nn.Linear(8, 8), Lateral())
    assert found(model, TOKENS) == ["1.first identity", "1.second identity"]


@pytest.mark.parametrize("normed", [True, False])
def test_two_steps_of_one_state_side_by_side_are_merged(normed):
    """As Gemma 3n's mean of attention and LAuReL: both terms carry the state on."""

    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(8) if normed else nn.Identity()
            self.f, self.low, self.mlp = Branch1d(8), Adds(nn.Linear(8, 8)), Adds()

        def forward(self, x):
            normed = self.norm(x)
            one = x + self.f(normed)
            return self.mlp((one + self.low(normed)) / 2**0.5)

    model = nn.Sequential(nn.Linear(8, 8), Mean())
    assert sorted(found(model, TOKENS)) == ["1 identity", "1.low identity", "1.mlp identity"]


class StateSpace(nn.Module):
    """A branch that ends in `scan(x) + D x`, with what `feed` makes of x, or two steps of it."""

    def __init__(self, feed, after: bool = True) -> None:
        super().__init__()
        self.inside, self.scan, self.out = nn.Linear(8, 8), Branch1d(8), nn.Linear(8, 8)
        self.learned = nn.Parameter(torch.ones(8))
        self.feed, self.after = feed, after

    def forward(self, x):
        inner = self.inside(x)
        made = self.out(self.scan(inner) + self.feed(self, inner))
        return x + made if self.after else made


@pytest.mark.parametrize(
    ("feed", "after", "steps"),
    [
        (lambda m, x: x * m.learned, True, 1),
        (lambda m, x: x * m.learned, False, 1),  # in no branch
        (lambda _, x: 0.5 * x, True, 2),
        (lambda _, x: x, True, 2),
        (lambda m, x: x / m.learned, True, 2),
    ],
)
def test_what_a_state_space_model_feeds_through_is_a_part_of_its_branch(feed, after, steps):
    assert len(found(StateSpace(feed, after), TOKENS)) == steps


def test_a_long_shortcut_around_steps_stays_a_step():
    class Long(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.Sequential(Adds(), Adds())

        def forward(self, x):
            return x + self.blocks(torch.tanh(x))

    model = nn.Sequential(nn.Linear(8, 8), Adds(), Long())
    inner = [f"2.blocks.{k} identity" for k in range(2)]
    assert found(model, TOKENS) == ["1 identity", *inner, "2 identity"]


class Streams(nn.Module):
    """A step of a state (inputs, tokens, streams, channels) that a matrix mixes first: AltUp's,
    from a router, or attention over streams without values of its own."""

    def __init__(self, attends: bool) -> None:
        super().__init__()
        self.attends, self.f = attends, Branch1d(8)
        self.router = nn.Linear(8, 9)
        self.queries, self.keys = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        if self.attends:
            matrix = torch.softmax(self.queries(x) @ self.keys(x).transpose(-1, -2), -1)
        else:
            matrix = torch.tanh(self.router(x[:, :, 0])).unflatten(-1, (3, 3))
        x = matrix @ x + x
        return x + self.f(x)


@pytest.mark.parametrize("attends", [False, True])
def test_a_matrix_of_its_own_carries_streams_and_updates_nothing(attends):
    streams = torch.randn(2, 5, 3, 8, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Linear(8, 8), Streams(attends))
    assert found(model, streams) == ["1 identity"] * (2 if attends else 1)


def test_a_branch_may_go_through_a_lower_resolution():
    class Low(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.up = nn.Conv2d(8, 8, 2, 2), nn.ConvTranspose2d(8, 8, 2, 2)

        def forward(self, x):
            return x + self.up(torch.relu(self.down(x)))

    assert found(nn.Sequential(nn.Conv2d(3, 8, 1), Low())) == ["1 identity"]


def test_a_class_token_is_updated_from_what_it_is_a_slice_of():
    class ClassAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.attention = nn.LayerNorm(8), Attention(8)

        def forward(self, x):
            seen = self.norm(x)
            token = x[:, :1] + self.attention(seen[:, :1], seen, seen)
            return torch.cat([token, x[:, 1:]], 1)

    model = nn.Sequential(nn.Linear(8, 8), ClassAttention(), ClassAttention())
    assert found(model, torch.randn(2, 5, 8)) == ["1 identity", "2 identity"]


def test_a_state_that_is_put_together_again():
    """TimeSformer takes the class token off, updates the patches over time, and adds what attention
    over space makes of both to both."""

    class Divided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.time, self.space = nn.Sequential(nn.Linear(8, 8), nn.GELU()), Attention(8)

        def forward(self, x):
            patches = x[:, 1:] + self.time(x[:, 1:])
            seen = torch.cat([x[:, :1], patches], 1)
            update = self.space(seen, seen, seen)
            update = torch.cat([update[:, :1], update[:, 1:]], 1)
            return torch.cat([x[:, :1], patches], 1) + update

    model = nn.Sequential(nn.Linear(8, 8), Divided())
    assert found(model, torch.randn(2, 5, 8)) == ["1 identity", "1 identity"]


def test_learned_tokens_start_a_trajectory():
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = Attention(8)

        def forward(self, tokens, x):
            return tokens + self.attention(tokens, x, x)

    class Perceiver(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Parameter(torch.randn(1, 4, 8))
            self.readers = nn.ModuleList(Reader() for _ in range(2))

        def forward(self, x):
            tokens = self.tokens.expand(len(x), -1, -1)
            for reader in self.readers:
                tokens = reader(tokens, x)
            return tokens

    assert found(Perceiver(), torch.randn(2, 5, 8)) == ["readers.0 identity", "readers.1 identity"]


def test_a_hook_that_keeps_statistics_reads_nothing():
    seen = []
    model = nn.Sequential(nn.Conv2d(3, 8, 1), Residual())
    model[1].branch.register_forward_hook(lambda _m, _i, out: seen.append(out.square().mean()))
    assert found(model) == ["1 identity"]
    assert seen


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branch = Branch()

    def forward(self, x):
        return x + self.branch(x)


def test_a_scaled_shortcut_is_the_state():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.branch = nn.Parameter(torch.ones(8, 1, 1)), Branch()

        def forward(self, x):
            return x * self.scale + self.branch(x)

    assert found(nn.Sequential(nn.Conv2d(3, 8, 1), Scaled())) == ["1 identity"]


def test_a_projection_made_by_the_caller():
    """A tree of DLA hands the projected shortcut to its block."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.branch = nn.Sequential(Branch(), nn.MaxPool2d(2))

        def forward(self, x, shortcut):
            return functional.relu(self.branch(x) + shortcut)

    class Tree(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.project = Block(), nn.Conv2d(8, 8, 1, 2)

        def forward(self, x):
            return self.block(x, self.project(x))

    assert found(nn.Sequential(nn.Conv2d(3, 8, 1), Tree())) == ["1.block projection"]
