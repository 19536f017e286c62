"""The stripe observation: gates over images and over epochs."""

from attnlab.instruments.stripe.history import GateHistory as GateHistory
from attnlab.instruments.stripe.history import first_difference as first_difference
from attnlab.instruments.stripe.measure import gate_means as gate_means
from attnlab.instruments.stripe.measure import gate_values as gate_values
from attnlab.instruments.stripe.result import SiteStripe as SiteStripe
from attnlab.instruments.stripe.result import StripeResult as StripeResult
