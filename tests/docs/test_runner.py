"""The runner itself: a page that does not say what is so is found out."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from tests.docs.blocks import blocks_of
from tests.docs.outputs import same_line, same_output
from tests.docs.page import refreshed, run_command, run_page

PAGE = """# A page

```toml title="mine.toml"
seeds = 2
```

```python
class Counter:
    count = 2
```

- In a list, too:

  ```python
  print("count", Counter.count)
  ```

  ```output
  count 2
  ```

```console
$ cat mine.toml
seeds = 2
$ echo one; echo two; echo three; (exit 3)
one
...
three
(exit code 3)
```

```py
raise RuntimeError("not run")
```
"""


def page(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "page.md"
    path.write_text(text)
    return path


def run(tmp_path: Path, text: str) -> tuple[Path, list[str], str]:
    path = page(tmp_path, text)
    (tmp_path / "run").mkdir()
    differences = run_page(path, tmp_path / "run")
    return path, [str(difference) for difference in differences], refreshed(path, differences)


def test_a_true_page_passes(tmp_path: Path) -> None:
    path, differences, after = run(tmp_path, PAGE)
    assert differences == []
    assert after == path.read_text()


@pytest.mark.parametrize(
    ("true", "false"),
    [
        ("  count 2", "  count 3"),
        ("seeds = 2\n$", "seeds = 3\n$"),
        ("three\n(exit", "four\n(exit"),
        ("(exit code 3)\n", ""),
    ],
)
def test_a_false_page_is_found_out_and_refreshed(tmp_path: Path, true: str, false: str) -> None:
    _, differences, after = run(tmp_path, PAGE.replace(true, false))
    assert len(differences) == 1
    assert after == (PAGE if "three" not in true + false and "exit" not in true else full(PAGE))


def full(text: str) -> str:
    """The page with the output that held `...` written in full."""
    return text.replace("one\n...\nthree", "one\ntwo\nthree")


def test_an_example_that_fails_raises_with_the_line_of_the_page(tmp_path: Path) -> None:
    path = page(tmp_path, "# A page\n\n```python\nx = 1\nassert x == 2\n```\n")
    (tmp_path / "run").mkdir()
    with pytest.raises(AssertionError) as raised:
        run_page(path, tmp_path / "run")
    assert (Path(raised.traceback[-1].path), raised.traceback[-1].lineno + 1) == (path, 5)


def test_a_command_that_takes_too_long_ends_with_all_that_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tests.docs.page._LIMIT", 2)
    written = tmp_path / "pid"
    with pytest.raises(subprocess.TimeoutExpired):
        run_command(f"(sleep 60 & echo $! > {written}; wait); true")
    with pytest.raises(ProcessLookupError):
        wait_for_end(int(written.read_text()))


def wait_for_end(pid: int) -> None:
    """Raises ProcessLookupError as soon as there is no such process, or only its remains."""
    for _ in range(100):
        state = Path(f"/proc/{pid}/stat")
        os.kill(pid, 0)
        if state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z":
            raise ProcessLookupError
        time.sleep(0.1)


def test_a_block_without_end_is_an_error() -> None:
    with pytest.raises(ValueError, match="at line 3 has no end"):
        blocks_of("text\n\n```python\nx = 1\n")


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("took 3.1 s, 1,024 images/s", "took 12 s, 97.5 images/s"),
        (
            "1.16× [1.10, 1.20] (35.05 → 40.66 ms; 25 interleaved rounds)",
            "1.29× [1.28, 1.31] (28.26 → 36.46 ms; 28 interleaved rounds)",
        ),
        ("torch 2.15.0  ok", "torch 2.16.1+cpu     ok"),
        ("page  /home/me/report.html", "page  /srv/x1/report.html"),
        ("run 0a1b2c3d4e5f done", "run 99ffee001122 done"),
        ("TNS 0.12345", "TNS 0.12346"),
        ("error 1.2e-07", "error 3.4e-08"),
        ("error 0", "error 2.1e-09"),
        ("| name ─── |", "| name ────── |"),
    ],
)
def test_what_time_and_machine_decide_does_not_count(shown: str, printed: str) -> None:
    assert same_line(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("9 sites", "10 sites"),
        ("272,474 parameters", "272,475 parameters"),
        ("TNS 0.123", "TNS 0.130"),
        ("error 1.2e-07", "error 1.2e-03"),
        ("verdict better", "verdict worse"),
        ("layer1.0 identity", "layer1.1 identity"),
        ("1.0  identity", "1.1  identity"),
        ("3×3 convolution", "5×5 convolution"),
    ],
)
def test_everything_else_counts(shown: str, printed: str) -> None:
    assert not same_line(shown, printed)


@pytest.mark.parametrize(
    ("printed", "fits"), [("loss 1.59", True), ("loss 1.93", False), ("loos 1.51", False)]
)
def test_after_a_training_decimals_are_compared_roughly(
    printed: str, fits: bool, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    folder = tmp_path / "runs"
    folder.mkdir()
    page.write_text(
        f"```console\n$ echo attnlab train\nattnlab train\n$ echo {printed}\nloss 1.51\n```\n"
    )
    assert bool(run_page(page, folder)) is not fits
    page.write_text(f"```console\n$ echo {printed}\nloss 1.51\n```\n")
    (other := tmp_path / "other").mkdir()
    assert run_page(page, other)


@pytest.mark.parametrize(
    ("shown", "fits"),
    [
        ("a b c d", True),
        ("a ... d", True),
        ("... d", True),
        ("a ...", True),
        ("... b ... d", True),
        ("a b c", False),
        ("... c", False),
        ("b ...", False),
        ("a c ...", False),
        ("... c ... b ...", False),
        ("a b c ... c d", False),
    ],
)
def test_three_dots_stand_for_any_lines(shown: str, fits: bool) -> None:
    assert same_output(shown.split(), list("abcd")) is fits
