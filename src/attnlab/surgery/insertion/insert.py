"""Put attention into any network: a copy of it, with a receipt of what changed."""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, get_args

import torch
from torch import nn
from torch.optim import Optimizer

from attnlab._checked import check_module, check_values
from attnlab._errors import InputError, OptionError, SiteError, unknown_name
from attnlab._imported import is_path
from attnlab.residuals.choose import find_sites, frozen_notes, place_for_heads, place_notes
from attnlab.residuals.copying import deep_copy, without_collecting
from attnlab.residuals.example import Example, check_finite_weights
from attnlab.residuals.padding import steps_beside
from attnlab.residuals.site import Place, Site
from attnlab.residuals.steps import find_steps
from attnlab.residuals.where import Where, parse_where
from attnlab.surgery.answer import gate_modules
from attnlab.surgery.history import Inserted, record_event, record_start
from attnlab.surgery.insertion._attach import Tokens, attach_gate, start_notes
from attnlab.surgery.insertion._causal_maps import refuse_map_leaks
from attnlab.surgery.insertion._norms import replace_norms
from attnlab.surgery.insertion._pretrained import Insertion, name_of_gate, stored_example
from attnlab.surgery.insertion._resolve import Resolved, resolve
from attnlab.surgery.insertion._streams import join_streams
from attnlab.surgery.insertion._tokens import on_meta, sites_over_tokens, token_notes
from attnlab.surgery.insertion.host import (
    attachments,
    guard_norms,
    remember,
    remove_attachments,
)
from attnlab.surgery.optimizer import check_optimizer, following
from attnlab.surgery.ordinary import making_ordinary_tensors
from attnlab.surgery.original import Original
from attnlab.surgery.receipt import Receipt

Start = Literal["paper", "identity"]
_STARTS = ("paper", "identity")
_ACTS = {
    "norm": "inside norms",
    "step": "at the addition, where it sees both ends of the step",
    "stage": "at the ends of the branches of a stage",
}
REBUILT = (
    "Ultralytics' trainers build networks anew, without gates: put them in by "
    "attnlab.bridges.ultralytics.with_attention, which keeps them"
)
"""A note for networks of theirs."""
# Attention that timm and torchvision put into their own networks.
_ATTENTION_CLASSES = (
    "SEModule SqueezeExcite SqueezeExcitation SqueezeExciteCl EffectiveSEModule EcaModule "
    "CecaModule CbamModule LightCbamModule GlobalContext GatherExcite SplitAttn SelectiveKernel"
)


@making_ordinary_tensors
@without_collecting()
def insert(
    model: nn.Module,
    gate: str | Callable[[int], nn.Module],
    where: Where = None,
    start: Start = "paper",
    *,
    place: Place = "auto",
    shared: bool = False,
    example: Example | None = None,
    inplace: bool = False,
    optimizer: Optimizer | None = None,
    **options: Any,
) -> tuple[nn.Module, Receipt]:
    """Put `gate` on the residual steps of `model`; return the new network and a receipt.

    `gate` is a name (`"se"`, `"step"`, `"asr:se"`, `"asr:se*2"`, `"asr:se+se"`, ...) or a gate
    class that is built with the number of channels; `options` go to the gate, and
    `trainable=False`, which every gate takes, keeps its parameters at their first values: the
    control for what learning them does. `where` chooses the sites (see `attnlab.residuals.where`).
    `start="paper"` begins with the paper's gate, `start="identity"` leaves the output unchanged at
    first, for fine-tuning a pretrained network.

    `place` says where on a step's branch: at its end (`"branch"`), after the norm that it ends
    in (`"norm"`), or in front of the output projection of its attention (`"heads"`), where steps
    without attention get none. `"auto"` is the end, except for a constant gate (`asr:`) whose
    branch ends in norm → activation → addition, which folds after the norm only, and for `head` and
    `element`, which go to the heads where the network has attention. `shared=True` builds one gate
    per stage for all its chosen blocks, as in the searched schemes of EAN (Huang et al., 2020).

    The model is not modified unless `inplace=True`; original state-dict keys and values are kept.
    With `optimizer=`, which needs `inplace=True`, the parameters of the gates join that optimizer
    in a group of their own, with the settings of its first; make a schedule of learning rates
    afterwards.
    """
    began = perf_counter()
    check_optimizer(optimizer, inplace)
    check_values("insert", insert, {"inplace": inplace, "shared": shared})
    how = _How(where, start, place, shared).checked()
    resolved = _resolved(model, gate, options, how)
    network = model if inplace else _copied(model)
    record_start(network, example)
    original = Original.of(network, example, began)
    kept = frozenset(name for name, _ in attachments(network))
    try:
        with following(optimizer, network):
            receipt = _operate(network, original, resolved, how, kept)
    except Exception:
        if inplace:
            remove_attachments(network, keep=kept)
        raise
    remember(network, _written_down(network, gate, how, options, example, kept))
    new = [each.site.label for name, each in attachments(network) if name not in kept]
    record_event(network, _inserted(list(dict.fromkeys(new)), receipt, gate, how, options))
    return network, receipt


