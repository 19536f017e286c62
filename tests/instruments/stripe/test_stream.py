"""The bounded sample, gates over epochs, and what is written."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import attnlab
from attnlab._errors import AttnlabError
from attnlab.instruments.stripe import GateHistory, StripeResult, first_difference
from attnlab.instruments.stripe._stream import GateStream, Reservoir
from attnlab.instruments.stripe.measure import stripe


def test_reservoir_keeps_every_image_with_the_same_chance():
    kept: dict[int, int] = {}
    reservoir, seen = Reservoir(200), 0
    for batch in (64, 1, 935, 1000):
        for slot, row in reservoir.choose(batch):
            kept[slot] = seen + row
        seen += batch
    assert sorted(kept) == list(range(200))
    assert len(set(kept.values())) == 200
    # 100 are expected from the first half; the standard deviation is below 7.1.
    assert 72 <= sum(image < 1000 for image in kept.values()) <= 128
    assert np.mean(list(kept.values())) == pytest.approx(1000, abs=4 * 577 / 200**0.5)


def test_tiny_spread_beside_a_large_mean_is_kept():
    stream = GateStream(1)
    values = 1e6 + 1e-4 * torch.arange(100, dtype=torch.float64)[:, None, None, None]
    for part in values.split(9):
        stream.see(part, len(part), [])
    exact = 1e-4 * ((100**2 - 1) / 12) ** 0.5
    assert stream.spread().item() == pytest.approx(exact, rel=1e-4)


def test_only_gates_with_places_have_maps():
    channels, places = GateStream(1), GateStream(1)
    channels.see(torch.rand(3, 4, 1, 1), 3, [(0, 1)])
    assert channels.maps == {}
    gate = torch.rand(3, 4, 1, 5)
    places.see(gate, 3, [(0, 1)])
    torch.testing.assert_close(places.maps[0], gate[1].mean(0))


def test_first_difference_of_a_geometric_approach():
    epochs = np.arange(6)
    values = 0.5 + np.outer(0.5**epochs, [1.0, -2.0])
    expected = np.outer(0.5 ** epochs[1:], [1.0, 2.0])
    np.testing.assert_allclose(first_difference(values.tolist()), expected, rtol=1e-12)
    history = GateHistory()
    for epoch, row in enumerate(values, 1):
        history.record(epoch, {"layer1.0.attnlab": row.tolist()})
    np.testing.assert_allclose(history.difference("layer1.0.attnlab"), expected, rtol=1e-12)
    assert history.figure("layer1.0.attnlab")["title"] == "layer1.0.attnlab"


def test_history_of_results_goes_to_disk_and_back(tmp_path):
    torch.manual_seed(0)
    network, _ = attnlab.insert(attnlab.create("resnet20", 10), "se")
    result = stripe(network, [torch.randn(4, 3, 32, 32)])
    history = GateHistory()
    history.record(1, result)
    history.record(2, result)
    loaded = GateHistory.load(history.save(tmp_path / "history.json"))
    assert loaded == history
    assert not loaded.difference(result.sites[0].name).any()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"format": "attnlab stripe 1"}', "is not a gate history ('attnlab gate history 1')."),
        (
            '{"format": "attnlab gate history 1", "epochs": ["one"]}',
            "is damaged: epochs.0: Input should be a valid integer, unable to parse string as an "
            "integer. Expected a file that GateHistory.save wrote.",
        ),
        ("[]", "expected a JSON object but got []. Expected a file that GateHistory.save wrote."),
    ],
)
def test_a_file_that_is_not_a_whole_history_is_refused(tmp_path, content, message):
    file = tmp_path / "history.json"
    file.write_text(content)
    with pytest.raises(attnlab.AttnlabError) as caught:
        GateHistory.load(file)
    assert str(caught.value).startswith(str(file))
    assert str(caught.value).endswith(message)


def test_result_goes_to_disk_and_back(tmp_path):
    torch.manual_seed(0)
    network, _ = attnlab.insert(attnlab.create("resnet20", 10), "cbam")
    result = stripe(network, [torch.randn(4, 3, 32, 32)], name="resnet20 cbam")
    assert StripeResult.load(result.save(tmp_path / "stripe.json")) == result
    table = result.table()
    assert table.columns[-1] == "ratio"
    assert table.rows[0][-1].order == result.sites[0].ratio
    assert table.caption == "resnet20 cbam, 4 images"
    assert repr(result).startswith("StripeResult(resnet20 cbam: 9 gates, 4 images. At ")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: first_difference([[1.0, 2.0]]),
            "Expected values of at least two epochs, (epochs, channels), but got shape (1, 2).",
        ),
        (
            lambda: GateHistory([1], {"a": [[0.5]]}).record(1, {"a": [0.5]}),
            "Expected an epoch after 1 but got 1.",
        ),
        (
            lambda: GateHistory([1], {"a": [[0.5]]}).record(2, {"b": [0.5]}),
            "Expected the gates of epoch 1 (a) but got b.",
        ),
        (
            lambda: GateHistory([1], {"layer1": [[0.5]]}).difference("layer2"),
            "Unknown gate 'layer2'. Did you mean 'layer1'? Expected one of: layer1.",
        ),
        (
            lambda: StripeResult.from_json("[]"),
            "Expected a file written by to_json ('attnlab stripe 1') but got another.",
        ),
    ],
)
def test_messages(build, message):
    with pytest.raises(AttnlabError) as error:
        build()
    assert str(error.value) == message
