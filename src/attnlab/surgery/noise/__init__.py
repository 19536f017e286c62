"""Noise between the normalisation of a norm and its affine: constant, random, or of the batch."""

from attnlab.surgery.noise.attach import NoiseReceipt as NoiseReceipt
from attnlab.surgery.noise.attach import attach as attach
from attnlab.surgery.noise.attach import carried as carried
from attnlab.surgery.noise.attach import detach as detach
from attnlab.surgery.noise.attach import noisy as noisy
from attnlab.surgery.noise.config import NoiseConfig as NoiseConfig
from attnlab.surgery.noise.kinds import During as During
from attnlab.surgery.noise.kinds import Noise as Noise
from attnlab.surgery.noise.kinds import batch as batch
from attnlab.surgery.noise.kinds import constant as constant
from attnlab.surgery.noise.kinds import random as random
