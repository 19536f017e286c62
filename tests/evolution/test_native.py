"""The native kernels: dtypes, layouts, traps of vector code, build and fallback."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.nn import functional as F

from attnlab import _native_build as build
from attnlab import _native_variants as variants
from attnlab._errors import InputError, UnknownNameError
from attnlab.evolution import (
    Window,
    av,
    local_attention,
    native,
    native_status,
    qk,
    sc,
    spanned_av,
    use_native,
)
from attnlab.evolution._implementation import AttentionCall, SpanCall
from attnlab.evolution._plain import EAGER
from attnlab.evolution.native import abi
from attnlab.evolution.native.implementation import Native, halves_suit, operand

needs_native = pytest.mark.skipif(
    not native_status().available, reason=f"no native kernels: {native_status().reason}"
)


def both(function, *inputs):
    """`function` on the native kernels and in pure torch, with gradients of all inputs."""
    results = []
    for enabled in (True, False):
        with use_native(enabled):
            leaves = [t.detach().requires_grad_() for t in inputs]
            out = function(*leaves)
            weight = torch.linspace(-1, 1, out.numel()).view_as(out).to(out.dtype)
            results.append((out, *torch.autograd.grad((out * weight).sum(), leaves)))
    return results


def reference_dtype(function, *inputs):
    with use_native(False):
        return function(*(t.double() for t in inputs))


@needs_native
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12), (torch.bfloat16, 2e-2)]
)
@pytest.mark.parametrize("size", [(7, 7), (14, 14), (9, 33), (28, 28)])
def test_every_dtype_against_float64(dtype, tolerance, size):
    torch.manual_seed(0)
    window = Window.centred(7)
    x = torch.randn(2, 32, *size).to(dtype)
    maps = (torch.randn(2, 2, 49, *size) / 7).to(dtype)
    y = torch.randn(2, 32, *size).to(dtype)
    weight = (torch.randn(98, 9) / 20).to(dtype)
    for function, inputs in (
        (lambda m, x: av(m, x, window), (maps, x)),
        (lambda q, x: qk(q / 4, x, 2, window), (y, x)),
        (lambda m, y: sc(m, y, size, window), (maps, y)),
        (lambda f, x, w: spanned_av(f, x, w, None, 2, window), (x[:, :9], x, weight)),
        (lambda q, k, v: local_attention(q, k, v, 2, window), (x, y, x.flip(3).contiguous())),
    ):
        expected = reference_dtype(function, *inputs)
        got = function(*inputs)
        assert got.dtype == dtype
        error = (got.double() - expected).abs().max() / expected.abs().max()
        assert error < tolerance


@needs_native
def test_gradients_equal_those_of_pure_torch():
    torch.manual_seed(0)
    for window in (Window.centred(7), Window.centred(5, 2, 2), Window.of((2, 4), 1, 1, (1, 2))):
        x = torch.randn(2, 8, 15, 18)
        maps = torch.randn(2, 2, window.taps, *window.output_size(15, 18))
        native, plain = both(lambda m, x, w=window: av(m, x, w), maps, x)
        for ours, theirs in zip(native, plain, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@needs_native
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12), (torch.bfloat16, 2e-2)]
)
@pytest.mark.parametrize("size", [(7, 7), (14, 14), (9, 33), (28, 28), (1, 50), (50, 1), (17,)])
def test_maps_from_features_in_every_dtype(dtype, tolerance, size):
    """Value and gradients against float64 without kernels of our own."""
    torch.manual_seed(0)
    window = Window.centred((5,) * len(size))
    given = [
        torch.randn(2, 9, *size),
        torch.randn(2, 12, *size),
        torch.randn(2 * window.taps, 9) / 9,
    ]
    given = [t.to(dtype) for t in (*given, torch.randn(2 * window.taps))]

    def run(*given):
        leaves = [t.detach().requires_grad_() for t in given]
        out = spanned_av(*leaves, 2, window)
        slope = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view_as(out)
        return out, *torch.autograd.grad(out, leaves, slope.to(dtype).to(out.dtype))

    found = run(*given)
    with use_native(False):
        expected = run(*(t.double() for t in given))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == dtype
        assert (ours.double() - theirs).abs().max() <= tolerance * theirs.abs().max()


@needs_native
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_a_non_finite_feature_stays_in_its_window(bad):
    torch.manual_seed(0)
    features, weight = torch.randn(1, 3, 8, 20), torch.rand(9, 3) + 0.5
    features[0, :, 4, 19] = bad
    x = (torch.rand(1, 4, 8, 20) + 0.5).requires_grad_()
    got = spanned_av(features, x, weight, None, 1, Window.centred(3))
    (grad,) = torch.autograd.grad(got, x, torch.ones_like(got))
    at, around = torch.zeros(2, 8, 20, dtype=torch.bool)
    at[4, 19] = around[3:6, 18:20] = True
    for values, hit in ((got, at), (grad, around)):
        assert not values[..., hit].isfinite().any()
        assert values[..., ~hit].isfinite().all()


@needs_native
def test_narrow_maps_do_not_touch_their_neighbours():
    """Stores wider than the row would run into the next plane, or past the end of the tensor."""
    window = Window.centred(3)
    for width in (1, 3, 5, 7):
        x = torch.ones(1, 6, 4, width)
        guard = torch.full((3, 1, 6, 4, width), 7.0)
        guard[1] = av(torch.ones(1, 2, 9, 4, width), x, window)
        count = F.conv2d(torch.ones(1, 1, 4, width), torch.ones(1, 1, 3, 3), padding=1)
        torch.testing.assert_close(guard[1], count.expand(1, 6, 4, width))
        torch.testing.assert_close(
            sc(torch.ones(1, 2, 9, 4, width), x, (4, width), window),
            count.expand(1, 6, 4, width),
        )


@needs_native
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_a_non_finite_weight_stays_in_its_window(bad):
    torch.manual_seed(0)
    window = Window.centred(3)
    maps, y = torch.randn(1, 1, 9, 8, 20), torch.rand(1, 4, 8, 20) + 0.5
    maps[0, 0, :, 4, 19] = bad
    got = sc(maps, y, (8, 20), window)
    inside = torch.zeros(8, 20, dtype=torch.bool)
    inside[3:6, 18:20] = True
    assert not got[..., inside].isfinite().any()
    assert got[..., ~inside].isfinite().all()


@needs_native
def test_no_flush_to_zero_after_loading():
    """-ffast-math in a shared object can switch the whole process to flush denormals to zero."""
    native_status()
    assert (torch.tensor(1e-38) / 100).item() > 0


@needs_native
def test_exponential_is_accurate():
    """One query against keys from 0 to -80: the softmax weights are exp of them."""
    for dtype, tolerance in ((torch.float32, 3e-7), (torch.float64, 1e-15)):
        scores = -torch.linspace(0, 80, 2000, dtype=dtype).view(1, 1, 1, -1)
        key = torch.cat((torch.zeros_like(scores), scores, torch.zeros_like(scores)), dim=2)
        value = torch.tensor([0.0, 1.0, 0.0], dtype=dtype).view(1, 1, 3, 1).expand_as(key)
        window = Window.centred((3, 1))
        got = local_attention(torch.ones_like(key), key, value, 1, window)[0, 0, 1]
        weight = scores.double().exp()[0, 0, 0]
        expected = weight / (weight + 2)
        assert ((got.double() - expected).abs() / expected).max() < tolerance * 4


@needs_native
def test_denormal_probabilities_are_zero():
    key = torch.zeros(1, 1, 3, 16)
    key[:, :, 1] = -100.0
    value = torch.zeros(1, 1, 3, 16)
    value[:, :, 1] = 1.0
    got = local_attention(torch.ones_like(key), key, value, 1, Window.centred((3, 1)))
    assert (got[:, :, 1] == 0).all()


@needs_native
def test_views_and_layouts():
    """Slices of a packed tensor need no copy; channels-last and transposed inputs are copied."""
    torch.manual_seed(0)
    window = Window.centred(3)
    packed = torch.randn(3, 24, 10, 12)
    query, key, value = packed.chunk(3, dim=1)
    expected = local_attention(*(t.contiguous() for t in (query, key, value)), 2, window)
    torch.testing.assert_close(local_attention(query, key, value, 2, window), expected)
    assert key.stride(0) != key.numel() // 3
    last = [t.contiguous(memory_format=torch.channels_last) for t in (query, key, value)]
    torch.testing.assert_close(local_attention(*last, 2, window), expected)
    turned = [t.transpose(2, 3).contiguous().transpose(2, 3) for t in (query, key, value)]
    torch.testing.assert_close(local_attention(*turned, 2, window), expected)
    weight = torch.randn(18, 8)
    of_dense = spanned_av(query.contiguous(), key.contiguous(), weight, None, 2, window)
    for features, x in ((query, key), last[:2], turned[:2]):
        torch.testing.assert_close(spanned_av(features, x, weight, None, 2, window), of_dense)
    transposed = weight.t().contiguous().t()
    torch.testing.assert_close(spanned_av(query, key, transposed, None, 2, window), of_dense)


def test_empty_batch_and_other_dtypes_take_the_torch_path():
    window = Window.centred(3)
    assert av(torch.zeros(0, 1, 9, 4, 4), torch.zeros(0, 2, 4, 4), window).shape == (0, 2, 4, 4)
    x = torch.randn(1, 4, 6, 6)
    maps = torch.randn(1, 1, 9, 6, 6)
    half = av(maps.half(), x.half(), window)
    assert half.dtype == torch.float16
    torch.testing.assert_close(half.float(), av(maps, x, window), rtol=1e-2, atol=2e-2)
    assert av(maps.double(), x, window).dtype == torch.float64


def test_threads_do_not_change_the_result(monkeypatch):
    torch.manual_seed(0)
    window = Window.centred(5)
    inputs = [torch.randn(1, 8, 40, 24, requires_grad=True) for _ in range(3)]
    bias = torch.randn(2, 25, requires_grad=True)

    def run(threads):
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
        out = local_attention(*inputs, 2, window, bias=bias)
        return out, *torch.autograd.grad(out.square().sum(), [*inputs, bias])

    for one, three in zip(run(1), run(3), strict=True):
        torch.testing.assert_close(one, three, rtol=0, atol=0)

    features, x = inputs[0], inputs[1]
    weight = torch.randn(50, 8)

    def spanned(threads):
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
        out = spanned_av(features, x, weight, None, 2, window)
        return out, *torch.autograd.grad(out.square().sum(), x)

    for one, three in zip(spanned(1), spanned(3), strict=True):
        torch.testing.assert_close(one, three, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("capability", "machine", "expected"),
    [
        ("AVX512", "x86_64", "avx512"),
        ("AVX512_VNNI", "x86_64", "avx512"),
        ("AVX2", "x86_64", "avx2"),
        ("AVX2", "AMD64", "avx2"),
        ("DEFAULT", "x86_64", "baseline"),
        ("DEFAULT", "aarch64", "baseline"),
        ("AVX2", "arm64", "baseline"),
    ],
)
def test_variant_by_processor(capability, machine, expected):
    assert variants.best_variant(capability, machine).name == expected


@pytest.fixture
def quick_build(monkeypatch):
    """Compile without optimisation: a third of the time."""
    flags = tuple("-O0" if flag == "-O3" else flag for flag in build.FLAGS)
    monkeypatch.setattr(build, "FLAGS", flags)


def runs_here(variant):
    """Whether this processor has the instructions of `variant`."""
    capability = torch.backends.cpu.get_cpu_capability()
    return {
        "avx512": capability.startswith("AVX512"),
        "avx512-narrow": capability.startswith("AVX512"),
        "avx2": capability.startswith("AVX"),
    }.get(variant.name, True)


@needs_native
@pytest.mark.slow
@pytest.mark.usefixtures("quick_build")
@pytest.mark.parametrize(
    "variant", [variants.AVX512, variants.AVX512_NARROW, variants.AVX2, variants.BASELINE]
)
def test_every_variant_compiles_and_agrees(variant, tmp_path):
    """Rows of less than a vector, of one, and of several with a rest, in every storage type."""
    if variant is not variants.BASELINE and platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("instructions of another architecture")
    build.compile_to(tmp_path / "kernels.so", variant, native.SOURCE)
    library = ctypes.CDLL(str(tmp_path / "kernels.so"))
    abi.declare(library)
    assert f"-DVECTOR_BYTES={library.attnlab_vector_bytes()}" in variant.flags
    if not runs_here(variant):
        pytest.skip(f"compiled, but this processor cannot run {variant.name}")
    torch.manual_seed(0)
    kernels, window = Native(library), Window.centred(5).flat()
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-13), (torch.bfloat16, 0.05)):
        for width in (1, 3, 7, 8, 9, 14, 17, 33):
            x, key, y = torch.randn(3, 1, 6, 4, width).to(dtype)
            maps = torch.randn(1, 2, 25, 4, width).to(dtype) / 5
            span = [(t / 5).to(dtype) for t in (torch.randn(50, 6), torch.randn(50))]
            attention = AttentionCall([x, key, y], None, [], 2, 0.5, True, window)
            stats = EAGER.attention(attention)[1]
            for name, arguments in (
                ("av", (maps, x, window)),
                ("qk", (y, x, 2, window)),
                ("sc", (maps, y, [4, width], window)),
                ("spanned_av", (SpanCall(x, key, *span, 2, window),)),
                ("spanned_av_backward", (y, SpanCall(x, key, *span, 2, window))),
                ("attention", (attention,)),
                ("attention_backward", (y, stats, attention)),
            ):
                got, expected = (getattr(i, name)(*arguments) for i in (kernels, EAGER))
                for ours, theirs in zip(*map(as_list, (got, expected)), strict=True):
                    error = (ours.double() - theirs.double()).abs().max()
                    assert error <= tolerance * theirs.double().abs().max(), (name, dtype, width)


def as_list(found):
    return [found] if isinstance(found, torch.Tensor) else list(found)


OPERATORS = torch.ops.attnlab
MAPS, X = torch.zeros(1, 2, 9, 6, 6), torch.zeros(1, 4, 6, 6)
WEIGHT, SIDES = torch.zeros(18, 4), Window.centred(3).flat()


@needs_native
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: OPERATORS.av(MAPS[..., :4], X, SIDES),
            "Expected (6, 6) outputs of (6, 6) inputs with this window but got (6, 4).",
        ),
        (
            lambda: OPERATORS.sc(MAPS, X, [6, 8], SIDES),
            "Expected (6, 8) outputs of (6, 8) inputs with this window but got (6, 6).",
        ),
        (
            lambda: OPERATORS.qk(X[:, :, :5], X, 2, SIDES),
            "Expected (6, 6) outputs of (6, 6) inputs with this window but got (5, 6).",
        ),
        (
            lambda: OPERATORS.av(MAPS[:, :, :8], X, SIDES),
            "av of 2 groups and 9 taps got shapes (1, 2, 8, 6, 6), (1, 4, 6, 6).",
        ),
        (
            lambda: OPERATORS.av(MAPS, X[:, :3], SIDES),
            "av of 2 groups and 9 taps got shapes (1, 2, 9, 6, 6), (1, 3, 6, 6).",
        ),
        (
            lambda: OPERATORS.av(MAPS, torch.zeros(2, 4, 6, 6), SIDES),
            "av of 2 groups and 9 taps got shapes (1, 2, 9, 6, 6), (2, 4, 6, 6).",
        ),
        (
            lambda: OPERATORS.sc(MAPS[:, :, :8], X, [6, 6], SIDES),
            "sc of 2 groups and 9 taps got shapes (1, 2, 8, 6, 6), (1, 4, 6, 6).",
        ),
        (
            lambda: OPERATORS.qk(X[:, :2], X, 2, SIDES),
            "qk of 2 groups and 9 taps got shapes (1, 2, 6, 6), (1, 4, 6, 6).",
        ),
        (
            lambda: OPERATORS.spanned_av(X, X, WEIGHT[:9], None, 2, SIDES),
            "spanned_av of 2 groups and 9 taps got shapes (9, 4), (1, 4, 6, 6), (1, 4, 6, 6).",
        ),
        (
            lambda: OPERATORS.spanned_av(X, X, WEIGHT, WEIGHT[:9, 0], 2, SIDES),
            "spanned_av of 2 groups and 9 taps got shapes (18, 4), (9,), (1, 4, 6, 6), "
            "(1, 4, 6, 6).",
        ),
        (
            lambda: OPERATORS.spanned_av(X, X[:, :, :5], WEIGHT, None, 2, SIDES),
            "Expected (5, 6) outputs of (5, 6) inputs with this window but got (6, 6).",
        ),
    ],
)
def test_an_operator_called_by_name_reads_nothing_that_is_not_there(call, message):
    """`torch.ops.attnlab` is below the functions that check what they are given."""
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message


@needs_native
def test_an_operator_called_by_name_takes_several_types():
    torch.manual_seed(0)
    features, x, weight = torch.randn(1, 3, 6, 6), torch.randn(1, 4, 6, 6), torch.randn(18, 3)
    expected = OPERATORS.spanned_av(features, x, weight, None, 2, SIDES)
    got = OPERATORS.spanned_av(features.double(), x, weight.double(), None, 2, SIDES)
    torch.testing.assert_close(got, expected)
    got = OPERATORS.spanned_av(features, x.double(), weight, None, 2, SIDES)
    torch.testing.assert_close(got, expected.double(), rtol=1e-5, atol=1e-5)


@needs_native
@pytest.mark.parametrize("columns", [1, 5, 7, 11, 14, 17, 20])
def test_nothing_is_written_beyond_the_output(columns):
    """Each kernel writes into the middle of a larger tensor whose rest must stay as it was."""
    torch.manual_seed(0)
    window = Window.centred(3).flat()
    x, y = torch.randn(2, 1, 6, 3, columns)
    maps = torch.randn(1, 2, 9, 3, columns)
    features, weight = torch.randn(1, 5, 3, columns), torch.randn(18, 5)
    for kernels in (native.KERNELS, native.NARROW):
        library = kernels.library()
        for name, first, second, size in (
            ("av", maps, x, x.numel()),
            ("qk", y, x, maps.numel()),
            ("sc", maps, y, x.numel()),
        ):
            guard = torch.full((3, size), 7.0)
            sizes = abi.native_problem(1, 2, x.shape[2:], x.shape[2:], window)
            call = getattr(library, f"attnlab_{name}_float32")
            call(sizes, 3, *operand(first), *operand(second), guard[1].data_ptr())
            assert (guard[::2] == 7).all(), name
            assert (guard[1] != 7).all(), name
        for name in ("spanned_av", "spanned_sc"):
            guard = torch.full((3, x.numel()), 7.0)
            span = (weight.data_ptr(), None, *operand(features), *operand(x))
            call = getattr(library, f"attnlab_{name}_float32")
            call(sizes, 3, 5, *span, guard[1].data_ptr())
            assert (guard[::2] == 7).all(), name
            assert (guard[1] != 7).all(), name


@pytest.mark.parametrize(
    ("columns", "vector_bytes", "item_bytes", "expected"),
    [
        (7, 64, 4, True),  # one half vector instead of one that is half empty
        (14, 64, 4, False),
        (20, 64, 4, True),  # three halves instead of two vectors
        (28, 64, 4, False),
        (36, 64, 4, False),
        (4, 64, 8, True),
        (7, 64, 8, False),
        (3, 32, 4, False),
        (3, 16, 4, False),
    ],
)
def test_when_half_vectors_suit(columns, vector_bytes, item_bytes, expected):
    assert halves_suit(columns, vector_bytes, item_bytes) is expected


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_no_build_on_import(tmp_path):
    run_python("import attnlab.evolution", XDG_CACHE_HOME=str(tmp_path))
    assert not list(tmp_path.rglob("*"))


def test_without_a_compiler_everything_works(tmp_path):
    code = (
        "import torch; from attnlab.evolution import Involution2d, native_status;"
        "y = Involution2d(16, 3)(torch.ones(2, 16, 5, 5)); y.sum().backward();"
        "print(native_status())"
    )
    out = run_python(code, XDG_CACHE_HOME=str(tmp_path), CXX="no-such-compiler")
    assert out == "pure torch: no C++ compiler: no-such-compiler is not on the path"


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"CXX": "false"}, "pure torch: false failed: no message"),
        ({"ATTNLAB_NATIVE": "off"}, "pure torch: ATTNLAB_NATIVE=off"),
        (
            {"ATTNLAB_NATIVE": "prebuilt"},
            "pure torch: ATTNLAB_NATIVE=prebuilt, and the package has no object for this machine",
        ),
    ],
)
def test_reasons_for_pure_torch(environment, message, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(native.KERNELS, "prebuilt", tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    library, status = native.KERNELS.find()
    assert library is None
    assert str(status) == message


def test_unknown_mode(monkeypatch):
    monkeypatch.setenv("ATTNLAB_NATIVE", "of")
    with pytest.raises(UnknownNameError) as caught:
        native.KERNELS.find()
    assert str(caught.value) == (
        "Unknown ATTNLAB_NATIVE 'of'. Did you mean 'off'? Expected one of: auto, prebuilt, off."
    )


def test_concurrent_builds_make_one_object(tmp_path, monkeypatch):
    calls = []

    def compile_once(target, variant, _source):
        calls.append(variant)
        target.write_bytes(b"object")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "compile_to", compile_once)
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(build.built, [variants.BASELINE] * 4, [native.SOURCE] * 4))
    assert len(calls) == 1
    assert len(set(paths)) == 1


def test_the_object_is_named_after_source_and_flags(tmp_path):
    before = build.object_name(variants.AVX2, native.SOURCE)
    assert before != build.object_name(variants.AVX512, native.SOURCE)
    copy = tmp_path / native.SOURCE.name
    shutil.copytree(native.SOURCE, copy)
    assert build.object_name(variants.AVX2, copy) == before
    with open(copy / "kernels.cpp", "a") as file:
        file.write("// changed\n")
    assert build.object_name(variants.AVX2, copy) != before
