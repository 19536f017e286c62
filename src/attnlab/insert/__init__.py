"""Find the residual steps of a network, put gates on them, and say what changed."""

from attnlab.insert._attachment import Attachment as Attachment
from attnlab.insert._host import attachments as attachments
from attnlab.insert._host import remove as remove
from attnlab.insert.insert import find_sites as find_sites
from attnlab.insert.insert import insert as insert
from attnlab.insert.receipt import Receipt as Receipt
from attnlab.insert.sites import Site as Site
from attnlab.insert.steps import Step as Step
from attnlab.insert.steps import steps as steps
