"""What is examined: a network with its images, its preprocessing, its task and its origin."""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on

if TYPE_CHECKING:
    from attnlab.subject.opening import Source as Source
    from attnlab.subject.opening import check_source as check_source
    from attnlab.subject.opening import open as open  # noqa: A004
    from attnlab.subject.opening import subject_of as subject_of
    from attnlab.subject.run import load_network as load_network
    from attnlab.subject.run import open_run as open_run
    from attnlab.subject.subject import Part as Part
    from attnlab.subject.subject import Subject as Subject

__getattr__, __dir__ = handed_on(
    __name__,
    opening=("Source", "check_source", "open", "subject_of"),
    run=("load_network", "open_run"),
    subject=("Part", "Subject"),
)