def _inserted(
    labels: list[str],
    receipt: Receipt,
    gate: str | Callable[[int], nn.Module],
    how: _How,
    options: dict[str, Any],
) -> Inserted:
    """Describe the insertion for files; a function that chose sites becomes the blocks, or modules,
    it chose."""
    blocks = all(re.fullmatch(r"\d+\.\d+", label) for label in labels)
    chosen = f"blocks:{','.join(labels)}" if blocks else list(receipt.sites)
    where = chosen if callable(how.where) else parse_where(how.where)
    return Inserted(name_of_gate(gate), where, how.start, how.place, how.shared, dict(options))


def _written_down(
    network: nn.Module,
    gate: str | Callable[[int], nn.Module],
    how: _How,
    options: dict[str, Any],
    example: Example | None,
    kept: frozenset[str],
) -> Insertion:
    """The arguments of `insert` in words, for folders of Hugging Face."""
    chosen = [each.site.label for name, each in attachments(network) if name not in kept]
    by_function = callable(how.where)
    return Insertion(
        name_of_gate(gate),
        None if callable(how.where) else parse_where(how.where),
        list(dict.fromkeys(chosen)) if by_function else None,
        how.start,
        how.place,
        how.shared,
        options,
        **stored_example(example),
    )


@dataclass(frozen=True)
class _How:
    """Where and how gates are to act, as `insert` was told."""

    where: Where
    start: Start
    place: Place
    shared: bool

    def checked(self) -> _How:
        """Understand `where`, or raise an error that names the nearest valid choice."""
        if self.start not in _STARTS:
            raise unknown_name("start", self.start, _STARTS)
        if self.place not in get_args(Place):
            raise unknown_name("place", self.place, get_args(Place))
        return self if callable(self.where) else replace(self, where=parse_where(self.where))


def _resolved(
    model: nn.Module, gate: str | Callable[[int], nn.Module], options: dict[str, Any], how: _How
) -> Sequence[Resolved]:
    """The gates that are asked for, if they can be inserted into `model`."""
    check_module(model)
    resolved = resolve(gate, options)
    if how.shared:
        _refuse_unsharable(resolved, how.where)
    _refuse_wrapped(model)
    return resolved


def _operate(
    network: nn.Module,
    original: Original,
    resolved: Sequence[Resolved],
    how: _How,
    kept: frozenset[str],
) -> Receipt:
    """Attach the gates to `network` itself, and compare it with what it was."""
    trains = all(item.trainable for item in resolved)
    notes = _notes(network, kept, trains)
    there = {id(module) for module in gate_modules(network)}
    sites, more = _attach(network, original, resolved, how)
    came = [module for module in gate_modules(network) if id(module) not in there]
    try:
        after = original.answer_with(network, came)
    except Exception as error:
        raise _gate_failed(error, resolved) or error from error
    figures = original.figures(network, after, after.macs)
    if not trains:
        added = figures["parameters_after"] - original.parameters
        more.append(
            f"the gates do not train (trainable=False): their {added:,} parameters stay at their "
            f"first values"
        )
    check_finite_weights(network, figures["max_change"])
    labels = "+".join(item.label for item in resolved)
    return Receipt(
        action=f"inserted {labels} into {type(network).__name__}",
        sites=tuple(sites),
        notes=(*notes, *more),
        **figures,
    )


def _gate_failed(error: Exception, resolved: Sequence[Resolved]) -> InputError | None:
    """One line for a gate of the user's own that does not run, with the line of its file; None for
    other errors."""
    own = [item.label for item in resolved if is_path(item.label)]
    # The cause is what the gate raised, if it was wrapped on the way.
    cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
    frames = traceback.extract_tb(cause.__traceback__)
    theirs = [f for f in frames if not re.search(r"[/\\\\](torch|attnlab|timm)[/\\\\]", f.filename)]
    if not own:
        return None
    first = (str(cause).splitlines() or [""])[0]
    last = theirs[-1] if theirs else None
    at = "" if last is None else f" ({Path(last.filename).name}, line {last.lineno}: {last.line})"
    return InputError(
        f"The gate {own[0]!r} fails when the network runs: {type(cause).__name__}: {first}{at}. A "
        f"gate is given the branch, and returns what broadcasts to it."
    )


