"""What people and programs give by mistake: each is answered with a message, none is taken for
something else, and none ends in an error that speaks of attnlab's inside."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.bad_inputs import insertion, instruments, networks, studies, training
from tests.bad_inputs.shared import without_numbers, written

import attnlab

CASES = [
    case for part in (networks, insertion, instruments, training, studies) for case in part.CASES
]


@pytest.fixture(scope="module")
def x(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    tmp = tmp_path_factory.mktemp("bad")
    net = attnlab.create("resnet20").eval()
    gated, seen = (attnlab.insert(net, gate)[0] for gate in ("asr:se", "se"))
    return SimpleNamespace(
        tmp=tmp,
        text=written(tmp / "a.txt", b"hello"),
        empty=written(tmp / "e.safetensors", b""),
        garbage=written(tmp / "g.safetensors", b"\x99" * 100),
        latin=written(tmp / "latin.toml", b'title = "Gr\xf6\xdfe"\n'),
        text_toml=written(tmp / "t.toml", b"title = = 3"),
        net=net,
        gated=gated,
        seen=seen,
        nanned=without_numbers(net),
        nan_gated=without_numbers(gated),
        images=[torch.randn(2, 3, 32, 32)],
    )


@pytest.mark.parametrize(("do", "message"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_bad_input_is_answered(
    x: SimpleNamespace, do: Callable[[Any], object], message: str
) -> None:
    with pytest.raises(attnlab.AttnlabError) as raised:
        do(x)
    said = " ".join(str(raised.value).replace(str(x.tmp), "{tmp}").split())
    assert said.startswith(message)


def test_the_table_is_large_and_says_each_thing_once() -> None:
    names = [name for name, _, _ in CASES]
    assert len(set(names)) == len(names) > 250
