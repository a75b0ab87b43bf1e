"""Numbers to text and back, against figures that others print."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ggbench.errors import UsageError
from ggbench.units import (
    exact_size,
    format_bandwidth,
    format_bytes,
    format_compute,
    format_count,
    format_duration,
    format_fixed,
    format_interval,
    format_number,
    format_params,
    format_ratio,
    parse_bandwidth,
    parse_size,
    parse_tokens,
)


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("24GiB", 24 * 2**30), ("24g", 24 * 2**30), ("24 GB", 24_000_000_000), ("512MiB", 512 * 2**20),
        ("1.5 kib", 1536), (".5k", 512), ("1TiB", 2**40), ("1tb", 10**12), ("6gb", 6 * 10**9), ("6gB", 6 * 10**9),
        ("6G", 6 * 2**30), ("6g", 6 * 2**30), ("6 GiB", 6 * 2**30), ("6kib", 6 * 2**10), ("1048576", 2**20),
        ("43053", 43053 * 2**20), ("1024", 2**30),
        ("7b", 7),
    ],
)  # fmt: skip
def test_sizes_are_read_in_both_conventions(text: str, n_bytes: int) -> None:
    assert parse_size(text) == n_bytes


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("1008GB/s", 1.008e12), ("80GiB/s", 80 * 2**30), ("24.7 GB/s", 24.7e9), ("3TBps", 3e12),
        ("1008gb/s", 1.008e12), ("1008G/s", 1008 * 2**30),
    ],
)  # fmt: skip
def test_bandwidths_are_read(text: str, bytes_per_s: float) -> None:
    assert parse_bandwidth(text) == pytest.approx(bytes_per_s)


@pytest.mark.parametrize(
    "text",
    ["", " ", "24", "-1GiB", "24 Gi B", "24XB", "1e9", "0", "0.0GiB", "0.4", "1,5GiB", "1.2.3", "24GiB/s", "9" * 400,
     "2000000TiB", "٢٤GiB", "24GiB\n24", "nan", "inf", "-1", "+6GiB", "6e9GB", "0x10G", "٦GB", "6ＧB", "6GBs", "GiB"],
)  # fmt: skip
def test_what_is_no_size_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_size(text)
    assert caught.value.hint
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("text", ["6Gb", "6 Gb", "6Gib", "6Mb", "6Kb", "1.5Tb"])
def test_a_size_in_bits_is_refused(text: str) -> None:
    """A small b after a capital is a bit, an eighth of what would be taken."""
    with pytest.raises(UsageError, match=f"'{text}' is not a size") as caught:
        parse_size(text)
    assert "Gb and gbps are bits" in caught.value.hint


@pytest.mark.parametrize("text", ["1008Gb/s", "100Gbps", "100gbps", "80Gib/s", "7bps"])
def test_a_bandwidth_in_bits_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"'{text}' is not a bandwidth") as caught:
        parse_bandwidth(text)
    assert "Gb and gbps are bits" in caught.value.hint


@settings(deadline=None)
@given(st.text(max_size=20))
def test_any_text_is_a_size_or_a_usage_error(text: str) -> None:
    try:
        n_bytes = parse_size(text)
    except UsageError:
        return
    assert 1 <= n_bytes <= 2**60


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (2**20 - 1, "1.00 MiB"), (1536 * 2**20, "1.50 GiB"),
        (401_194_496, "382.6 MiB"), (4_756_741_816, "4.43 GiB"), (-3 * 2**20, "-3.00 MiB"),
        (5000 * 2**40, "5000 TiB"), (None, "—"),
    ],
)  # fmt: skip
def test_bytes(n_bytes: int | None, text: str) -> None:
    assert format_bytes(n_bytes) == text


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (205.31, 3, "205"), (21.34, 3, "21.3"), (1234.5, 3, "1234"), (0.00120, 3, "0.00120"), (0.0, 3, "0"),
        (-4.567, 2, "-4.6"), (math.inf, 3, "inf"), (None, 3, "—"),
    ],
)  # fmt: skip
def test_numbers(value: float | None, digits: int, text: str) -> None:
    assert format_number(value, digits) == text


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (205.3, 201.4, 209.5, "205 ±4"), (10.917, 10.84, 10.99, "10.92 ±0.08"),
        (10.917, 10.797, 11.037, "10.92 ±0.12"), (1513.2, 1489.1, 1538.9, "1513 ±26"),
        (205.3, 180.2, 310.7, "205 (180–311)"), (205.3, 205.3, 310.7, "205 (205–311)"),
        (44.09, 1.142, 90.6, "44 (1–91)"), (85.5, 28.7, 170.4, "86 (29–170)"),
        (1.0, -43.0, 48.0, "1 (-43 to 48)"), (10.9, 10.9, 10.9, "10.9"),
        (10.9, 10.8, math.inf, "10.9"),
        (79.20479, 79.20479 - 8e-6, 79.20479 + 8e-6, "79.2"),
    ],
)  # fmt: skip
def test_intervals(value: float, low: float, high: float, text: str) -> None:
    assert format_interval(value, low, high) == text


@pytest.mark.parametrize(
    ("ratio", "low", "high", "text"),
    [
        (1.32, 1.28, 1.36, "1.32 (1.28–1.36)"), (1.31, 1.04, 1.65, "1.31 (1.04–1.65)"), (1.41, 1.41, 1.41, "1.41"),
        (0.8, 0.5, 1.98, "0.80 (0.50–2.0)"), (0.71, 0.034, 14.9, "0.71 (0.034–15)"),
        (0.49, 0.0092, 26.1, "0.49 (0.009–26)"), (120.0, 100.0, 150.0, "120 (100–150)"),
        (1.5, 1.003, 2.4, "1.500 (1.003–2.400)"), (4.0, 3.2, math.inf, "> 3.20"),
    ],
)  # fmt: skip
def test_a_ratio_that_differs_from_1_is_not_rounded_to_include_it(
    ratio: float, low: float, high: float, text: str
) -> None:
    assert format_ratio(ratio, low, high) == text


@pytest.mark.parametrize(
    ("n_params", "text"),
    [
        (619_570_176, "0.62 B"), (7_721_324_544, "7.72 B"), (463_987_712, "464 M"), (1_577_216, "1.6 M"),
        (256, "256"), (None, "—"),
    ],
)  # fmt: skip
def test_parameters(n_params: int | None, text: str) -> None:
    """Qwen1.5 0.5B with and without its embeddings, as its documents count them."""
    assert format_params(n_params) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0:00"), (0.4, "<0:01"), (42.4, "0:42"), (725, "12:05"), (3750, "1:02:30"), (59.7, "1:00"),
        (math.inf, "—"), (None, "—"),
    ],
)  # fmt: skip
def test_durations(seconds: float | None, text: str) -> None:
    assert format_duration(seconds) == text


def test_binary_units_are_the_articles() -> None:
    assert parse_bandwidth("1008GiB/s") == 1008 * 2**30
    assert format_bandwidth(1008 * 2**30, binary=True) == "1008 GB/s"
    assert format_compute(82.58 * 2**40) == "82.58 TFLOPS"
    assert format_compute(None) == "—"


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (3 << 30, "3GiB"),
        (1200 << 20, "1200MiB"),
        (0, "0"),
        ((1 << 30) + 1, "1073741825B"),
        (512_000, "512000B"),
        (32 * 10**9, "32GB"),
    ],
)
def test_an_exact_size_is_read_back_as_the_same_bytes(n_bytes: int, text: str) -> None:
    assert exact_size(n_bytes) == text
    assert n_bytes == 0 or parse_size(text) == n_bytes


@pytest.mark.parametrize(
    ("text", "n_tokens"),
    [
        ("16384", 16384), (" 16384 ", 16384), ("16,384", 16384), ("16_384", 16384), ("1,048,576", 1 << 20),
        ("16k", 16384), ("16K", 16384), ("1.5k", 1536), (".5k", 512), ("1m", 1 << 20),
        ("2,147,483,647", (1 << 31) - 1),
    ],
)  # fmt: skip
def test_tokens_are_read_as_people_write_them(text: str, n_tokens: int) -> None:
    assert parse_tokens(text) == n_tokens


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "16k"), ("k", "16k"), ("16 thousand", "16k"), ("16,38", "16k"), ("1,6384", "16k"), ("16kb", "16k"),
        ("-1", "16k"), ("1e4", "16k"), ("1.3k", "16k"), ("2.5", "16k"), ("32.768", "16,384"),
        ("0", "1 to 2,147,483,647"),
        ("2147483648", "1 to 2,147,483,647"), ("2048m", "1 to 2,147,483,647"),
    ],
)  # fmt: skip
def test_what_is_no_number_of_tokens_says_what_to_write(text: str, hint: str) -> None:
    with pytest.raises(UsageError, match=r"token|out of range") as caught:
        parse_tokens(text)
    assert hint in caught.value.hint


def test_counts_decimals_and_bandwidths() -> None:
    assert (format_count(10_000), format_count(None)) == ("10,000", "—")
    assert format_fixed(1250.04, 1) == "1,250.0"
    rates = [format_bandwidth(rate) for rate in (1.008e12, 24.7e9, None)]
    assert rates == ["1008 GB/s", "24.7 GB/s", "—"]
