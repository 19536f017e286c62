"""Noise between the normalisation of a norm and its affine: constant, random, or of the batch."""

from attnlab.noise.attach import NoiseReceipt as NoiseReceipt
from attnlab.noise.attach import attach as attach
from attnlab.noise.attach import carried as carried
from attnlab.noise.attach import detach as detach
from attnlab.noise.attach import noisy as noisy
from attnlab.noise.config import NoiseConfig as NoiseConfig
from attnlab.noise.kinds import During as During
from attnlab.noise.kinds import Noise as Noise
from attnlab.noise.kinds import batch as batch
from attnlab.noise.kinds import constant as constant
from attnlab.noise.kinds import random as random
