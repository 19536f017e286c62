"""Repair a network that was changed: the original teaches it, on images without labels."""

from attnlab.repair.distil import Distil as Distil
from attnlab.repair.distil import Lesson as Lesson
from attnlab.repair.distil import Repair as Repair
from attnlab.repair.distil import distil as distil
