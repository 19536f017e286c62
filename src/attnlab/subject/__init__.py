"""What is examined: a network with its images, its preprocessing, its task and its origin."""

from attnlab.subject.open import Source as Source
from attnlab.subject.open import open as open  # noqa: A004
from attnlab.subject.open import subject_of as subject_of
from attnlab.subject.run import load_network as load_network
from attnlab.subject.run import open_run as open_run
from attnlab.subject.subject import Part as Part
from attnlab.subject.subject import Subject as Subject
