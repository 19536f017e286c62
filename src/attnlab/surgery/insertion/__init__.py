"""Put gates on the residual steps of a network, take them off again, and say what changed."""

from attnlab.surgery.insertion._exchange import mark_shortened as mark_shortened
from attnlab.surgery.insertion._norms import has_gates_in_norms as has_gates_in_norms
from attnlab.surgery.insertion._pretrained import GATES_FILE as GATES_FILE
from attnlab.surgery.insertion._pretrained import GatesOfFolder as GatesOfFolder
from attnlab.surgery.insertion._pretrained import Insertion as Insertion
from attnlab.surgery.insertion._resolve import check_gate_options as check_gate_options
from attnlab.surgery.insertion.branch_scale import set_branch_scale as set_branch_scale
from attnlab.surgery.insertion.host import attachments as attachments
from attnlab.surgery.insertion.host import remove as remove
from attnlab.surgery.insertion.host import remove_attachments as remove_attachments
