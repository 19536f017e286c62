"""Gates in Ultralytics' networks that stay through train, resume, EMA, validation, fuse, export and
files. Importing this, which reading a file with gates does too, lets its networks keep gates."""

from attnlab.bridges.ultralytics.keep import keep_gates
from attnlab.bridges.ultralytics.keep import with_attention as with_attention

keep_gates()
