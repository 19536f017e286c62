"""The stripe observation: gates over images and over epochs, attention maps."""

from attnlab.stripe.history import GateHistory as GateHistory
from attnlab.stripe.history import first_difference as first_difference
from attnlab.stripe.maps import attention_maps as attention_maps
from attnlab.stripe.maps import mean_maps as mean_maps
from attnlab.stripe.maps_result import HeadMap as HeadMap
from attnlab.stripe.maps_result import LayerMaps as LayerMaps
from attnlab.stripe.maps_result import MapsResult as MapsResult
from attnlab.stripe.measure import stripe as stripe
from attnlab.stripe.result import SiteStripe as SiteStripe
from attnlab.stripe.result import StripeResult as StripeResult
from attnlab.stripe.values import GateStatistics as GateStatistics
from attnlab.stripe.values import gate_statistics as gate_statistics
from attnlab.stripe.values import gate_values as gate_values
