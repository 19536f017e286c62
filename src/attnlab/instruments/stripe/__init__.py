"""The stripe observation: gates over images and over epochs."""

from attnlab.instruments.stripe.history import GateHistory as GateHistory
from attnlab.instruments.stripe.history import first_difference as first_difference
from attnlab.instruments.stripe.result import SiteStripe as SiteStripe
from attnlab.instruments.stripe.result import StripeResult as StripeResult
from attnlab.instruments.stripe.values import GateStatistics as GateStatistics
from attnlab.instruments.stripe.values import gate_statistics as gate_statistics
from attnlab.instruments.stripe.values import gate_values as gate_values
