"""Repair a network that was changed: the original teaches it, on images without labels."""

from attnlab.surgery.repair.distil import Distil as Distil
from attnlab.surgery.repair.distil import Lesson as Lesson
from attnlab.surgery.repair.distil import Repair as Repair
from attnlab.surgery.repair.distil import distil as distil
