"""How many small mistakes in the core do its tests notice?

    python -m tests.tools.mutate --number 200 --out mutants.json

Takes places of the core at random (the same each time, from all rooms in turn), makes one small
mistake at each (another comparison, sign, number, axis or truth value, arguments swapped, a term
dropped, something kept that should be made anew), and runs the quick tests of that file, then all
of its room. A test that fails is run again without the mistake. A mistake that no test notices is
printed: either a test is missing, or it makes no difference. Not part of CI: it takes an hour.
Processes are forked from one that has imported torch, so that each takes little time. `--kind`
chooses kinds of mistakes, `--near` runs the quick tests of the file only, and
`--again mutants.json` tries those that survived in that file.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
TESTS: dict[str, tuple[str, ...]] = {
    "residuals/where.py": ("tests/residuals/test_where.py",),
    "residuals/steps.py": ("tests/residuals/test_steps.py", "tests/residuals/test_additions.py"),
    "residuals/_detect.py": ("tests/residuals/test_steps.py", "tests/residuals/test_additions.py"),
    "residuals/choose.py": (
        "tests/surgery/insertion/test_place.py",
        "tests/residuals/test_where.py",
    ),
    "surgery/insertion/insert.py": (
        "tests/surgery/insertion/test_insert.py",
        "tests/surgery/insertion/test_place.py",
    ),
    "surgery/change.py": (
        "tests/surgery/insertion/test_outputs.py",
        "tests/surgery/insertion/test_insert.py",
    ),
    "residuals/watching.py": ("tests/residuals/test_watching.py",),
    "surgery/folding/_rules.py": (
        "tests/surgery/folding/test_layers.py",
        "tests/surgery/folding/test_refusals.py",
    ),
    "surgery/folding/_layer_rules.py": (
        "tests/surgery/folding/test_layers.py",
        "tests/surgery/folding/test_refusals.py",
    ),
    "surgery/folding/_walk.py": (
        "tests/surgery/folding/test_layers.py",
        "tests/surgery/folding/test_refusals.py",
    ),
    "surgery/folding/_flow.py": (
        "tests/surgery/folding/test_layers.py",
        "tests/surgery/folding/test_refusals.py",
    ),
    "surgery/folding/_means.py": ("tests/surgery/folding/test_constants.py",),
    "surgery/folding/fold.py": (
        "tests/surgery/folding/test_constants.py",
        "tests/surgery/folding/test_fuse.py",
        "tests/surgery/folding/test_budget.py",
    ),
    "instruments/stiffness/metrics.py": (
        "tests/instruments/stiffness/test_metrics.py",
        "tests/instruments/stiffness/test_total.py",
    ),
    "instruments/stiffness/conventions.py": ("tests/instruments/stiffness/test_conventions.py",),
    "instruments/stiffness/norms.py": ("tests/instruments/stiffness/test_norms.py",),
    "instruments/stiffness/grid.py": ("tests/instruments/stiffness/test_grid.py",),
    "instruments/stiffness/total.py": (
        "tests/instruments/stiffness/test_total.py",
        "tests/instruments/stiffness/test_stiffest.py",
    ),
    "instruments/stiffness/stages.py": (
        "tests/instruments/stiffness/test_total.py",
        "tests/instruments/stiffness/test_plans.py",
    ),
    "gates/_shared.py": (
        "tests/gates/test_references.py",
        "tests/gates/test_registry.py",
    ),
    "gates/asr.py": ("tests/gates/test_asr.py",),
    "gates/step.py": ("tests/gates/test_step.py", "tests/gates/test_references.py"),
    "gates/registry.py": ("tests/gates/test_registry.py",),
    "lab/statistics/paired.py": ("tests/lab/statistics/test_statistics.py",),
    "lab/statistics/anytime.py": (
        "tests/lab/statistics/test_anytime.py",
        "tests/lab/statistics/test_equivalent.py",
    ),
    "lab/study/history.py": ("tests/lab/study/test_history.py",),
    "results/run.py": ("tests/lab/study/test_damage.py",),
    "results/run_reader.py": ("tests/lab/study/test_damage.py",),
    "_checked.py": ("tests/test_bad_inputs.py",),
    "data/memory.py": ("tests/data/test_images.py", "tests/data/test_load.py"),
    "results/checkpoints.py": ("tests/lab/training/test_checkpoint.py",),
    "residuals/_arms.py": ("tests/residuals/test_additions.py", "tests/residuals/test_steps.py"),
    "residuals/_update.py": (
        "tests/residuals/test_steps.py",
        "tests/residuals/test_additions.py",
        "tests/residuals/test_forms_of_steps.py",
    ),
    "residuals/inputs.py": ("tests/residuals/test_inputs.py",),
    "residuals/selection.py": (
        "tests/residuals/test_selection_parts.py",
        "tests/surgery/insertion/test_outputs.py",
    ),
    "residuals/graph.py": (
        "tests/residuals/test_axes.py",
        "tests/surgery/insertion/test_tokens.py",
    ),
    "surgery/insertion/_ran.py": ("tests/surgery/insertion/test_paths.py",),
    "surgery/insertion/_marked.py": ("tests/surgery/insertion/test_marked.py",),
    "surgery/insertion/_guard.py": (
        "tests/surgery/insertion/test_exchanges.py",
        "tests/surgery/insertion/test_survival.py",
    ),
    "surgery/insertion/_causal.py": (
        "tests/surgery/insertion/test_causal_parts.py",
        "tests/surgery/insertion/test_tokens.py",
    ),
    "surgery/optimizer.py": ("tests/surgery/test_optimizer.py",),
    "surgery/folding/_cost.py": (
        "tests/surgery/folding/test_parts.py",
        "tests/surgery/folding/test_budget.py",
    ),
    "surgery/folding/_norms.py": (
        "tests/surgery/folding/test_parts.py",
        "tests/surgery/folding/test_budget.py",
    ),
    "surgery/folding/_halves.py": (
        "tests/surgery/folding/test_parts.py",
        "tests/surgery/folding/test_budget.py",
    ),
    "surgery/folding/_fit.py": ("tests/surgery/folding/test_budget.py",),
    "surgery/folding/_taps.py": (
        "tests/surgery/folding/test_constants.py",
        "tests/surgery/folding/test_budget.py",
    ),
    "surgery/folding/_plan.py": (
        "tests/surgery/folding/test_layers.py",
        "tests/surgery/folding/test_refusals.py",
        "tests/surgery/folding/test_undo.py",
    ),
    "surgery/folding/_ids.py": (
        "tests/surgery/folding/test_layers.py",
        "tests/surgery/folding/test_refusals.py",
        "tests/surgery/folding/test_random.py",
    ),
    "instruments/stiffness/block_sums.py": (
        "tests/instruments/stiffness/test_gate_product.py",
        "tests/instruments/stiffness/test_transformers.py",
        "tests/instruments/stiffness/test_capture.py",
    ),
    "instruments/stiffness/spectrum.py": ("tests/instruments/stiffness/test_spectrum.py",),
    "instruments/stiffness/step_index.py": ("tests/instruments/stiffness/test_step_index.py",),
    "instruments/stripe/_stream.py": ("tests/instruments/stripe/test_stream.py",),
    "instruments/stripe/measure.py": (
        "tests/instruments/stripe/test_values.py",
        "tests/instruments/stripe/test_gates.py",
    ),
    "instruments/maps/_attention.py": ("tests/instruments/maps/test_maps.py",),
    "instruments/place/gate_spread.py": ("tests/instruments/place/test_strategies.py",),
    "instruments/place/stiffness.py": ("tests/instruments/place/test_strategies.py",),
    "instruments/trajectory/similarity.py": ("tests/instruments/trajectory/test_trajectory.py",),
    "instruments/trajectory/measure.py": ("tests/instruments/trajectory/test_trajectory.py",),
    "instruments/dynamics/three_body.py": ("tests/instruments/dynamics/test_three_body.py",),
    "instruments/dynamics/theorem2.py": ("tests/instruments/dynamics/test_indices.py",),
    "instruments/noise/measure.py": ("tests/instruments/noise/test_noise.py",),
    "gates/cbam.py": ("tests/gates/test_references.py", "tests/gates/test_references_more.py"),
    "gates/eca.py": ("tests/gates/test_references.py", "tests/gates/test_references_more.py"),
    "gates/iebn.py": ("tests/gates/test_iebn.py",),
    "evolution/_plain.py": ("tests/evolution/test_primitives.py",),
    "evolution/dynamic.py": (
        "tests/evolution/test_operators.py",
        "tests/evolution/test_reference.py",
        "tests/evolution/test_corrections.py",
    ),
    "evolution/forms.py": (
        "tests/evolution/test_primitives.py",
        "tests/evolution/test_operators.py",
        "tests/evolution/test_axes.py",
    ),
    "evolution/window.py": ("tests/evolution/test_primitives.py",),
    "networks/backbones/reparameterized.py": ("tests/networks/backbones/test_reparameterize.py",),
    "networks/backbones/resnet.py": ("tests/networks/backbones/test_resnet.py",),
    "networks/preprocessing.py": (
        "tests/networks/test_preprocessing.py",
        "tests/subject/test_open.py",
    ),
    "data/corruptions.py": ("tests/data/test_corruptions.py",),
    "data/augment.py": ("tests/data/test_augment.py",),
    "data/batches.py": ("tests/data/test_batches.py",),
    "tasks/_average_precision.py": ("tests/detection/test_average_precision.py",),
    "tasks/classification.py": ("tests/tasks/test_metrics.py",),
    "tasks/regression.py": ("tests/tasks/test_metrics.py",),
    "tasks/style.py": ("tests/tasks/test_style.py",),
    "subject/opening.py": ("tests/subject/test_open.py",),
    "lab/statistics/equivalent.py": ("tests/lab/statistics/test_equivalent.py",),
    "lab/study/looking.py": ("tests/lab/study/test_looking.py",),
    "page/raster.py": ("tests/lab/pages/test_pictures.py", "tests/lab/pages/test_figures.py"),
    "page/tables.py": ("tests/lab/pages/test_small_pages.py", "tests/lab/pages/test_verdict.py"),
    "_address.py": ("tests/lab/study/test_addresses.py",),
    "_spread.py": ("tests/test_spread.py",),
    "timing.py": ("tests/test_timing.py",),
    "bridges/hub.py": ("tests/bridges/test_hub.py",),
    "bridges/yolo_study/folder.py": (
        "tests/bridges/test_yolo_kinds.py",
        "tests/bridges/test_yolo_study.py",
    ),
    "bridges/yolo_study/kinds.py": ("tests/bridges/test_yolo_kinds.py",),
    "cli/_words.py": ("tests/cli/test_words.py",),
    "cli/modules.py": ("tests/cli/test_modules.py",),
    "cli/driver.py": (
        "tests/cli/test_words.py",
        "tests/cli/test_try.py",
    ),
    "data/boxes.py": ("tests/detection/test_boxes.py",),
    "data/config.py": (
        "tests/detection/test_boxes.py",
        "tests/data/test_load.py",
    ),
    "data/folder.py": (
        "tests/data/test_load.py",
        "tests/data/test_folder_addresses.py",
    ),
    "data/masks.py": ("tests/segmentation/test_masks.py",),
    "data/shards.py": ("tests/data/test_shards.py",),
    "data/stream.py": ("tests/data/test_stream.py",),
    "data/samples.py": (
        "tests/data/test_stream.py",
        "tests/data/test_parquet.py",
    ),
    "data/text.py": ("tests/data/test_text.py",),
    "evolution/attention.py": (
        "tests/evolution/test_attention.py",
        "tests/evolution/test_corrections.py",
    ),
    "evolution/as_evolution.py": (
        "tests/evolution/test_operators.py",
        "tests/evolution/test_axes.py",
        "tests/evolution/test_mixed.py",
    ),
    "evolution/replace.py": ("tests/evolution/test_replace.py",),
    "evolution/device/contest.py": ("tests/evolution/test_device.py",),
    "gates/_pooling.py": (
        "tests/gates/test_pooling.py",
        "tests/gates/test_references.py",
    ),
    "gates/_statistics.py": (
        "tests/gates/test_references.py",
        "tests/gates/test_references_more.py",
    ),
    "gates/hyper.py": ("tests/surgery/insertion/test_streams.py",),
    "gates/multiplied.py": ("tests/gates/test_multiplied.py",),
    "gates/head.py": ("tests/surgery/insertion/test_heads.py",),
    "instruments/corruptions/measure.py": ("tests/instruments/corruptions/test_corruptions.py",),
    "instruments/dynamics/problems.py": (
        "tests/instruments/dynamics/test_problems.py",
        "tests/instruments/dynamics/test_indices.py",
    ),
    "instruments/forms/gains.py": ("tests/instruments/forms/test_forms.py",),
    "instruments/forms/measure.py": (
        "tests/instruments/forms/test_forms.py",
        "tests/surgery/insertion/test_streams.py",
    ),
    "instruments/noise/compare.py": ("tests/instruments/noise/test_noise.py",),
    "instruments/pictures/measure.py": ("tests/instruments/pictures/test_pictures.py",),
    "instruments/classes/result.py": (
        "tests/lab/pages/test_small_pages.py",
        "tests/lab/measures/test_measure.py",
    ),
    "instruments/details/section.py": ("tests/lab/pages/test_details.py",),
    "instruments/removal/curves.py": (
        "tests/instruments/removal/test_rankings.py",
        "tests/instruments/removal/test_bad_inputs.py",
    ),
    "instruments/removal/trial.py": (
        "tests/instruments/removal/test_rankings.py",
        "tests/instruments/removal/test_language.py",
    ),
    "instruments/removal/rankings/tns.py": ("tests/instruments/removal/test_rankings.py",),
    "instruments/removal/rankings/influence.py": ("tests/instruments/removal/test_rankings.py",),
    "instruments/speed/measure.py": ("tests/instruments/speed/test_speed_table.py",),
    "instruments/speed/result.py": ("tests/instruments/speed/test_speed_table.py",),
    "instruments/stiffness/capture.py": (
        "tests/instruments/stiffness/test_capture.py",
        "tests/instruments/stiffness/test_gates.py",
    ),
    "instruments/stiffness/measure.py": (
        "tests/instruments/stiffness/test_measure.py",
        "tests/instruments/stiffness/test_gates.py",
    ),
    "instruments/stripe/history.py": ("tests/instruments/stripe/test_stream.py",),
    "instruments/stripe/section.py": ("tests/lab/pages/test_verdict.py",),
    "lab/nearness.py": ("tests/lab/test_nearness.py",),
    "lab/comparison/seeds.py": ("tests/lab/comparison/test_compare.py",),
    "lab/comparison/compare.py": ("tests/lab/comparison/test_compare.py",),
    "lab/comparison/columns.py": (
        "tests/lab/comparison/test_compare.py",
        "tests/lab/comparison/test_command.py",
    ),
    "lab/measures/epoch.py": ("tests/lab/measures/test_epoch.py",),
    "lab/measures/run.py": (
        "tests/lab/measures/test_measure.py",
        "tests/instruments/corruptions/test_corruptions.py",
    ),
    "lab/pages/alerts.py": (
        "tests/lab/pages/test_standing.py",
        "tests/lab/pages/test_plan.py",
    ),
    "lab/pages/cost.py": ("tests/lab/pages/test_figures.py",),
    "lab/pages/doubts.py": ("tests/lab/pages/test_advice.py",),
    "lab/pages/verdict.py": (
        "tests/lab/pages/test_verdict.py",
        "tests/lab/pages/test_metric.py",
    ),
    "lab/statistics/power.py": (
        "tests/lab/statistics/test_statistics.py",
        "tests/lab/statistics/test_anytime.py",
    ),
    "lab/statistics/student.py": ("tests/lab/statistics/test_student.py",),
    "lab/study/definition.py": (
        "tests/lab/study/test_definition.py",
        "tests/lab/study/test_files.py",
    ),
    "lab/study/estimate.py": ("tests/lab/study/test_estimate.py",),
    "lab/study/grid.py": ("tests/lab/study/test_definition.py",),
    "lab/study/lease.py": (
        "tests/lab/study/test_lock.py",
        "tests/lab/study/test_s3.py",
    ),
    "lab/study/lock.py": (
        "tests/lab/study/test_lock.py",
        "tests/lab/study/test_processes.py",
    ),
    "lab/study/shared.py": ("tests/lab/study/test_shared.py",),
    "lab/study/status.py": (
        "tests/lab/study/test_history.py",
        "tests/lab/study/test_looking.py",
    ),
    "lab/study/table.py": ("tests/lab/study/test_many.py",),
    "lab/study/worker.py": (
        "tests/lab/study/test_stopping.py",
        "tests/lab/study/test_run.py",
    ),
    "lab/study/executors/local.py": ("tests/lab/study/test_processes.py",),
    "lab/study/executors/slurm.py": ("tests/lab/study/test_slurm.py",),
    "lab/study/executors/ray.py": (
        "tests/lab/study/test_ray.py",
        "tests/lab/study/test_devices.py",
    ),
    "lab/tracking/registry.py": ("tests/lab/tracking/test_settings.py",),
    "lab/training/accumulation.py": ("tests/lab/training/test_accumulation.py",),
    "lab/training/diagnose.py": ("tests/lab/training/test_diagnose.py",),
    "lab/training/loop.py": (
        "tests/lab/training/test_train.py",
        "tests/lab/training/test_preempted.py",
    ),
    "lab/training/recipe.py": ("tests/lab/training/test_recipes.py",),
    "lab/training/rounds.py": ("tests/lab/training/test_steps.py",),
    "lab/training/schedule.py": (
        "tests/lab/training/test_recipes.py",
        "tests/lab/training/test_steps.py",
    ),
    "networks/create.py": ("tests/networks/test_create.py",),
    "networks/backbones/weights.py": ("tests/networks/backbones/test_weights.py",),
    "networks/checkpoint/description.py": ("tests/networks/checkpoint/test_checkpoint.py",),
    "networks/checkpoint/files.py": (
        "tests/networks/checkpoint/test_checkpoint.py",
        "tests/networks/checkpoint/test_place.py",
        "tests/subject/test_messages.py",
    ),
    "page/plot.py": ("tests/lab/pages/test_figures.py",),
    "page/scatter.py": ("tests/lab/pages/test_figures.py",),
    "residuals/products.py": (
        "tests/residuals/test_steps.py",
        "tests/surgery/insertion/test_heads.py",
    ),
    "residuals/copying.py": ("tests/residuals/test_copying.py",),
    "residuals/example.py": (
        "tests/residuals/test_example.py",
        "tests/residuals/test_memory.py",
    ),
    "residuals/padding.py": (
        "tests/surgery/insertion/test_tokens.py",
        "tests/surgery/insertion/test_packed.py",
    ),
    "residuals/recorder.py": (
        "tests/residuals/test_steps.py",
        "tests/residuals/test_axes.py",
    ),
    "results/damage.py": ("tests/lab/study/test_damage.py",),
    "results/mirror.py": (
        "tests/lab/study/test_addresses.py",
        "tests/lab/study/test_s3.py",
    ),
    "results/objects.py": (
        "tests/lab/study/test_addresses.py",
        "tests/lab/study/test_s3.py",
    ),
    "results/record.py": (
        "tests/lab/training/test_reporters.py",
        "tests/lab/study/test_damage.py",
    ),
    "results/table.py": ("tests/lab/study/test_answer.py",),
    "results/verdict.py": (
        "tests/lab/pages/test_verdict.py",
        "tests/lab/pages/test_plan.py",
    ),
    "subject/building.py": ("tests/subject/test_open.py",),
    "subject/run.py": ("tests/subject/test_open.py",),
    "surgery/folding/_choose.py": ("tests/surgery/folding/test_budget.py",),
    "surgery/folding/_own_gates.py": ("tests/surgery/folding/test_own_gates.py",),
    "surgery/folding/_scales.py": ("tests/surgery/folding/test_scales.py",),
    "surgery/folding/_shifted.py": ("tests/surgery/folding/test_reparameterise.py",),
    "surgery/insertion/_causal_maps.py": ("tests/surgery/insertion/test_causal_maps.py",),
    "surgery/insertion/_exchange.py": (
        "tests/surgery/insertion/test_exchanges.py",
        "tests/surgery/insertion/test_marked.py",
    ),
    "surgery/insertion/_packed.py": ("tests/surgery/insertion/test_packed.py",),
    "surgery/insertion/_streams.py": ("tests/surgery/insertion/test_streams.py",),
    "surgery/insertion/_hosted.py": (
        "tests/surgery/insertion/test_insert.py",
        "tests/surgery/insertion/test_paths.py",
    ),
    "surgery/insertion/host.py": (
        "tests/surgery/insertion/test_insert.py",
        "tests/surgery/insertion/test_shared.py",
    ),
    "surgery/noise/attaching.py": (
        "tests/surgery/noise/test_attach.py",
        "tests/surgery/noise/test_guard.py",
    ),
    "surgery/noise/kinds.py": (
        "tests/surgery/noise/test_laws.py",
        "tests/surgery/noise/test_attach.py",
    ),
    "surgery/repair/distillation.py": (
        "tests/surgery/repair/test_distil.py",
        "tests/surgery/repair/test_resume.py",
    ),
    "surgery/shortening/operation.py": (
        "tests/instruments/removal/test_surgery.py",
        "tests/instruments/removal/test_language.py",
    ),
    "surgery/shortening/norms.py": (
        "tests/instruments/removal/test_surgery.py",
        "tests/instruments/removal/test_language.py",
    ),
    "tasks/_detectors.py": ("tests/detection/test_detectors.py",),
    "tasks/_mask_metrics.py": ("tests/segmentation/test_metrics.py",),
    "tasks/language.py": (
        "tests/tasks/test_metrics.py",
        "tests/lab/study/test_answer.py",
    ),
    "tasks/perceptual.py": ("tests/tasks/test_perceptual.py",),
    "testing/_law.py": ("tests/gates/test_testing.py",),
    "testing/_probe.py": (
        "tests/gates/test_testing.py",
        "tests/gates/test_conformance.py",
    ),
}
"""The files of the core, and the tests that should notice a mistake there; they run first."""

_COMPARE: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
_TAKES_AXIS = """all amax amin any argmax argmin argsort cat concatenate cumsum diff expand_dims
    flatten flip gather index_select logsumexp mean median min max movedim norm prod quantile select
    softmax sort split squeeze stack std sum topk transpose unbind unsqueeze var var_mean"""
"""Functions and methods whose integers are axes."""
_COPIES = frozenset(("clone", "copy", "deepcopy"))
_FORGETS = frozenset(("clear", "discard", "pop", "popitem", "remove", "reset", "update", "zero_"))


def mistakes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Nodes to put in the place of `node`, each with what is changed."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARE:
        changed = copy.deepcopy(node)
        changed.ops[0] = _COMPARE[type(node.ops[0])]()
        yield "comparison", changed
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        changed_op = copy.deepcopy(node)
        changed_op.op = _ARITHMETIC[type(node.op)]()
        yield "arithmetic", changed_op
    if isinstance(node, ast.BoolOp):
        changed_bool = copy.deepcopy(node)
        changed_bool.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and or", changed_bool
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield "not or minus left out", node.operand
    if isinstance(node, ast.IfExp):
        changed_if = copy.deepcopy(node)
        changed_if.body, changed_if.orelse = changed_if.orelse, changed_if.body
        yield "if else turned round", changed_if
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield "number", ast.Constant(node.value + 1)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "truth value", ast.Constant(not node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NAMES:
        changed_call = copy.deepcopy(node)
        changed_call.func = ast.Name(_NAMES[node.func.id], ast.Load())
        yield node.func.id, changed_call
    yield from _swapped(node)
    yield from _dropped(node)
    yield from _on_another_axis(node)
    yield from _stale(node)


def _swapped(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """A call with its first two arguments exchanged."""
    if isinstance(node, ast.Call) and len(node.args) > 1 and not _is_a_check(node):
        first, second = node.args[:2]
        starred = isinstance(first, ast.Starred) or isinstance(second, ast.Starred)
        if not starred and ast.dump(first) != ast.dump(second):
            changed = copy.deepcopy(node)
            changed.args[:2] = changed.args[1::-1]
            yield "swapped arguments", changed


def _is_a_check(node: ast.Call) -> bool:
    """Of types: turned round, every test notices it at once."""
    return isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass")


def _dropped(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """One operand of a sum, product or condition left out."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
        yield "dropped term", node.left
    if isinstance(node, ast.BoolOp):
        yield "dropped term", node.values[0]
    if isinstance(node, ast.AugAssign):
        yield "dropped term", ast.Assign([node.target], node.value)


