"""Put attention into any network: a copy of it, with a receipt of what changed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Literal

import torch
from torch import nn

from attnlab._errors import InputError, SiteError, unknown_name
from attnlab.insert._attach import attach_gate
from attnlab.insert._norms import replace_norms
from attnlab.insert._resolve import Resolved, resolve
from attnlab.insert.answer import Answer, answer, answer_of_run, calls_to_compare
from attnlab.insert.change import change_between
from attnlab.insert.host import attachments, remove
from attnlab.insert.receipt import Receipt, count_parameters
from attnlab.insert.selection import work_depends_on_values
from attnlab.insert.site import Site
from attnlab.insert.sites import DeclaresSites, named_sites, step_sites
from attnlab.insert.steps import find_steps, no_steps_error, norms_before_activation
from attnlab.insert.where import Where, parse_where, select
from attnlab.record.example import Example, Run, run_once

Start = Literal["paper", "identity"]
_STARTS = ("paper", "identity")
# Attention that timm and torchvision put into their own networks.
_ATTENTION_CLASSES = (
    "SEModule SqueezeExcite SqueezeExcitation SqueezeExciteCl EffectiveSEModule EcaModule "
    "CecaModule CbamModule LightCbamModule GlobalContext GatherExcite SplitAttn SelectiveKernel"
)


def insert(
    model: nn.Module,
    gate: str | Callable[[int], nn.Module],
    where: Where = None,
    start: Start = "paper",
    *,
    example: Example | None = None,
    inplace: bool = False,
    **options: Any,
) -> tuple[nn.Module, Receipt]:
    """Put `gate` on the residual steps of `model`; return the new network and a receipt.

    `gate` is a name (`"se"`, `"step"`, `"asr:se"`, `"asr:se*2"`, `"asr:se+se"`, ...) or a gate
    class that is built with the number of channels; `options` go to the gate. `where` chooses the
    sites (see `attnlab.insert.where`). `start="paper"` begins with the paper's gate,
    `start="identity"` leaves the output unchanged at first, for fine-tuning a pretrained network.

    The model is not modified unless `inplace=True`. Every original state-dict key and value is
    kept.
    """
    began = perf_counter()
    if start not in _STARTS:
        raise unknown_name("start", start, _STARTS)
    where = where if callable(where) else parse_where(where)
    resolved = resolve(gate, options)
    _refuse_wrapped(model)
    parameters = count_parameters(model)
    network = model if inplace else _copied(model)
    run = run_once(network, example)
    calls = calls_to_compare(run)
    before = answer_of_run(run, network, example, calls)
    kept = frozenset(name for name, _ in attachments(network))
    notes = _notes(network, kept)
    try:
        sites = _place(network, run, resolved, where, start)
        after = answer(network, example, calls)
    except Exception:
        if inplace:
            remove(network, keep=kept)
        raise
    change = change_between(before, after)
    receipt = Receipt(
        action=f"inserted {'+'.join(item.label for item in resolved)} into {type(model).__name__}",
        sites=tuple(sites),
        parameters_before=parameters,
        parameters_after=count_parameters(network),
        macs_before=before.macs,
        macs_after=_macs_after(run, before, after),
        max_change=change.largest,
        relative_change=change.relative,
        seconds=perf_counter() - began,
        notes=tuple(notes),
        compared=change.compared,
    )
    return network, receipt


def _macs_after(run: Run, before: Answer, after: Answer) -> int:
    """With the gates; where a network computes the more the more it finds, on what it found
    without them."""
    if work_depends_on_values(run.graph):
        return before.macs + after.gate_macs - before.gate_macs
    return after.macs


def find_sites(model: nn.Module, run: Run, where: Where, *, both_ends: bool) -> list[Site]:
    """The chosen sites of `model`. `both_ends`: the gate must see the shortcut as well."""
    where = where if callable(where) else parse_where(where)
    found = find_steps(run.graph)
    names = _named(model, run, where)
    if names is None and found:
        return select(step_sites(model, found, at_addition=both_ends), where)
    if names is None and not isinstance(model, DeclaresSites):
        raise no_steps_error(model, run)
    if both_ends:
        raise SiteError(
            "A step gate reads x_t and x_t + f, so it acts at residual additions only, not behind "
            "a module's output. Choose a gate that reads the branch (for example 'se'), or a "
            "network with residual steps."
        )
    if names is not None:
        return named_sites(model, run.graph, names, found)
    assert isinstance(model, DeclaresSites)
    return select(named_sites(model, run.graph, model.attention_sites, found), where)


def _named(model: nn.Module, run: Run, where: Where) -> Sequence[str] | None:
    """The modules that `where` names, or None where it chooses among the sites."""
    if where is None or callable(where):
        return None
    if not isinstance(where, str):
        return where
    if where != "norms":
        return [where] if where in dict(model.named_modules()) else None
    names = norms_before_activation(run.graph)
    if not names:
        raise SiteError(
            "where='norms': the network has no norm module whose output goes straight into an "
            "activation. Name modules by hand: where=['module.name', ...]."
        )
    return names


def _place(
    network: nn.Module, run: Run, resolved: Sequence[Resolved], where: Where, start: Start
) -> list[str]:
    placed: list[str] = []
    for item in resolved:
        if item.form == "norm":
            placed += replace_norms(network, run.graph, where, start)
            continue
        sites = find_sites(network, run, where, both_ends=item.form == "step")
        if item.form == "step" and not item.include_first:
            sites = _identity_only(sites)
        refused = [site for site in sites if site.refusal]
        if refused:
            raise _refused(refused, len(sites))
        attach_gate(network, item, sites, start)
        placed += [_shown(site) for site in sites]
    return list(dict.fromkeys(placed))


def _shown(site: Site) -> str:
    """For the receipt; a transformer block makes two additions, the second of them `blocks.0:1`."""
    if site.host == "output":
        return site.module
    return f"{site.name}:{site.part}" if site.part else site.name


def _identity_only(sites: list[Site]) -> list[Site]:
    kept = [site for site in sites if site.kind == "identity"]
    if not kept:
        raise SiteError(
            f"A step gate acts where the shortcut is x_t itself, but all {len(sites)} chosen steps "
            f"have a projection shortcut. Pass include_first=True to use the projected x_t there."
        )
    return kept


def _refused(refused: list[Site], total: int) -> SiteError:
    listed = "\n".join(
        f"  {' '.join(dict.fromkeys((site.label, site.name)))}: {site.refusal}."
        for site in refused[:5]
    )
    more = f"\n  and {len(refused) - 5} more." if len(refused) > 5 else ""
    return SiteError(
        f"No gate can act at {len(refused)} of {total} sites:\n{listed}{more}\n"
        f"Choose the others with where=lambda site: not site.refusal."
    )


def _copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
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


def _notes(network: nn.Module, kept: frozenset[str]) -> list[str]:
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
            f"gates act behind it"
        )
    frozen = sum(not parameter.requires_grad for parameter in network.parameters())
    if frozen:
        notes.append(f"{frozen} frozen parameters stay frozen; the gates train")
    return notes
