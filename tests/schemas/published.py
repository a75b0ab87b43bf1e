"""Documents of what others published."""

from msgspec.structs import fields

from ggbench.models.published.rows import METRICS, WITH_ERRORS, PublishedRow
from tests.schemas.shapes import Fields, about, by, many, of, sometimes, struct

_CELL = about(float | str | None, "A number, or the word printed in its place, such as `oom`; null is not stated.")
_PLAIN = " ".join(field.name for field in fields(PublishedRow) if field.name not in (*METRICS, "versions"))
ROW: Fields = {
    **of(PublishedRow, _PLAIN),
    **dict.fromkeys(METRICS, _CELL),
    **dict.fromkeys([f"{name}_error" for name in WITH_ERRORS], about(float | None, "As printed beside the figure.")),
    "versions": about(by(str), "Of the software."),
}
NEAR = struct(
    "NearRow",
    "A published row near to a run.",
    {"differences": about(many(str), "How its conditions differ from those of the run.")},
    sometimes(
        {
            "ln_ppl_ratio": about(float | None, "Of a quality, as the row has it, or derived from it."),
            "ln_ppl_ratio_error": float | None,
        }
    ),
    ROW,
)
