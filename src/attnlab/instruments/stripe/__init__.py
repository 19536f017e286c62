"""The stripe observation: gates over images and over epochs."""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on

if TYPE_CHECKING:
    from attnlab.instruments.stripe.history import GateHistory as GateHistory
    from attnlab.instruments.stripe.history import first_difference as first_difference
    from attnlab.instruments.stripe.measure import gate_means as gate_means
    from attnlab.instruments.stripe.measure import gate_values as gate_values
    from attnlab.instruments.stripe.result import SiteStripe as SiteStripe
    from attnlab.instruments.stripe.result import StripeResult as StripeResult

__getattr__, __dir__ = handed_on(
    __name__,
    history=("GateHistory", "first_difference"),
    measure=("gate_means", "gate_values"),
    result=("SiteStripe", "StripeResult"),
)