def _on_another_axis(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """A call on the axis beside the one that is meant."""
    if not isinstance(node, ast.Call):
        return
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    for number, argument in enumerate(node.args if name in _TAKES_AXIS.split() else []):
        if (axis := _whole(argument)) is not None:
            changed = copy.deepcopy(node)
            changed.args[number] = ast.Constant(_beside(axis))
            yield "wrong axis", changed
    for number, keyword in enumerate(node.keywords):
        axis = _whole(keyword.value)
        if keyword.arg in ("dim", "axis", "start_dim") and axis is not None:
            changed = copy.deepcopy(node)
            changed.keywords[number].value = ast.Constant(_beside(axis))
            yield "wrong axis", changed


def _whole(node: ast.AST) -> int | None:
    """The integer that is written there."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError):
        return None
    return value if type(value) is int else None


def _beside(axis: int) -> int:
    return axis - 1 if axis > 0 or axis == -1 else axis + 1


def _stale(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What was stored before is used again: a value not stored, not forgotten or not copied."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        yield "stale", ast.Pass()
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        if isinstance(function, ast.Attribute) and function.attr in _FORGETS:
            yield "stale", ast.Pass()
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        copied = node.args[0] if node.args else node.func.value
        if node.func.attr in _COPIES:
            yield "stale", copied
    if isinstance(node, ast.FunctionDef) and _could_be_cached(node):
        changed = copy.deepcopy(node)
        changed.decorator_list.append(ast.parse("__import__('functools').cache", mode="eval").body)
        yield "stale", changed


_HASHED = ("Tensor", "nn.Module", "Node", "Path", "int", "float", "str", "bool", "self")


def _could_be_cached(node: ast.FunctionDef) -> bool:
    """Whether it returns something, and takes only what a cache can look up: else it would stop."""
    returns = any(isinstance(each, ast.Return) and each.value for each in ast.walk(node))
    yields = any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(node))
    given = [*node.args.args, *node.args.kwonlyargs]
    types = [ast.unparse(each.annotation) if each.annotation else each.arg for each in given]
    hashed = bool(given) and all(each in _HASHED for each in types)
    return returns and hashed and not yields and not node.decorator_list


class _Put(ast.NodeTransformer):
    def __init__(self, place: int, new: ast.AST) -> None:
        self.place, self.new, self.seen = place, new, -1

    def generic_visit(self, node: ast.AST) -> ast.AST:
        self.seen += 1
        return self.new if self.seen == self.place else super().generic_visit(node)


class Mistake(NamedTuple):
    """One small mistake in a file."""

    file: str
    line: int
    said: str
    node: int
    """The number of the node, in the order of visiting."""
    new: ast.AST

    def written(self, source: str) -> str:
        """The whole file with it."""
        changed = _Put(self.node, self.new).visit(ast.parse(source))
        return ast.unparse(ast.fix_missing_locations(changed))


def places(file: str, source: str, kind: str) -> list[Mistake]:
    """All mistakes of a kind that can be made in a file."""
    found = []
    for number, node in enumerate(_in_order(ast.parse(source))):
        for what, new in mistakes(node):
            if kind in what:
                said = f"{what}: {_shown(node)} -> {_shown(new)}"
                found.append(Mistake(file, getattr(node, "lineno", 0), said, number, new))
    return found


def _shown(node: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(copy.deepcopy(node)))[:60]


def spread(every: list[Mistake], number: int, seed: int) -> list[Mistake]:
    """So many of them at random, from all rooms in turn."""
    drawn = random.Random(seed)
    rooms: dict[str, list[Mistake]] = {}
    for each in drawn.sample(every, len(every)):
        rooms.setdefault("/".join(each.file.split("/")[:-1]), []).append(each)
    in_turn = [each for row in zip_longest(*rooms.values()) for each in row if each is not None]
    return in_turn[:number]


def _in_order(tree: ast.AST) -> list[ast.AST]:
    seen: list[ast.AST] = []

    class Visitor(ast.NodeVisitor):
        def generic_visit(self, node: ast.AST) -> None:
            seen.append(node)
            super().generic_visit(node)

    Visitor().visit(tree)
    return seen


class Ended(NamedTuple):
    """How a run of tests ended."""

    how: str
    """ "passed", "failed" or "too long"."""
    failed: str
    """The test that failed, or the file that could not be read."""


class _Failed:
    """A plugin that writes down what failed first."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.file.exists():
            self.file.write_text(report.nodeid, encoding="utf-8")

    pytest_collectreport = pytest_runtest_logreport


def notices(folder: Path, tests: tuple[str, ...], seconds: int) -> Ended:
    """How the tests end on the package in `folder`, in so many seconds of a core."""
    report = folder / "failed"
    report.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.chdir(ROOT)
        sys.path[:0] = [str(folder), str(ROOT)]
        os.environ["PYTHONPATH"] = str(folder)
        import pytest

        code = 1
        try:
            imported = "ignore::pytest.PytestAssertRewriteWarning"  # plugins, before the fork
            given = ["-xq", "-W", imported, "-p", "no:cacheprovider", *tests]
            code = int(pytest.main(given, plugins=[_Failed(report)]))
        finally:
            os._exit(0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code)
    end = time.monotonic() + 5 * seconds  # a sleeping test takes no core, and others may be busy
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
            return Ended("too long", "")
        if done:
            failed = report.read_text(encoding="utf-8") if report.exists() else ""
            return Ended("passed" if status == 0 else "failed", failed)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return Ended("too long", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="files whose name contains this")
    parser.add_argument("--kind", default="", help="mistakes whose kind contains this")
    parser.add_argument("--near", action="store_true", help="run only the quick tests of the file")
    parser.add_argument("--again", type=Path, help="what survived in this file of an earlier run")
    parser.add_argument("--out", type=Path, default=Path("mutants.json"))
    given = parser.parse_args()
    import pytest  # noqa: F401
    import scipy.stats  # noqa: F401
    import timm  # noqa: F401
    import torch._dynamo  # noqa: F401
    import torchmetrics  # noqa: F401
    import torchvision  # noqa: F401
    import transformers  # noqa: F401

    assert not any(name == "attnlab" for name in sys.modules)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copytree(ROOT / "src" / "attnlab", folder / "attnlab")
        files = [name for name in TESTS if given.only in name]
        sources = {name: (folder / "attnlab" / name).read_text(encoding="utf-8") for name in files}
        every = [each for name in files for each in places(name, sources[name], given.kind)]
        if given.again is None:
            chosen = spread(every, given.number, given.seed)
        else:
            records = json.loads(given.again.read_text())
            left = {
                (r["file"], r["line"], r["change"])
                for r in records
                if r["ended"] not in ("failed", "too long")
            }
            chosen = [each for each in every if each[:3] in left]
        print(f"{len(every)} places, {len(chosen)} to try", flush=True)
        _run(folder, sources, chosen, given.out, near=given.near)


def _rooms(name: str, near: bool) -> dict[tuple[str, ...], int]:
    """The quick tests of a file, then all those of the rooms that its tests are in, each with the
    seconds of a core after which it is stopped."""
    rooms = tuple(dict.fromkeys(test.rpartition("/")[0] for test in TESTS[name]))
    quick = {("-m", "not slow", *TESTS[name]): 150}
    return quick if near else quick | {TESTS[name] if rooms == ("tests",) else rooms: 900}


def _run(
    folder: Path, sources: dict[str, str], chosen: list[Mistake], out: Path, *, near: bool
) -> None:
    without: dict[tuple[str, ...], str] = {}
    records = []
    for mistake in chosen:
        name, line, said = mistake[:3]
        file = folder / "attnlab" / name
        text = mistake.written(sources[name])
        for tests, seconds in _rooms(name, near).items():
            file.write_text(text, encoding="utf-8")
            ended, failed = notices(folder, tests, seconds)
            file.write_text(sources[name], encoding="utf-8")
            if ended == "passed":
                continue
            alone = (failed,) if "::" in failed else ("--collect-only", failed)
            again = alone if failed else tests
            if again not in without:
                without[again] = notices(folder, again, seconds).how
            if without[again] == "passed":
                break
            ended = f"{without[again]} without a mistake"
        records.append({"file": name, "line": line, "change": said, "ended": ended, "by": failed})
        noticed = sum(record["ended"] in ("failed", "too long") for record in records)
        mark = "SURVIVED" if ended == "passed" else ended
        print(f"{noticed}/{len(records)}  {mark}  {name}:{line}  {said}  {failed}", flush=True)
        out.write_text(json.dumps(records, indent=1))
    print(f"{len(records)} tried, {noticed} noticed")


if __name__ == "__main__":
    main()
