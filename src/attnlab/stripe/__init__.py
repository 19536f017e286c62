"""The stripe observation: gates over images and over epochs."""

from attnlab.stripe.history import GateHistory as GateHistory
from attnlab.stripe.history import first_difference as first_difference
from attnlab.stripe.measure import stripe as stripe
from attnlab.stripe.result import SiteStripe as SiteStripe
from attnlab.stripe.result import StripeResult as StripeResult
