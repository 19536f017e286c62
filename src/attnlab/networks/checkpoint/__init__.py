"""One description of a network, and files of weights that carry it."""

from attnlab.networks.checkpoint.description import Description as Description
from attnlab.networks.checkpoint.description import foreign_classes as foreign_classes
from attnlab.networks.checkpoint.description import options_for_loading as options_for_loading
from attnlab.networks.checkpoint.description import without_weights as without_weights
from attnlab.networks.checkpoint.files import describe as describe
from attnlab.networks.checkpoint.files import filled as filled
from attnlab.networks.checkpoint.files import load as load
from attnlab.networks.checkpoint.files import names_have_gates as names_have_gates
from attnlab.networks.checkpoint.files import save as save
from attnlab.networks.checkpoint.files import to_bytes as to_bytes
from attnlab.networks.checkpoint.pretrained import is_pretrained as is_pretrained
from attnlab.networks.checkpoint.pretrained import open_pretrained as open_pretrained
