"""Candidates of a pick, made up."""

from ggbench.decisions.pick.record import Candidate
from ggbench.engines.llama.config import LlamaConfig
from ggbench.sizing.plan_record import PlanRow
from ggbench.stats.intervals import Estimate, Expected, LossBasis, SpeedBasis
from ggbench.stats.speed_curve import SessionTime
from ggbench.units import GIB


def around(value: float, error: float = 0.0) -> Estimate:
    return Estimate(value, value * (1 - error), value * (1 + error))


def expected(
    value: float, error: float = 0.05, basis: SpeedBasis | LossBasis = "published", source: str = "rows"
) -> Expected:
    return Expected(value, value * (1 - error), value * (1 + error), basis, source)


def measured_loss(nats: float, error: float = 0.02) -> Expected:
    return expected(nats, error, "measured", "run 1, from q8_0")


def session_of(
    tok_s: float, error: float = 0.05, basis: SpeedBasis = "measured", total_s: float | None = None
) -> SessionTime:
    """Return 13 turns, whose prompts take no time in sum by default."""
    answers = around(300 / tok_s, error)
    total = expected(answers.value if total_s is None else total_s, error, basis, "run 2")
    speed, wait = expected(tok_s, error, basis, "run 2"), around(0.4)
    return SessionTime("chat", 13, 6713, speed, answers, total, wait, wait)


def candidate(
    quant: str = "q4_k_m",
    cache: str = "f16",
    *,
    model: str = "m",
    loss: float | Expected | None = 0.01,
    cache_loss: float = 0.0,
    tok_s: float | SessionTime | None = 20.0,
    n_ctx: int | None = 32768,
    gib: float = 4.0,
    n_params: int | None = 7_000_000_000,
    missing_gib: float = 0.0,
) -> Candidate:
    speed = session_of(tok_s) if isinstance(tok_s, int | float) else tok_s
    full = None if speed is None else speed.tok_s
    row = PlanRow(
        model=model, quant=quant, provenance="file", type_k=cache, type_v=cache, file_bytes=round(gib * GIB),
        weight_bytes=round(gib * GIB), needed_bytes=round((gib + 1) * GIB),
        left_bytes=round((-missing_gib or 7 - gib) * GIB), fits=not missing_gib, budget_bytes=8 * GIB, bpw=gib,
        n_params=n_params, n_ctx=8192, planned_n_ctx=n_ctx or None, expected=full,
        setup=LlamaConfig(n_ctx=8192, type_k=cache, type_v=cache),
    )  # fmt: skip
    return Candidate(
        row=row, model_key=model, max_n_ctx=n_ctx,
        speed=speed,
        weights_loss=measured_loss(loss) if isinstance(loss, int | float) else loss,
        cache_loss=measured_loss(cache_loss),
    )  # fmt: skip
