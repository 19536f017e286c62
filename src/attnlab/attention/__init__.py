"""Attention gates, one per file, and their registry."""

from attnlab.attention._gate import BranchGate as BranchGate
from attnlab.attention._gate import Gate as Gate
from attnlab.attention._gate import StageGate as StageGate
from attnlab.attention._gate import StepGate as StepGate
from attnlab.attention.registry import GATES as GATES
from attnlab.attention.registry import GateInfo as GateInfo
from attnlab.attention.registry import build_gate as build_gate
from attnlab.attention.registry import gate_info as gate_info
from attnlab.attention.se import SqueezeExcitation as SqueezeExcitation