def _attach(
    network: nn.Module, original: Original, resolved: Sequence[Resolved], how: _How
) -> tuple[list[str], list[str]]:
    """Attach the gates; return what the receipt says of the sites, and notes."""
    placed: list[tuple[str, str]] = []
    notes: list[str] = []
    for number, item in enumerate(resolved):
        _check_place(item, how.place)
        if item.form == "norm":
            graph = original.run.graph
            if not on_meta(network):  # the gate inside pools over the map, as SE does
                steps = [step for step in find_steps(graph) if len(step.shape) > 2]
                refuse_map_leaks(
                    network, original.run, original.example, item.label, steps, lambda: True
                )
            names = replace_norms(network, graph, how.where, how.start, trainable=item.trainable)
            placed += [(name, "") for name in names]
            guard_norms(network)
            continue
        # A constant gate that was asked for after another one stays after it.
        constant = all(each.constant for each in resolved[: number + 1])
        place = how.place
        if place == "auto" and item.at_heads:
            place = place_for_heads(network, original.run, how.where)
        elif place == "auto" and not constant:
            place = "branch"
        sites = _sites_of(network, original, item, how.where, place)
        if how.place == "auto" and item.at_heads:
            notes.append(_heads_note(item, place, len(sites), original))
        notes += _attach_at(network, original, item, sites, how)
        placed += [(_shown(site), site.label) for site in sites]
    return _distinct(placed), notes


def _check_place(item: Resolved, place: Place) -> None:
    """Refuse a gate that cannot act at this place."""
    wrong = item.form in ("norm", "step") and place == "norm"
    if wrong or (place == "heads" and not (item.form == "branch" or item.at_heads)):
        raise OptionError(
            f"{item.label!r} acts {_ACTS[item.form]}, so place={place!r} is not for it. Leave "
            f"place out."
        )


def _heads_note(item: Resolved, place: Place, sites: int, original: Original) -> str:
    """Say where a gate for heads went if nobody said where."""
    if place == "heads":
        others = len(find_steps(original.run.graph)) - sites
        return (
            f"{item.label} acts in front of the output projections of {sites} attentions "
            f"(place='heads'), and on none of the other {others} steps; place='branch' puts it at "
            f"the end of every step"
        )
    return (
        f"no attention was seen in the chosen steps (softmax, then a product with values), so "
        f"{item.label} acts at the end of branches (place='branch')"
    )


def _sites_of(
    network: nn.Module, original: Original, item: Resolved, where: Where, place: Place
) -> list[Site]:
    """Find where one gate is to act; refuse it if it cannot act at some of these sites."""
    identity_only = item.form == "step" and not item.include_first and place != "heads"
    sites = find_sites(
        network,
        original.run,
        where,
        both_ends=item.form == "step" and place != "heads",
        place=place,
        identity_only=identity_only,
    )
    if identity_only:
        sites = _identity_only(sites, where)
    refused = [site for site in sites if site.refusal]
    if refused:
        raise _refused(refused, len(sites), where)
    return sites


def _attach_at(
    network: nn.Module, original: Original, item: Resolved, sites: list[Site], how: _How
) -> list[str]:
    """Attach one gate; return what a user should know about it."""
    run = original.run
    notes = place_notes(network, run, sites) if item.constant else []
    notes += frozen_notes(network, sites)
    if how.shared:
        notes.append(_shared_note(item, sites))
    over_tokens = sites_over_tokens(network, run, original.example, item, sites)
    notes += token_notes(network, item, over_tokens)
    steps = [site.step for site in over_tokens if site.step is not None]
    beside = steps_beside(network, run.graph, original.example, steps)
    there = {id(each) for _, each in attachments(network)}
    tokens = Tokens(over_tokens, beside)
    attach_gate(network, item, sites, how.start, tokens, shared=how.shared)
    came = [each for _, each in attachments(network) if id(each) not in there]
    notes += join_streams(run.graph, came)
    notes += start_notes(network, sites) if item.constant and how.start == "paper" else []
    return notes


