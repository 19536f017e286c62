"""`attnlab report --serve`: one page, to this machine only, that refreshes while a study runs."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.lab.pages.simulated import simulate

import attnlab
from attnlab._errors import InputError, OptionError
from attnlab._files import write_whole
from attnlab.cli.report_page import server
from attnlab.lab.pages.write import write_study_page


@contextmanager
def serving(make) -> Iterator[int]:
    made = server(make, 0)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    try:
        yield made.server_port
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


def asked(port: int, path: str = "/", host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


@pytest.mark.parametrize(("finished", "refreshes"), [(0.5, True), (1.0, False)])
def test_the_page_refreshes_itself_while_runs_are_missing(
    tmp_path: Path, finished: float, refreshes: bool
) -> None:
    study = simulate(
        tmp_path, data=("cifar10",), gains={"se": 0.4}, seeds=2, epochs=3, finished=finished
    )
    out = tmp_path / "page.html"
    with serving(lambda: write_study_page(tmp_path, study.name, out)) as port:
        status, text = asked(port)
        assert status == 200
        assert ('http-equiv="refresh"' in text) == refreshes
        assert ("How far is it?" in text) == refreshes
        if refreshes:
            assert "4 runs: 2 waiting, 2 done." in text
        # The file itself never refreshes: it would not change.
        assert 'http-equiv="refresh"' not in out.read_text(encoding="utf-8")


def test_all_who_ask_at_once_are_answered(tmp_path: Path) -> None:
    """The page is made twice at most: once for the first, once more for all who came meanwhile."""
    out, made, asking = tmp_path / "page.html", [], threading.Barrier(9)

    def make() -> Path:
        made.append(threading.get_ident())
        if len(made) == 1:
            asking.wait(60)  # until the others ask as well
            time.sleep(0.5)
        return write_whole(out, f"<p>page {len(made)}</p>")

    answers: list[tuple[int, str]] = []
    with serving(make) as port:
        first = threading.Thread(target=lambda: answers.append(asked(port)))
        first.start()

        def ask() -> None:
            asking.wait(60)
            answers.append(asked(port))

        others = [threading.Thread(target=ask) for _ in range(8)]
        for thread in others:
            thread.start()
        for thread in (first, *others):
            thread.join()
    assert [status for status, _ in answers] == [200] * 9
    assert len(made) <= 3  # one more if the machine was so busy that somebody asked late


def test_nothing_else_is_served_and_nobody_else_is_answered(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<p>here</p>", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("secret")
    with serving(lambda: page) as port:
        assert asked(port) == (200, "<p>here</p>")
        assert asked(port, host=f"localhost:{port}")[0] == 200
        for path in ("/secret.txt", "/../secret.txt", "//etc/passwd", "/page.html"):
            assert asked(port, path)[0] == 404
        # A name of the web that was made to point here.
        assert asked(port, host=f"evil.example:{port}")[0] == 403
        with pytest.raises(OptionError) as taken:
            server(lambda: page, port)
        assert str(taken.value).startswith(f"Cannot serve at port {port}: ")


def test_it_is_bound_to_this_machine(tmp_path: Path) -> None:
    made = server(lambda: tmp_path, 0)
    assert made.server_address[0] == "127.0.0.1"
    made.server_close()


def test_a_page_that_cannot_be_made_says_why_and_tries_again() -> None:
    def fail() -> Path:
        raise InputError("There is no <folder>.")

    with serving(fail) as port:
        status, text = asked(port)
    assert status == 503
    assert "There is no &lt;folder>." in text
    assert 'http-equiv="refresh"' in text


def test_python_makes_pages_of_several_networks_and_of_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        attnlab.report([tmp_path / "a.json", tmp_path / "b.json"], tmp_path / "both.html")
    assert str(caught.value) == (
        f"Expected several files to be stiffness.json (attnlab stiffness --out), which one page "
        f"compares, but '{tmp_path / 'a.json'}' is not one."
    )
