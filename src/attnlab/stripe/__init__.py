"""The stripe observation: gates over images and over epochs."""

from attnlab.stripe.history import GateHistory as GateHistory
from attnlab.stripe.history import first_difference as first_difference
from attnlab.stripe.measure import stripe as stripe
from attnlab.stripe.result import SiteStripe as SiteStripe
from attnlab.stripe.result import StripeResult as StripeResult
from attnlab.stripe.values import GateStatistics as GateStatistics
from attnlab.stripe.values import gate_statistics as gate_statistics
from attnlab.stripe.values import gate_values as gate_values
