"""Inference speed of a finished network alone."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from time import perf_counter

import torch

from attnlab.measure.config import MeasureConfig
from attnlab.measure.measurement import Finding, Measurement, Subject
from attnlab.record.example import as_call, evaluating

_REPEATS = 5


class Speed(Measurement):
    """Images per second, median of some passes after a first one. No better than the machine was
    quiet: a ratio to rely on is measured in one process, in turns."""

    name = "speed"

    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        return {"images": config.inference_images} if config.inference_images else None

    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> Finding:
        del folder
        network = subject.network
        calls = [as_call(network, given) for given in subject.inputs(config.inference_images)]
        images = min(config.inference_images, subject.data.facts.test)
        times = []
        with evaluating(network):
            for _ in range(_REPEATS + 1):
                began = perf_counter()
                for arguments, keywords in calls:
                    network(*arguments, **keywords)
                if subject.device.type == "cuda":
                    torch.cuda.synchronize()
                times.append(perf_counter() - began)
        return Finding({"images_per_second": images / median(times[1:])})