def _shown(site: Site) -> str:
    """For the receipt; a transformer block makes two additions, the second of them `blocks.0:1`."""
    if site.host != "addition":
        return site.module
    return f"{site.name}:{site.part}" if site.part and site.name else site.name or site.label


def _distinct(placed: Sequence[tuple[str, str]]) -> list[str]:
    """Names with labels, each pair once; with the label where several sites have one name."""
    sites = dict.fromkeys(placed)
    count = Counter(name for name, _ in sites)
    return [f"{name} ({label})" if count[name] > 1 else name for name, label in sites]


def _identity_only(sites: list[Site], where: Where) -> list[Site]:
    kept = [site for site in sites if site.kind == "identity"]
    if isinstance(where, str) and "code:" in where and len(kept) < len(sites):
        left_out = ", ".join(site.label for site in sites if site.kind != "identity")
        raise SiteError(
            f"where={where!r}: a step gate acts where the shortcut is x_t itself, but the code "
            f"asks for one at {left_out}, which has a projection shortcut. Write a 0 there, or "
            f"pass include_first=True to use the projected x_t."
        )
    if not kept:
        raise SiteError(
            f"A step gate acts where the shortcut is x_t itself, but all {len(sites)} chosen steps "
            f"have a projection shortcut. Pass include_first=True to use the projected x_t there."
        )
    return kept


def _refuse_unsharable(resolved: Sequence[Resolved], where: Where) -> None:
    for item in resolved:
        if item.form == "stage":
            raise OptionError(
                f"{item.label!r} is one gate per stage already. Leave shared=True out."
            )
        if item.form == "norm":
            raise OptionError(
                f"{item.label!r} acts inside norms, each with statistics of its own, so "
                f"shared=True is not for it. Leave it out, or choose 'ie'."
            )
    if isinstance(where, list):
        raise OptionError(
            "shared=True is one gate for the chosen blocks of a stage, and here modules are named. "
            "Choose blocks, for example where='blocks:0,3'."
        )


def _shared_note(item: Resolved, sites: Sequence[Site]) -> str:
    gates = len({(site.series, site.channels) for site in sites})
    return f"{gates} {item.label} gates act at {len(sites)} sites: one per stage (shared=True)"


def _refused(refused: list[Site], total: int, where: Where) -> SiteError:
    listed = "\n".join(
        f"  {' '.join(dict.fromkeys((site.label, site.name)))}: {site.refusal}."
        for site in refused[:5]
    )
    more = f"\n  and {len(refused) - 5} more." if len(refused) > 5 else ""
    advice = "Choose the others with where=lambda site: not site.refusal."
    if where is None and len(refused) == total:
        advice = "They are all that where=None chooses."
    return SiteError(
        f"No gate can act at {len(refused)} of {total} sites:\n{listed}{more}\n{advice}"
    )


def _copied(model: nn.Module) -> nn.Module:
    try:
        return deep_copy(model)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise InputError(
            f"{type(model).__name__} cannot be copied ({error}). Insert with inplace=True, which "
            f"changes the model itself."
        ) from error


def _refuse_wrapped(model: nn.Module) -> None:
    name = type(model).__name__
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError(f"{name} is scripted, so it cannot be changed. Insert before scripting.")
    if name == "OptimizedModule":
        raise InputError(
            "The model is wrapped by torch.compile. Insert into the original and compile the "
            "result: torch.compile(insert(model._orig_mod, gate)[0])."
        )
    if name in ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel"):
        raise InputError(
            f"The model is wrapped in {name}, which would not synchronise new parameters. Insert "
            f"into model.module and wrap the result."
        )


def _notes(network: nn.Module, kept: frozenset[str], trains: bool) -> list[str]:
    """What a user should know about the network before gates go in."""
    notes = []
    if kept:
        notes.append(f"the network already carried {len(kept)} of our gates; the new ones follow")
    names = {
        type(module).__name__
        for module in network.modules()
        if not type(module).__module__.startswith("attnlab.")
    }
    own = sorted(names & set(_ATTENTION_CLASSES.split()))
    if own:
        notes.append(
            f"the network has attention of its own ({', '.join(own)}), which is kept; the new "
            f"gates act after it"
        )
    frozen = sum(not parameter.requires_grad for parameter in network.parameters())
    if frozen:
        notes.append(f"{frozen} frozen parameters stay frozen{'; the gates train' * trains}")
    if type(network).__module__.startswith("ultralytics."):
        notes.append(REBUILT)
    return notes
