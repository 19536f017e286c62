"""Which tests belong to which file of the core, for `python -m tests.tools.mutate`."""

from __future__ import annotations

TESTS: dict[str, tuple[str, ...]] = {
    "residuals/where.py": ("tests/residuals/test_where.py",),
    "residuals/steps.py": ("tests/residuals/test_steps.py", "tests/residuals/test_additions.py"),
    "residuals/_detect.py": (
        "tests/residuals/test_steps.py",
        "tests/residuals/test_additions.py",
        "tests/residuals/test_forms_of_steps.py",
    ),
    "residuals/choose.py": (
        "tests/surgery/insertion/test_place.py",
        "tests/residuals/test_where.py",
    ),
    "surgery/insertion/insert.py": (
        "tests/surgery/insertion/test_insert.py",
        "tests/surgery/insertion/test_place.py",
        "tests/subject/test_messages.py",
    ),
    "surgery/change.py": (
        "tests/surgery/test_change.py",
        "tests/surgery/insertion/test_outputs.py",
        "tests/surgery/insertion/test_insert.py",
        "tests/instruments/removal/test_bad_inputs.py",
    ),
    "residuals/watching.py": (
        "tests/residuals/test_watching.py",
        "tests/residuals/test_forms_of_steps.py",
        "tests/residuals/test_form.py",
    ),
    "surgery/folding/_rules.py": (
        "tests/surgery/folding/test_language.py",
        "tests/surgery/folding/test_layers.py",
        "tests/surgery/folding/test_refusals.py",
        "tests/surgery/folding/test_own_gates.py",
    ),
    "surgery/folding/_layer_rules.py": (
        "tests/surgery/folding/test_layers.py",
        "tests/surgery/folding/test_refusals.py",
        "tests/surgery/folding/test_language.py",
        "tests/surgery/folding/test_own_gates.py",
    ),
    "surgery/folding/_walk.py": (
        "tests/surgery/folding/test_layers.py",
        "tests/surgery/folding/test_refusals.py",
        "tests/surgery/folding/test_language.py",
        "tests/surgery/folding/test_own_gates.py",
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
    "instruments/stiffness/conventions.py": (
        "tests/instruments/stiffness/test_conventions.py",
        "tests/instruments/stiffness/test_plans.py",
    ),
    "instruments/stiffness/norms.py": ("tests/instruments/stiffness/test_norms.py",),
    "instruments/stiffness/grid.py": ("tests/instruments/stiffness/test_grid.py",),
    "instruments/stiffness/total.py": (
        "tests/instruments/stiffness/test_total.py",
        "tests/instruments/stiffness/test_stiffest.py",
        "tests/instruments/stiffness/test_grid.py",
    ),
    "instruments/stiffness/stages.py": (
        "tests/instruments/stiffness/test_total.py",
        "tests/instruments/stiffness/test_plans.py",
        "tests/instruments/stiffness/test_grid.py",
    ),
    "gates/_shared.py": (
        "tests/gates/test_references.py",
        "tests/gates/test_registry.py",
        "tests/gates/test_parameters.py",
        "tests/gates/test_pooling.py",
    ),
    "gates/asr.py": ("tests/gates/test_asr.py",),
    "gates/step.py": ("tests/gates/test_step.py", "tests/gates/test_references.py"),
    "gates/registry.py": ("tests/gates/test_registry.py",),
    "lab/statistics/paired.py": (
        "tests/lab/statistics/test_statistics.py",
        "tests/lab/statistics/test_anytime.py",
    ),
    "lab/statistics/anytime.py": (
        "tests/lab/statistics/test_anytime.py",
        "tests/lab/statistics/test_equivalent.py",
    ),
    "lab/study/history.py": (
        "tests/lab/study/test_history.py",
        "tests/lab/study/test_threads.py",
    ),
    "results/run.py": (
        "tests/lab/study/test_damage.py",
        "tests/lab/study/test_many.py",
    ),
    "results/run_reader.py": (
        "tests/lab/study/test_damage.py",
        "tests/lab/study/test_proof.py",
    ),
    "_checked.py": ("tests/test_bad_inputs.py",),
    "data/memory.py": ("tests/data/test_images.py", "tests/data/test_load.py"),
    "results/checkpoints.py": (
        "tests/lab/training/test_checkpoint.py",
        "tests/lab/study/test_proof.py",
    ),
    "residuals/_arms.py": (
        "tests/residuals/test_updates.py",
        "tests/residuals/test_additions.py",
        "tests/residuals/test_steps.py",
    ),
    "residuals/_update.py": (
        "tests/residuals/test_updates.py",
        "tests/residuals/test_steps.py",
        "tests/residuals/test_additions.py",
        "tests/residuals/test_forms_of_steps.py",
    ),
    "residuals/inputs.py": (
        "tests/residuals/test_inputs.py",
        "tests/residuals/test_samples.py",
    ),
    "residuals/selection.py": (
        "tests/residuals/test_selection_parts.py",
        "tests/surgery/insertion/test_outputs.py",
    ),
    "residuals/graph.py": (
        "tests/residuals/test_graph.py",
        "tests/residuals/test_axes.py",
        "tests/surgery/insertion/test_tokens.py",
    ),
    "surgery/insertion/_ran.py": ("tests/surgery/insertion/test_paths.py",),
    "surgery/insertion/_marked.py": ("tests/surgery/insertion/test_marked.py",),
    "surgery/insertion/_effect.py": ("tests/surgery/insertion/test_effect.py",),
    "surgery/insertion/_guard.py": (
        "tests/surgery/insertion/test_methods.py",
        "tests/surgery/insertion/test_effect.py",
        "tests/surgery/insertion/test_exchanges.py",
        "tests/surgery/insertion/test_survival.py",
        "tests/surgery/insertion/test_paths.py",
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
    "surgery/folding/_fit.py": (
        "tests/surgery/folding/test_parts.py",
        "tests/surgery/folding/test_budget.py",
        "tests/surgery/folding/test_own_gates.py",
    ),
    "surgery/folding/_taps.py": (
        "tests/surgery/folding/test_parts.py",
        "tests/surgery/folding/test_constants.py",
        "tests/surgery/folding/test_own_gates.py",
        "tests/surgery/folding/test_budget.py",
        "tests/surgery/folding/test_own_gates.py",
    ),
    "surgery/folding/_plan.py": (
        "tests/surgery/folding/test_plan.py",
        "tests/surgery/folding/test_layers.py",
        "tests/surgery/folding/test_own_gates.py",
        "tests/surgery/folding/test_refusals.py",
        "tests/surgery/folding/test_undo.py",
        "tests/surgery/folding/test_language.py",
        "tests/surgery/folding/test_own_gates.py",
        "tests/surgery/folding/test_scales.py",
    ),
    "surgery/folding/_ids.py": (
        "tests/surgery/folding/test_ids.py",
        "tests/surgery/folding/test_layers.py",
        "tests/surgery/folding/test_refusals.py",
        "tests/surgery/folding/test_random.py",
        "tests/surgery/folding/test_reparameterise.py",
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
        "tests/instruments/test_themselves.py",
        "tests/instruments/stripe/test_stream.py",
    ),
    "instruments/maps/_attention.py": ("tests/instruments/maps/test_maps.py",),
    "instruments/place/gate_spread.py": (
        "tests/instruments/place/test_strategies.py",
        "tests/instruments/place/test_results.py",
    ),
    "instruments/place/stiffness.py": (
        "tests/instruments/place/test_strategies.py",
        "tests/instruments/place/test_results.py",
    ),
    "instruments/trajectory/similarity.py": ("tests/instruments/trajectory/test_trajectory.py",),
    "instruments/trajectory/measure.py": (
        "tests/instruments/trajectory/test_trajectory.py",
        "tests/instruments/test_themselves.py",
    ),
    "instruments/dynamics/three_body.py": ("tests/instruments/dynamics/test_three_body.py",),
    "instruments/dynamics/theorem2.py": (
        "tests/instruments/dynamics/test_indices.py",
        "tests/instruments/dynamics/test_command.py",
    ),
    "instruments/noise/measure.py": (
        "tests/instruments/noise/test_noise.py",
        "tests/instruments/test_themselves.py",
    ),
    "gates/cbam.py": ("tests/gates/test_references.py", "tests/gates/test_references_more.py"),
    "gates/eca.py": (
        "tests/gates/test_references.py",
        "tests/gates/test_references_more.py",
        "tests/gates/test_parameters.py",
    ),
    "gates/iebn.py": ("tests/gates/test_iebn.py",),
    "evolution/_plain.py": (
        "tests/evolution/test_primitives.py",
        "tests/evolution/test_attention.py",
    ),
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
    "evolution/window.py": (
        "tests/evolution/test_primitives.py",
        "tests/evolution/test_axes.py",
    ),
    "networks/backbones/reparameterized.py": (
        "tests/networks/backbones/test_reparameterize.py",
        "tests/surgery/folding/test_fuse.py",
    ),
    "networks/backbones/resnet.py": (
        "tests/networks/backbones/test_resnet.py",
        "tests/networks/backbones/test_wider.py",
    ),
    "networks/preprocessing.py": (
        "tests/networks/test_preprocessing.py",
        "tests/subject/test_open.py",
        "tests/networks/checkpoint/test_known.py",
    ),
    "data/corruptions.py": ("tests/data/test_corruptions.py",),
    "data/augment.py": ("tests/data/test_augment.py",),
    "data/batches.py": ("tests/data/test_batches.py",),
    "tasks/_average_precision.py": ("tests/detection/test_average_precision.py",),
    "tasks/classification.py": ("tests/tasks/test_metrics.py",),
    "tasks/regression.py": ("tests/tasks/test_metrics.py",),
    "tasks/style.py": ("tests/tasks/test_style.py",),
    "subject/opening.py": (
        "tests/subject/test_open.py",
        "tests/subject/test_messages.py",
    ),
    "lab/statistics/equivalent.py": (
        "tests/lab/statistics/test_equivalent.py",
        "tests/lab/statistics/test_statistics.py",
    ),
    "lab/study/looking.py": ("tests/lab/study/test_looking.py",),
    "page/raster.py": ("tests/lab/pages/test_pictures.py", "tests/lab/pages/test_figures.py"),
    "page/tables.py": (
        "tests/lab/pages/test_small_pages.py",
        "tests/lab/pages/test_verdict.py",
        "tests/lab/pages/test_figures.py",
        "tests/lab/pages/test_plan.py",
    ),
    "_address.py": ("tests/lab/study/test_addresses.py",),
    "_spread.py": ("tests/test_spread.py",),
    "timing.py": (
        "tests/test_timing.py",
        "tests/instruments/speed/test_speed_table.py",
    ),
    "bridges/hub.py": ("tests/bridges/test_hub.py",),
    "bridges/yolo_study/folder.py": (
        "tests/bridges/test_yolo_kinds.py",
        "tests/bridges/test_yolo_study.py",
    ),
    "bridges/yolo_study/kinds.py": ("tests/bridges/test_yolo_kinds.py",),
    "cli/_words.py": ("tests/cli/test_words.py",),
    "cli/modules.py": ("tests/cli/test_modules.py",),
    "cli/driver.py": (
        "tests/cli/test_driver.py",
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
    "data/masks.py": (
        "tests/segmentation/test_masks.py",
        "tests/segmentation/test_metrics.py",
    ),
    "data/shards.py": ("tests/data/test_shards.py",),
    "data/stream.py": (
        "tests/data/test_stream.py",
        "tests/data/test_folder_addresses.py",
    ),
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
    "evolution/device/contest.py": (
        "tests/evolution/test_contest.py",
        "tests/evolution/test_device.py",
    ),
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
    "instruments/corruptions/measure.py": (
        "tests/instruments/corruptions/test_corruptions.py",
        "tests/instruments/test_themselves.py",
    ),
    "instruments/dynamics/problems.py": (
        "tests/instruments/dynamics/test_problems.py",
        "tests/instruments/dynamics/test_indices.py",
    ),
    "instruments/forms/gains.py": ("tests/instruments/forms/test_forms.py",),
    "instruments/forms/measure.py": (
        "tests/instruments/forms/test_forms.py",
        "tests/surgery/insertion/test_streams.py",
        "tests/instruments/test_themselves.py",
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
        "tests/instruments/test_themselves.py",
    ),
    "instruments/removal/trial.py": (
        "tests/instruments/removal/test_rankings.py",
        "tests/instruments/removal/test_language.py",
        "tests/instruments/removal/test_bad_inputs.py",
    ),
    "instruments/removal/rankings/tns.py": ("tests/instruments/removal/test_rankings.py",),
    "instruments/removal/rankings/influence.py": ("tests/instruments/removal/test_rankings.py",),
    "instruments/speed/measure.py": ("tests/instruments/speed/test_speed_table.py",),
    "instruments/speed/result.py": ("tests/instruments/speed/test_speed_table.py",),
    "instruments/stiffness/capture.py": (
        "tests/instruments/stiffness/test_capture.py",
        "tests/instruments/stiffness/test_gates.py",
        "tests/instruments/stiffness/test_measure.py",
        "tests/instruments/stiffness/test_plans.py",
    ),
    "instruments/stiffness/measure.py": (
        "tests/instruments/stiffness/test_measure.py",
        "tests/instruments/stiffness/test_gates.py",
        "tests/instruments/test_themselves.py",
        "tests/instruments/stiffness/test_compare.py",
    ),
    "instruments/stripe/history.py": (
        "tests/instruments/stripe/test_stream.py",
        "tests/lab/pages/test_command.py",
    ),
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
        "tests/lab/pages/test_verdict.py",
        "tests/lab/pages/test_metric.py",
    ),
    "lab/pages/cost.py": (
        "tests/lab/pages/test_cost.py",
        "tests/lab/pages/test_figures.py",
    ),
    "lab/pages/doubts.py": ("tests/lab/pages/test_advice.py",),
    "lab/pages/verdict.py": (
        "tests/lab/pages/test_verdict.py",
        "tests/lab/pages/test_metric.py",
        "tests/lab/pages/test_plan.py",
    ),
    "lab/statistics/power.py": (
        "tests/lab/statistics/test_statistics.py",
        "tests/lab/statistics/test_anytime.py",
    ),
    "lab/statistics/student.py": ("tests/lab/statistics/test_student.py",),
    "lab/study/definition.py": (
        "tests/surgery/noise/test_settings.py",
        "tests/lab/study/test_definition.py",
        "tests/lab/study/test_files.py",
        "tests/lab/study/test_reproduce.py",
    ),
    "lab/study/estimate.py": (
        "tests/lab/study/test_estimate.py",
        "tests/lab/study/test_run.py",
        "tests/lab/study/test_placement.py",
    ),
    "lab/study/grid.py": (
        "tests/lab/study/test_definition.py",
        "tests/lab/study/test_files.py",
    ),
    "lab/study/lease.py": (
        "tests/lab/study/test_lock.py",
        "tests/lab/study/test_addresses.py",
        "tests/lab/study/test_s3.py",
    ),
    "lab/study/lock.py": (
        "tests/lab/study/test_lock.py",
        "tests/lab/study/test_processes.py",
        "tests/lab/study/test_stopping.py",
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
    "lab/study/executors/local.py": (
        "tests/lab/study/test_local.py",
        "tests/lab/study/test_processes.py",
    ),
    "lab/study/executors/slurm.py": ("tests/lab/study/test_slurm.py",),
    "lab/study/executors/ray.py": (
        "tests/lab/study/test_local.py",
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
    "lab/training/recipe.py": (
        "tests/lab/training/test_recipes.py",
        "tests/lab/training/test_steps.py",
    ),
    "lab/training/rounds.py": ("tests/lab/training/test_steps.py",),
    "lab/training/schedule.py": (
        "tests/lab/training/test_recipes.py",
        "tests/lab/training/test_steps.py",
    ),
    "networks/create.py": (
        "tests/networks/backbones/test_decoder.py",
        "tests/networks/test_create.py",
        "tests/networks/backbones/test_trained.py",
    ),
    "networks/backbones/weights.py": (
        "tests/networks/backbones/test_weights.py",
        "tests/subject/test_messages.py",
    ),
    "networks/checkpoint/description.py": ("tests/networks/checkpoint/test_checkpoint.py",),
    "networks/checkpoint/files.py": (
        "tests/networks/checkpoint/test_checkpoint.py",
        "tests/networks/checkpoint/test_place.py",
        "tests/subject/test_messages.py",
    ),
    "page/plot.py": (
        "tests/lab/pages/test_figures.py",
        "tests/lab/pages/test_details.py",
        "tests/lab/pages/test_metric.py",
    ),
    "page/scatter.py": ("tests/lab/pages/test_figures.py",),
    "residuals/products.py": (
        "tests/residuals/test_forms_of_steps.py",
        "tests/residuals/test_form.py",
        "tests/residuals/test_steps.py",
        "tests/surgery/insertion/test_heads.py",
    ),
    "residuals/copying.py": ("tests/residuals/test_copying.py",),
    "residuals/example.py": (
        "tests/residuals/test_example.py",
        "tests/residuals/test_memory.py",
        "tests/surgery/insertion/test_outputs.py",
    ),
    "residuals/padding.py": (
        "tests/residuals/test_padding.py",
        "tests/surgery/insertion/test_tokens.py",
        "tests/surgery/insertion/test_packed.py",
        "tests/instruments/stiffness/test_transformers.py",
    ),
    "residuals/padded_calls.py": (
        "tests/surgery/insertion/test_tokens.py",
        "tests/surgery/insertion/test_packed.py",
        "tests/surgery/insertion/test_detection_transformers.py",
    ),
    "surgery/insertion/_masks.py": ("tests/surgery/insertion/test_tokens.py",),
    "residuals/recorder.py": (
        "tests/residuals/test_steps.py",
        "tests/residuals/test_axes.py",
    ),
    "results/damage.py": (
        "tests/lab/study/test_damage.py",
        "tests/lab/study/test_proof.py",
    ),
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
        "tests/lab/pages/test_standing.py",
        "tests/lab/pages/test_verdict.py",
        "tests/lab/pages/test_command.py",
    ),
    "results/table.py": (
        "tests/lab/study/test_answer.py",
        "tests/lab/pages/test_standing.py",
        "tests/lab/pages/test_verdict.py",
        "tests/lab/study/test_looking.py",
        "tests/bridges/test_hub.py",
    ),
    "results/verdict.py": (
        "tests/lab/pages/test_verdict.py",
        "tests/lab/pages/test_plan.py",
    ),
    "subject/building.py": (
        "tests/subject/test_open.py",
        "tests/bridges/test_yolo_kinds.py",
        "tests/lab/training/test_pretrain.py",
    ),
    "subject/run.py": (
        "tests/subject/test_messages.py",
        "tests/subject/test_open.py",
        "tests/bridges/test_yolo_kinds.py",
    ),
    "surgery/folding/_choose.py": (
        "tests/surgery/folding/test_budget.py",
        "tests/surgery/folding/test_constants.py",
    ),
    "surgery/folding/_own_gates.py": ("tests/surgery/folding/test_own_gates.py",),
    "surgery/folding/_scales.py": (
        "tests/surgery/folding/test_scales.py",
        "tests/surgery/folding/test_reparameterise.py",
    ),
    "surgery/folding/_choose.py": ("tests/surgery/folding/test_budget.py",),
    "surgery/folding/_own_gates.py": (
        "tests/surgery/folding/test_plan.py",
        "tests/surgery/folding/test_own_gates.py",
    ),
    "surgery/folding/_scales.py": ("tests/surgery/folding/test_scales.py",),
    "surgery/folding/_shifted.py": ("tests/surgery/folding/test_reparameterise.py",),
    "surgery/insertion/_causal_maps.py": ("tests/surgery/insertion/test_causal_maps.py",),
    "surgery/insertion/_exchange.py": (
        "tests/surgery/insertion/test_methods.py",
        "tests/surgery/insertion/test_exchanges.py",
        "tests/surgery/insertion/test_marked.py",
    ),
    "surgery/insertion/_packed.py": ("tests/surgery/insertion/test_packed.py",),
    "surgery/insertion/_streams.py": ("tests/surgery/insertion/test_streams.py",),
    "surgery/insertion/_hosted.py": (
        "tests/surgery/insertion/test_insert.py",
        "tests/surgery/insertion/test_paths.py",
        "tests/surgery/insertion/test_carried.py",
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
        "tests/instruments/removal/test_operation.py",
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
        "tests/lab/measures/test_epoch.py",
        "tests/lab/study/test_answer.py",
    ),
    "tasks/perceptual.py": (
        "tests/tasks/test_perceptual.py",
        "tests/tasks/test_style.py",
    ),
    "testing/_law.py": (
        "tests/gates/test_testing.py",
        "tests/surgery/insertion/test_survival.py",
    ),
    "testing/_probe.py": (
        "tests/gates/test_testing.py",
        "tests/gates/test_conformance.py",
    ),
}
"""The files of the core, and the tests that should notice a mistake there; they run first."""
EVERYWHERE = ("tests/test_frozen.py",)
"""What looks at all files at once."""
