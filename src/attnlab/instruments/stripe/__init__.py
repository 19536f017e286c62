"""The stripe observation: gates over images and over epochs."""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on

if TYPE_CHECKING:
    from attnlab.instruments.stripe.history import GateHistory as GateHistory
    from attnlab.instruments.stripe.history import first_difference as first_difference
    from attnlab.instruments.stripe.result import SiteStripe as SiteStripe
    from attnlab.instruments.stripe.result import StripeResult as StripeResult
    from attnlab.instruments.stripe.values import GateStatistics as GateStatistics
    from attnlab.instruments.stripe.values import GateValues as GateValues
    from attnlab.instruments.stripe.values import gate_statistics as gate_statistics
    from attnlab.instruments.stripe.values import gate_values as gate_values

__getattr__, __dir__ = handed_on(
    __name__,
    history=(
        "GateHistory",
        "first_difference",
    ),
    result=(
        "SiteStripe",
        "StripeResult",
    ),
    values=(
        "GateStatistics",
        "GateValues",
        "gate_statistics",
        "gate_values",
    ),
)
