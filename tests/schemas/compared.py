"""Documents of runs side by side."""

from ggbench.decisions.compare.comparison import ComparedLine, Comparison, Versus
from ggbench.decisions.compare.limits import LimitCheck
from ggbench.runs.run import Run, RunHead
from tests.schemas.measured import CASE, ENDS, NUMBER, QUANT
from tests.schemas.published import NEAR
from tests.schemas.shapes import Fields, Struct, about, by, many, of, one, sometimes, struct

_LETTER: Fields = {"letter": about(str, "What the run is called in texts: the first is `a`.")}
_NUMBERS = many(int | None)
_VERSUS = struct(
    "Versus", "A run beside the first.", _LETTER, of(Versus, "ratio"), {"ratio_ci95": ENDS},
    of(Versus, "difference"), {"difference_ci95": ENDS}, of(Versus, "is_different"),
)  # fmt: skip
_METRIC: Fields = {
    "metric": one(ComparedLine, "key"),
    "compared": about(_NUMBERS, "Numbers of the runs whose values can be compared; null of one that is not stored."),
    "better": about(_NUMBERS, "Numbers of the runs that are better than another, and none is better than them."),
    "over": about(int | None, "Number of the next best, where one run is better than all others."),
    "ratio": about(NUMBER, "Its value over that of the next best."),
    "ratio_ci95": ENDS,
    "verdict": about(str | None, "The same in words, with the runs' letters."),
    "versus": about(many(_VERSUS), "Every run but the first beside the first, where both are compared."),
    "load_spread": about(NUMBER, "Standard deviation between loads, as a share; the intervals include it."),
    "n_repeats": about(int | None, "Loads that it was taken from."),
}
_DEPTH: Fields = {
    "n_depth": about(int, "Tokens that are in the cache already."),
    **of(ComparedLine, "texts"),
    "extrapolated": about(many(str), "Letters of the runs that did not come so far."),
    **_METRIC,
}
_CHECK: Fields = {
    "limit": one(LimitCheck, "option"),
    **of(LimitCheck, "share"),
    **_LETTER,
    "metric": one(LimitCheck, "key"),
    **of(LimitCheck, "state worse_by"),
    "worse_by_ci95": ENDS,
    **of(LimitCheck, "repeats_needed"),
    "message": str,
}
_NAMED: Fields = {
    "name": about(str, "The shortest name that distinguishes it from the others."),
    **_LETTER,
    **of(RunHead, "kind"),
}
_CASES = many(struct("Case", "One input length with one batch size.", CASE))
_BESIDE: Fields = {
    **of(Run, "run_id"),
    **sometimes({"against": about(many(NEAR), "The nearest published rows."), "cases": _CASES}),
}


def documents() -> dict[str, Struct]:
    """Return the documents by the names in their `schema`."""
    return {
        "compare": struct(
            "Document",
            "Runs side by side; of a single run beside published figures only `rows` and `published`.",
            {"rows": many(struct("Row", "One run.", sometimes(_NAMED), QUANT))},
            sometimes(
                {
                    "metrics": many(struct("Metric", "One metric of all runs.", _METRIC)),
                    "depths": about(many(struct("Depth", "One depth.", _DEPTH)), "Speed by what is in the cache."),
                    "differences": about(by(many(str)), "What differs between the runs, by topic."),
                    **of(Comparison, "warnings"),
                    "sentence": about(str, "The answer in words."),
                    "checks": about(many(struct("Check", "One limit.", _CHECK)), "Of the options --fail-if-..."),
                    "published": about(many(struct("Beside", "", _BESIDE)), "With --against published: by run."),
                }
            ),
        )
    }
