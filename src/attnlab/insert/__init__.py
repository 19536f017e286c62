"""Find the residual steps of a network, put gates on them, watch them, and say what changed."""

from attnlab.insert.attachment import Attachment as Attachment
from attnlab.insert.branch_scale import set_branch_scale as set_branch_scale
from attnlab.insert.choose import find_sites as find_sites
from attnlab.insert.gates import GateSource as GateSource
from attnlab.insert.host import attachments as attachments
from attnlab.insert.host import remove as remove
from attnlab.insert.host import remove_attachments as remove_attachments
from attnlab.insert.insert import insert as insert
from attnlab.insert.receipt import Receipt as Receipt
from attnlab.insert.site import Site as Site
from attnlab.insert.step import Step as Step
from attnlab.insert.step import StepKey as StepKey
from attnlab.insert.steps import steps as steps
from attnlab.insert.watching import Observer as Observer
from attnlab.insert.watching import SeenGate as SeenGate
from attnlab.insert.watching import SeenStep as SeenStep
from attnlab.insert.watching import Watchable as Watchable
from attnlab.insert.watching import watchable as watchable
from attnlab.insert.watching import watching as watching
