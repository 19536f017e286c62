"""What the steps of a network are made of: what carries the state, reads it and writes to it."""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on

if TYPE_CHECKING:
    from attnlab.instruments.forms.gains import CarryGains as CarryGains
    from attnlab.instruments.forms.measure import describe_steps as describe_steps
    from attnlab.instruments.forms.result import OwnGate as OwnGate
    from attnlab.instruments.forms.result import StepParts as StepParts
    from attnlab.instruments.forms.result import StepsResult as StepsResult

__getattr__, __dir__ = handed_on(
    __name__,
    gains=("CarryGains",),
    measure=("describe_steps",),
    result=("OwnGate", "StepParts", "StepsResult"),
)
