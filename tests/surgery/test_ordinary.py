"""Networks that are changed inside `torch.inference_mode()` can be trained afterwards."""

import pytest
import torch

import attnlab

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(4))
CHANGES = {
    "insert": lambda network: attnlab.insert(network, "se"),
    "fold": lambda network: attnlab.fold(attnlab.insert(network, "asr:se")[0]),
    "fuse": lambda network: attnlab.fuse(network),
    "shorten": lambda network: attnlab.shorten(network, ["1.2"]),
    "replace": lambda network: attnlab.evolution.replace(network, "involution", kernel_size=3),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("created_there", [False, True])
def test_what_is_changed_in_inference_mode_can_be_trained(change, created_there):
    def changed(inside: bool) -> torch.nn.Module:
        with torch.inference_mode(inside and created_there):
            torch.manual_seed(0)
            network = attnlab.create("resnet20").eval()
        with torch.inference_mode(inside):
            return change(network)[0]

    network, same = changed(inside=True), changed(inside=False)
    tensors = [*network.parameters(), *network.buffers()]
    assert not any(tensor.is_inference() for tensor in tensors)
    assert torch.equal(network(IMAGES), same(IMAGES))
    network.train()(IMAGES).sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
