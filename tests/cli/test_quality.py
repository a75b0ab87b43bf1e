"""`ggbench quality` over fake workers: what is compared with what, its output, and bad input in one line."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines import protocol
from ggbench.engines.contract import Request, Score
from ggbench.engines.endings import Ending, Failed
from ggbench.expect.measured_losses import measured_losses
from ggbench.experiments.quality.record import QualityResult
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.twin import cached_twin
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_run
from ggbench.show.presenter import presenter_of
from ggbench.stats.intervals import Interval
from tests.cli.conftest import FakeMachine, Run
from tests.conftest import TINY
from tests.fakes.scores import scores, trained_folder, without_mark


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return trained_folder(tmp_path)


@pytest.fixture
def asked(tmp_path: Path) -> tuple[str, ...]:
    path = tmp_path / "prose.txt"
    path.write_text("some prose")
    return "--text", str(path), "-c", "32", "-b", "64"


def test_every_quant_is_compared_with_the_largest(
    ggbench: Run, machine: FakeMachine, folder: Path, asked: tuple[str, ...]
) -> None:
    machine.answers |= {0: scores(2.0), 1: scores(1.5)}
    ran = ggbench("quality", folder, *asked)
    assert ran.code == 0
    assert "q4_0 loses enough to notice against q8_0: 0.2500 nats over 10 chunks." in ran.out
    row = ggbench("quality", folder, *asked, "--json").json
    assert (row["quant"], row["base_quant"], row["n_chunks"], row["n_scored"]) == ("q4_0", "q8_0", 10, 150)
    assert row["kld_mean"] == 0.25
    compared = ggbench("compare", "1", "2").out
    assert "KLD" in compared and "memory" not in compared
    assert row["base_ppl"] == pytest.approx(4.4817, rel=1e-4)


@pytest.mark.parametrize(
    ("interval", "single", "several"),
    [
        ((0.041, 0.073), "too few to say", False),
        ((0.051, 0.063), "enough to notice", True),
        ((0.02, 0.04), "little", False),
    ],
)
def test_what_people_notice_is_not_said_beyond_the_interval(
    ggbench: Run, machine: FakeMachine, folder: Path, asked: tuple[str, ...], interval: Interval, single: str,
    several: bool,
) -> None:  # fmt: skip
    machine.answers |= {0: scores(2.0), 1: scores(1.5)}
    assert ggbench("quality", folder, *asked).code == 0
    with Store.open() as store:
        run = read_run(store, store.load_run(1))
    assert isinstance(run.result, QualityResult) and run.result.divergence is not None
    kld = replace(run.result.divergence.kld, mean=sum(interval) / 2, ci95=interval)
    run = replace(run, result=replace(run.result, divergence=replace(run.result.divergence, kld=kld)))
    assert single in presenter_of("quality").answer(run)
    assert ("People notice" in presenter_of("quality").table([run, replace(run, run_id=2)]).text) is several


def test_a_quantized_base_is_not_the_original(
    ggbench: Run, machine: FakeMachine, folder: Path, asked: tuple[str, ...]
) -> None:
    """A pick adds what a q8_0 base typically loses itself, and takes no loss from a q4_0 one, as if that lost none."""
    machine.answers |= dict.fromkeys(range(4), scores())
    said = "Plans and picks ignore this loss"
    assert said not in ggbench("quality", folder, "q4_0", *asked).out
    q8_0, q4_0 = (read_model_file(folder / f"tiny-{quant}.gguf").header_sha256 for quant in ("q8_0", "q4_0"))
    with Store.open() as store:
        losses = measured_losses(store, {q8_0, q4_0})
    loss = losses.of_weights(q4_0)
    of_base = losses.scores[0].base_own
    assert loss is not None and of_base is not None and of_base.basis == "typical"
    assert loss.value == pytest.approx(0.25 + of_base.value)
    assert loss.source.startswith("run 1, from q8_0, with the ")
    assert losses.of_weights(q8_0) is None
    ggbench("results", "rm", "1", "--yes")
    assert f"{said}, as q4_0" in " ".join(ggbench("quality", folder, "q8_0", "--base", "q4_0", *asked).out.split())
    with Store.open() as store:
        losses = measured_losses(store, {q8_0, q4_0})
    assert losses.of_weights(q8_0) is None
    assert losses.of_weights(q4_0) is None


def test_a_quantized_cache_is_compared_with_the_f16_cache_of_its_quant(
    ggbench: Run, machine: FakeMachine, folder: Path, asked: tuple[str, ...]
) -> None:
    machine.answers |= dict.fromkeys(range(12), scores())
    kv = "-ctk", "q8_0", "-ctv", "q4_0"
    document = ggbench("quality", folder, "q8_0", *asked, *kv, "--json").json
    assert (document["type_k"], document["type_v"]) == ("q8_0", "q4_0")
    document = ggbench("quality", folder, *asked, *kv, "--json").json
    assert [(row["quant"], row["type_k"], row["type_v"]) for row in document["rows"]] == [
        ("q8_0", "q8_0", "q4_0"), ("q4_0", "q8_0", "q4_0"),
    ]  # fmt: skip
    bases = [row["run"]["result"]["base"] for row in document["rows"]]
    assert [(base["subject"]["quant"], base["type_k"]) for base in bases] == [("q8_0", "f16"), ("q4_0", "f16")]
    command = shlex.split(document["rows"][1]["command"])
    assert command[-4:] == ["--type-k", "q8_0", "--type-v", "q4_0"]
    again = ggbench(*command[1:], "--json").json
    assert (again["ppl"], again["kld_mean"]) == (document["rows"][1]["ppl"], document["rows"][1]["kld_mean"])
    assert again["run"]["result"]["base"]["subject"]["file"] == bases[1]["subject"]["file"]
    assert ggbench("quality", folder, "q4_0", "--base", "q8_0", *asked, *kv, "--json").json["base_quant"] == "q8_0"


def test_a_table_says_what_loses_least_and_how_to_compare_it(
    ggbench: Run, machine: FakeMachine, folder: Path, asked: tuple[str, ...]
) -> None:
    machine.answers |= dict.fromkeys((0, 2, 4), scores(2.0)) | dict.fromkeys((1, 3, 5), scores(1.5))
    ran = ggbench("quality", folder, *asked, "-ctk", "q8_0")
    assert ran.out.startswith("The rows cannot be ranked: different bases")
    machine.answers |= {4: scores(1.5), 5: scores(2.0)}
    alone = ggbench("quality", folder, *asked, "--base", "none", "--why").out
    assert alone.startswith("q4_0 has the lowest perplexity, 4.482.")
    (command,) = (line for line in alone.splitlines() if line.startswith("ggbench compare "))
    assert "PPL" in ggbench(*command.split()[1:]).out
    assert "KL divergence by percentile" in ggbench("results", "show", "1", "--why").out
    assert "quality" in ggbench("results").out


def test_a_quant_that_is_its_own_base_is_said_to_be(
    ggbench: Run, machine: FakeMachine, folder: Path, asked: tuple[str, ...]
) -> None:
    machine.answers |= {0: scores(2.0)}
    ran = ggbench("quality", folder, "q8_0", "--base", "q8_0", *asked)
    assert ran.out.startswith("q8_0: PPL 7.389 over 10 chunks.")


def test_published_quality_stands_under_ones_own(
    ggbench: Run, machine: FakeMachine, folder: Path, asked: tuple[str, ...]
) -> None:
    machine.answers |= {0: scores(2.0), 1: scores(1.5)}
    ran = ggbench("quality", folder, *asked, "--against", "published")
    assert "q4_0 against published rows" in ran.out
    assert "llama-3-8b" in ran.out
    assert "perplexities of different texts, n_ctx or tokenizers are not comparable" in " ".join(ran.out.split())
    shown = ggbench("results", "show", "1", "--against", "published", "--json").json
    machine.answers |= {2: scores(2.0), 3: scores(1.5)}
    rows = ggbench("quality", folder, *asked, "--against", "published", "--json").json["against"]
    assert rows == shown["against"]
    nearest = rows[0]["row"]
    assert (nearest["quant"], nearest["figures"]["kld"]["value"], nearest["figures"]["kld"]["error"]) == (
        "q4_0",
        0.07194,
        0.000491,
    )
    assert {"text wikitext-2, not prose.txt", "n_ctx 512, not 32", "compared with f16, not q8_0"} <= set(
        rows[0]["differences"]
    )


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--text", "missing.txt"), 2, "missing.txt cannot be read: No such file"),
        (("--type-k", "q9_0"), 2, "'q9_0' is not one of"),
    ],
)
def test_bad_input_is_one_line(
    ggbench: Run, machine: FakeMachine, folder: Path, asked: tuple[str, ...], options: tuple[str, ...], code: int,
    message: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(folder.parent)
    machine.answers |= dict.fromkeys(range(4), scores())
    ran = ggbench("quality", folder, *asked, *options)
    assert (ran.code, message in ran.err) == (code, True), ran.err
    assert "Traceback" not in ran.err


@pytest.fixture
def two_models(tmp_path: Path, folder: Path) -> Path:
    """The folder with two quants of another model, of another vocabulary, and one of a third architecture."""
    hypers = {"other": replace(TINY, n_vocab=2048), "third": replace(TINY, architecture="qwen3")}
    for name, hyper, quant in (
        ("other", hypers["other"], "q8_0"), ("other", hypers["other"], "q4_0"), ("third", hypers["third"], "f16"),
    ):  # fmt: skip
        without_mark(cached_twin(name, hyper, quant, tmp_path / "twins"), folder / f"{name}-{quant}.gguf")
    return folder


def test_each_model_of_a_folder_has_a_base_of_its_own(
    ggbench: Run, machine: FakeMachine, two_models: Path, asked: tuple[str, ...]
) -> None:
    machine.answers |= dict.fromkeys(range(8), scores())
    ran = ggbench("quality", two_models, *asked, "--json")
    assert ran.code == 0, ran.err
    found = [(Path(row["file"]).stem, row["base_quant"]) for row in ran.json["rows"]]
    assert sorted(found) == [("other-q4_0", "q8_0"), ("third-f16", None), ("tiny-q4_0", "q8_0")]


@pytest.mark.parametrize(
    ("base", "reason"),
    [
        ("other-q8_0", "other q8_0 cannot be the base of tiny q4_0: its vocabulary has 2,048 tokens, not 1,024"),
        ("third-f16", "third f16 cannot be the base of tiny q4_0: its architecture is qwen3, not qwen2"),
        ("q6_k", "no quant named 'q6_k'"),
    ],
)
def test_a_base_of_another_model_is_refused_before_anything_is_scored(
    base: str, reason: str, ggbench: Run, machine: FakeMachine, two_models: Path, asked: tuple[str, ...]
) -> None:
    ran = ggbench("quality", two_models, "tiny-q4_0", *asked, "--base", base)
    assert (ran.code, ran.out, machine.workers) == (2, "", [])
    assert reason in ran.err and "Hint: " in ran.err


def test_a_quant_that_fails_is_a_row_and_alone_a_line(
    ggbench: Run, machine: FakeMachine, folder: Path, asked: tuple[str, ...]
) -> None:
    def broken(request: Request) -> Iterator[protocol.Message | Ending]:
        if isinstance(request, Score) and request.targets[0]:
            yield Failed("score", "the model's logits contain NaN or Inf")
        else:
            yield from scores()(request)

    machine.answers |= {0: broken, 1: scores()}
    ran = ggbench("quality", folder, *asked, "--base", "none")
    assert ran.code == 0
    assert "score failed: the model's logits contain NaN or Inf" in ran.out
    assert "PPL 7.389 over 10 chunks" in ran.err
    machine.answers |= {0: broken}
    ran = ggbench("quality", folder, "q8_0", *asked, "--base", "none")
    assert (ran.code, ran.out) == (6, "")
    assert "score failed: the model's logits contain NaN or Inf" in ran.err
    assert "Hint: the file may be damaged: download it again" in ran.err
