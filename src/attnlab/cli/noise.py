"""`attnlab noise`: how much of its result a network keeps under noise in its norms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from attnlab.cli._show import check_drawing, console, print_python, table

if TYPE_CHECKING:
    from attnlab.instruments.noise.response import NoiseResult
    from attnlab.surgery.noise import Noise

_STRENGTHS = {
    "random": "0.05,0.1,0.2,0.3",
    "constant": "0.8:0.8,0.8:0.5,0.5:0.5,0.5:0.2",
    "batch": "2,4,8,16,64",
}


def noise(
    networks: Annotated[tuple[str, ...], tyro.conf.Positional],
    kind: Literal["random", "constant", "batch"] = "random",
    strengths: str | None = None,
    per: Literal["layer", "channel", "image"] = "channel",
    draws: int = 10,
    data: str | None = None,
    weights: str | None = None,
    root: str | None = None,
    size: int | None = None,
    limit: int | None = None,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Disturb every norm of finished networks between normalisation and affine, in test, and show
    their result against the strength of the noise. Several networks go into one figure.

    Examples:
      attnlab noise runs/0a1b2c3d4e5f --kind random --strengths 0.05,0.1,0.2 --out noise
      attnlab noise runs/PLAIN runs/ASR --kind batch --strengths 2,8,64
      attnlab noise resnet20 --weights resnet20.pt --data cifar10 --root data --kind constant

    Args:
        networks: folders of finished runs, files of attnlab.save, or names as for attnlab.create.
        kind: random: x^ <- (1 + s e1) x^ + s e2; constant: x^ <- a x^ + b; batch: statistics of n.
        strengths: separated by commas: of random s, of constant a:b, of batch n.
        per: of random noise: what has a draw of its own.
        draws: passes over the images, each with other noise.
        data: for what is not a run: a data set with classes, such as digits, cifar10, npz.
        weights: of a named network: a file.
        root: where that data set is.
        size: side of its images.
        limit: use this many test images, evenly spread.
        seed: of the draws.
        out: folder for noise.html, noise.json and noise.svg.
    """
    from attnlab._errors import OptionError
    from attnlab.instruments.noise import noise_response
    from attnlab.subject import open as open_subject

    check_drawing(out)
    if not networks:
        raise OptionError("Expected at least one network: a run's folder, a file or a name.")
    given = strengths or _STRENGTHS[kind]
    noises = [_noise(kind, each.strip(), per) for each in given.split(",")]
    subjects = {
        name: open_subject(
            name, data, weights=weights, root=root, size=size, trust=Path(name).is_dir()
        )
        for name in networks
    }
    result = noise_response(subjects, noises, draws=draws, limit=limit, seed=seed)
    _print(result)
    if weights is None and not all(Path(name).exists() for name in networks):
        print("Networks given by name have random weights here: give --weights of trained ones.")
    if out is not None:
        _save(result, out)
    print()
    options = {"weights": weights, "root": root, "size": size}
    more = "".join(f", {key}={value!r}" for key, value in options.items() if value is not None)
    chosen = "" if data is None else f", {data!r}"
    settings = {"draws": (draws, 10), "limit": (limit, None), "seed": (seed, 0)}
    extra = "".join(f", {k}={v!r}" for k, (v, default) in settings.items() if v != default)
    print_python(
        "from attnlab.surgery import noise",
        "from attnlab.instruments.noise import noise_response",
        f"names = {list(networks)!r}",
        f"subjects = {{name: attnlab.open(name{chosen}{more}) for name in names}}",
        f"noises = [{', '.join(_python(each) for each in noises)}]",
        f"result = noise_response(subjects, noises{extra})",
    )


def _noise(kind: str, text: str, per: Literal["layer", "channel", "image"]) -> Noise:
    from attnlab._errors import OptionError
    from attnlab.surgery import noise as kinds

    try:
        if kind == "random":
            return kinds.random(float(text), per)
        if kind == "batch":
            return kinds.batch(int(text))
        a, b = text.split(":")
        return kinds.constant(float(a), float(b))
    except ValueError as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError(
            f"Expected --strengths of {kind} noise as in {_STRENGTHS[kind]} but got {text!r}."
        ) from None


def _python(noise: Noise) -> str:
    from attnlab.surgery.noise.kinds import Batch, Constant, Random

    if isinstance(noise, Constant):
        return f"noise.constant({noise.a:g}, {noise.b:g})"
    if isinstance(noise, Random):
        per = "" if noise.per == "channel" else f", {noise.per!r}"
        return f"noise.random({noise.sigma:g}{per})"
    assert isinstance(noise, Batch)
    return f"noise.batch({noise.n})"


def _print(result: NoiseResult) -> None:
    metric = result.metric
    rows = []
    for curve in result.networks:
        rows.append((curve.network, f"none ({curve.norms} norms)", f"{curve.clean:.2f}", "", ""))
        for point in curve.points:
            interval = "" if point.low is None else f"[{point.low:.2f}, {point.high:.2f}]"
            change = f"{point.mean - curve.clean:+.2f}"
            rows.append((curve.network, point.label, f"{point.mean:.2f}", interval, change))
    columns = [("network", "left"), ("noise", "left"), (f"{metric.label} {metric.unit}", "right")]
    columns += [("95 % of the mean", "right"), ("change", "right")]
    draws = f"{result.draws} draw{'s' * (result.draws != 1)}"
    title = f"{result.kind} noise in test, {result.images} images, {draws}"
    console().print(table(columns, rows, title=title))  # type: ignore[arg-type]


def _save(result: NoiseResult, out: Path) -> None:
    import json

    from attnlab.instruments.noise.figures import noise_figure
    from attnlab.lab.pages.write import write_file_page
    from attnlab.page.plot import write_svg

    saved = result.save(out / "noise.json")
    write_svg(noise_figure(json.loads(result.to_json())), out / "noise.svg")
    page = write_file_page(saved, out / "noise.html")
    print(f"wrote {saved}\nwrote {out / 'noise.svg'}\nwrote {page}")
