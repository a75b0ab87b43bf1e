"""Quality of trained models, against what llama-perplexity prints for the same file and text.

The figures are of llama.cpp 0.5.0-dev (ggml 0.25.3): `llama-perplexity -m FILE -f tests/data/prose.txt -c 256 --chunks
2`, with `--save-all-logits` and `--kl-divergence` for Q2_K; of Gemma with -c 128 and all chunks. Another CPU rounds
otherwise, and so does another number of tokens in a batch, with which a perplexity changes by up to 1 %.
"""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.quality.measure import EXPERIMENT
from ggbench.experiments.quality.record import Divergence, QualityResult, QualitySettings
from ggbench.experiments.quality.texts import find_text
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve_one
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job
from ggbench.runs.progress import Finished
from ggbench.runs.session import Base, run_context

pytestmark = [pytest.mark.real, pytest.mark.llama]

PROSE = Path(__file__).parents[1] / "data" / "prose.txt"
SETUP = LlamaConfig(threads=1)


def _score(path: Path, base: Path | None = None, **changed: object) -> QualityResult:
    settings = replace(QualitySettings(find_text(PROSE)[0], n_ctx=256, n_seqs=8, n_chunks=2), **changed)
    job = Job(
        EXPERIMENT, resolve_one(parse_model(str(path))), SETUP, settings,
        None if base is None else Base(resolve_one(parse_model(str(base)))),
    )  # fmt: skip
    *_, end = run_job(run_context(None, needs_bandwidth=False), job)
    assert isinstance(end, Finished)
    assert end.run.outcome is Outcome.COMPLETED, end.run.reason
    assert isinstance(end.run.result, QualityResult)
    return end.run.result


def test_the_name_of_a_special_token_is_plain_text(smollm2: Path, tmp_path: Path) -> None:
    """And the last newline of a file is no part of its text, as in llama-perplexity."""
    path = tmp_path / "special.txt"
    path.write_text(PROSE.read_text().replace(". ", ".<|im_end|> "))
    found = _score(smollm2, text=find_text(path)[0])
    assert found.ppl is not None
    assert (found.n_chunks, found.n_scored) == (2, 2 * 127)
    assert found.ppl.mean == pytest.approx(42.9078, rel=2e-3)


@pytest.mark.slow
def test_a_model_with_bos_and_sliding_windows_agrees_too(gemma3: Path) -> None:
    found = _score(gemma3, n_ctx=128, n_seqs=16, n_chunks=None)
    assert found.ppl is not None
    assert found.n_chunks == 14
    assert found.ppl.mean == pytest.approx(66.1228, rel=2e-3)


@pytest.fixture(scope="module")
def apart(smollm2: Path, smollm2_q2_k: Path, tmp_path_factory: pytest.TempPathFactory) -> Divergence:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        for name in ("DATA", "CACHE", "CONFIG", "STATE"):
            patch.delenv(f"XDG_{name}_HOME", raising=False)
        found = _score(smollm2_q2_k, smollm2).divergence
    assert found is not None
    return found


def test_perplexity_is_llama_perplexitys(apart: Divergence) -> None:
    assert apart.base_ppl.mean == pytest.approx(55.559510, rel=5e-4)


def test_divergence_is_llama_perplexitys(apart: Divergence) -> None:
    assert apart.kld.mean == pytest.approx(0.510934, rel=2e-2)
    assert apart.same_top.mean == pytest.approx(0.55906, rel=2e-2)
    assert apart.rms_p_diff.mean == pytest.approx(0.15642, rel=2e-2)
    assert apart.ln_ppl_ratio.mean == pytest.approx(0.384524, rel=2e-2)


def test_a_model_does_not_diverge_from_itself(smollm2: Path) -> None:
    apart = _score(smollm2, smollm2, n_ctx=64, n_seqs=1, n_chunks=1).divergence
    assert apart is not None
    assert abs(apart.kld.mean) < 1e-9
    assert apart.same_top.mean == 1
