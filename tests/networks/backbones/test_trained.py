"""Public trained weights: two CIFAR-10 ResNets with zero-padded shortcuts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from attnlab.networks.create import create

DATA = Path(__file__).resolve().parents[3].parent / "shared" / "data"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.mark.parametrize(("name", "accuracy"), [("resnet20", 91.73), ("resnet32", 92.63)])
def test_accuracy_on_cifar10(name: str, accuracy: float) -> None:
    images_file = DATA / "cifar10-small.npz"
    weights = DATA / "weights" / f"cifar10_{name}_basic_optionA.pth"
    for path in (images_file, weights):
        if not path.is_file():
            pytest.skip(f"needs the trained network and test images: no {path.name}")
    network = create(name, weights=weights, shortcut="zero_pad").eval()
    with np.load(images_file) as data:
        images = torch.from_numpy(data["test_x"]).permute(0, 3, 1, 2).float() / 255
        labels = torch.from_numpy(data["test_y"]).long()
    images = (images - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
    with torch.no_grad():
        hits = torch.cat([network(batch).argmax(1) for batch in images.split(250)]) == labels
    assert len(labels) == 2000
    # 2,000 of the 10,000 images that the figure is about: two standard errors are 1.1 %.
    assert 100 * hits.float().mean().item() == pytest.approx(accuracy, abs=1.1)
