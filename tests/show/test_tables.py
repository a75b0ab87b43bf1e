"""Tables in a narrow terminal."""

from rich.console import Console, RenderableType

from ggbench.show.tables import fitted_table, names, right


def _lines(width: int) -> list[str]:
    """Return a table of two models with long names, as a terminal of this width shows it."""
    models = ("Meta-Llama-3.1-8B-Instruct-Abliterated", "DeepSeek-R1-Distill-Qwen-14B-Uncensored")
    columns = [
        names("", ("→ pick", "more context")),
        names("model", models),
        names("quant", ("q4_k_m", "q8_0")),
        right("loss", ("~0.021", "~0.00086"), "nats"),
        right("answer", ("≤ 38.0", "≤ 46.2"), "tok/s"),
        right("max n_ctx", ("14,336", "66,304*"), "tokens"),
        right("file", ("8.37 GiB", "14.6 GiB"), "", 1),
    ]
    return _text(fitted_table(columns, width=width), width).splitlines()


def _text(shown: RenderableType, width: int) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(shown)
    return capture.get()


def test_long_names_wrap_and_no_number_is_cut() -> None:
    """The file's size, of the least importance, is left out."""
    text = "\n".join(_lines(80))
    assert "…" not in text
    assert all(part in text for part in ("~0.00086", "≤ 46.2", "66,304*", "more context", "answer"))
    assert "omitted for width: file; --json has them all" in text


def test_columns_are_left_out_whole() -> None:
    lines = _lines(48)
    assert "…" not in "\n".join(lines)
    assert max(map(len, lines)) <= 48
    assert "~0.00086" in "\n".join(lines)
    assert "omitted for width: answer, max n_ctx, file;" in " ".join("\n".join(lines).split())
