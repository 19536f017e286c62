"""What is measured of a finished network: one file each, apart from its training, re-runnable."""

from attnlab.measure.apply import Applied as Applied
from attnlab.measure.apply import apply_run as apply_run
from attnlab.measure.config import MeasureConfig as MeasureConfig
from attnlab.measure.folded import FoldedRun as FoldedRun
from attnlab.measure.folded import fold_run as fold_run
from attnlab.measure.folded import load_folded as load_folded
from attnlab.measure.measurement import Measurement as Measurement
from attnlab.measure.measurement import Subject as Subject
from attnlab.measure.noise import NoiseResult as NoiseResult
from attnlab.measure.noise import noise_response as noise_response
from attnlab.measure.run import MEASUREMENTS as MEASUREMENTS
from attnlab.measure.run import images_of_run as images_of_run
from attnlab.measure.run import measure_run as measure_run
from attnlab.measure.run import missing as missing
from attnlab.measure.speed import time_in_turns as time_in_turns
from attnlab.measure.subject import subject_of as subject_of
