"""Reduce the published losses to the tables that ggbench reads, and say how well they predict what is left out.

Each line of a table is a model, a family of models of one size, or models of one size; each column a quant or a type of
KV cache; each cell the median loss [nats], the ends of its 95 % interval and, if rows of the model itself state it, how
many and where. Rows of the model itself come first. What texts, makers and lengths of chunks change is in the interval.
"""

from __future__ import annotations

import argparse
import csv
import functools
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from loss_fit import Fit, Kind, Matrix, fit, product, same
from perplexity_ratio import is_base, ln_ppl_ratio

from ggbench.expect.loss import SIZES_B, family_of
from ggbench.gguf_file.quants import plain_quant
from ggbench.models.catalog import load_catalog
from ggbench.models.published import PublishedRow, load_published
from ggbench.stats.intervals import Z_95, Estimate
from ggbench.text import in_words
from ggbench.units import counted

DATA = Path(__file__).parent.parent / "ggbench" / "expect" / "data"
LADDERS = (
    "q8_0 q6_k q5_k_m q5_k_s q4_k_m q4_k_s q3_k_l q3_k_m q3_k_s q2_k q2_k_s",
    "q8_0 q5_1 q5_0 q4_1 q4_0",
    "iq4_nl iq4_xs iq3_m iq3_s iq3_xs iq3_xxs iq2_m iq2_s iq2_xs iq2_xxs iq1_m iq1_s",
    "ud-q8_k_xl ud-q6_k_xl ud-q6_k ud-q5_k_xl ud-q5_k_m ud-q5_k_s ud-q4_k_xl ud-q4_k_m ud-q4_k_s ud-iq4_nl ud-iq4_xs"
    " ud-q3_k_xl ud-q3_k_m ud-q3_k_s ud-iq3_s ud-iq3_xxs ud-q2_k_xl ud-iq2_m ud-iq2_s ud-iq2_xxs ud-iq1_m ud-iq1_s",
)
"""Quants of which each loses more than the one before."""
QUANTS = tuple(dict.fromkeys(" ".join(LADDERS).split()))
LEAST_STEP = 1.02
"""Ratio of the losses of a quant and the next finer one, at least."""
BITS = {"q4_0": 4.66, "q4_1": 5.16, "q5_0": 5.62, "q5_1": 6.1}
"""Bits per weight of a model of 8B with an output in q6_k, if llama.cpp's table of them lacks the quant."""
MIDDLE_BITS = 4.5
USUAL_B = 16.0
SMALL_B = 4.0
"""Billions of parameters below which losses grow faster."""
TELLING_NATS = 0.02
"""Least ln(PPL / PPL of the base) that stands for a divergence: above it they agree within a twentieth (Llama 3 8B)."""
CLASS_B = (0.6, 1.7, 6.0, 20.0, 100.0)
"""Size that stands for each class of `SIZES_B`."""
OLD = {"llama-2": "llama-2", "qwen1.5": "qwen1.5"}
"""Generations that lose less than later ones of the same architecture, as they saw fewer tokens."""
ARCHITECTURES = {"llama-3-8b": "llama", "qwen3-235b-a22b": "qwen3moe"}
"""Of published models that the catalog does not have."""
GUESS = (
    dict.fromkeys(("family", "model", "text", "perplexity", "perplexities", "small"), 0.3)
    | dict.fromkeys(("quant", "mixture", "mixtures", "size"), 0.2)
    | {"slope": 0.1, "square": 0.1, "cube": 0.05, "cell": 0.15, "maker": 0.05, "level": 10.0, "bits": 3.0}
)
"""First guess of each spread, in ln nats (of a bit, an octave of size)."""
KV_BITS = {"q8_0": 8.5, "q5_1": 6.0, "q5_0": 5.5, "q4_1": 5.0, "iq4_nl": 4.5, "q4_0": 4.5}
FORK = "github.com/TheTom/"
"""Place of a fork of llama.cpp with another rotation."""


ANOTHER = "?"
"""Name of a model or family without rows."""


class Observation(NamedTuple):
    kind: Kind
    log: float


@functools.cache
def bits_of(plain: str) -> float:
    """Return the bits per weight of a quant, in Llama 3.1 8B (llama.cpp, tools/quantize/README.md)."""
    rows = (row for row in load_published() if row.quant == plain and row.source == "llama.cpp-quantize")
    found = next((row.figures["bpw"].value for row in rows if "bpw" in row.figures), None)
    return BITS[plain] if found is None else found


@functools.cache
def architectures() -> Mapping[str, str]:
    return ARCHITECTURES | {model.id: model.hyper.architecture for model in load_catalog()}


def kind_of(model: str, quant: str, billions: float, text: str = "", *, by_perplexity: bool = False) -> Kind:
    old = next((name for name in OLD if model.startswith(name)), "")
    family = old or family_of(architectures().get(model, ""))
    plain = plain_quant(quant)
    return Kind(model, family, billions, quant, plain, bits_of(plain), text, by_perplexity)


def billions_of(row: PublishedRow) -> float:
    return float(re.match(r"[\d.]+", row.size)[0])  # type: ignore[index]


def kld_of(row: PublishedRow) -> float | None:
    found = row.figures.get("kld")
    return None if found is None else found.value


def weight_rows() -> list[PublishedRow]:
    """Return the rows of quantized weights."""
    return [row for row in load_published() if row.quant in QUANTS and row.type_k is None and not is_base(row)]


def cache_rows() -> list[PublishedRow]:
    """Return the rows of a cache of one type, rotated or at least not known not to be, of llama.cpp itself."""
    rows = (row for row in load_published() if row.type_k in KV_BITS and row.type_k == row.type_v)
    remarks = {None, "rotated"}
    return [row for row in rows if kld_of(row) and row.remark in remarks and not row.table.startswith(FORK)]


def observations(rows: Sequence[PublishedRow]) -> list[Observation]:
    """Return the divergences, and the telling ratios of perplexities of models and quants without one."""
    with_kld = {(row.model, row.quant) for row in rows if kld_of(row)}
    found = []
    for row in rows:
        text = f"{place_of(row)} {row.model} {row.text} {row.n_ctx}"
        ratio = ln_ppl_ratio(row)
        if kld := kld_of(row):
            found.append(
                Observation(kind_of(row.model, row.quant or "", billions_of(row), text), math.log(kld))
            )
        elif (row.model, row.quant) not in with_kld and ratio and ratio[0] >= TELLING_NATS:
            kind = kind_of(row.model, row.quant or "", billions_of(row), text, by_perplexity=True)
            found.append(Observation(kind, math.log(ratio[0])))
    return found


def weight_terms(one: Sequence[Kind], other: Sequence[Kind]) -> Mapping[str, Matrix]:
    columns = [_columns(kinds) for kinds in (one, other)]
    bits, size, small, mixed = (product(a, b) for a, b in zip(*columns, strict=True))
    model = same([each.model for each in one], [each.model for each in other])
    quant = same([each.quant for each in one], [each.quant for each in other])
    return {
        "level": np.ones_like(bits),
        "bits": bits,
        "square": bits**2,
        "cube": bits**3,
        "size": size,
        "small": small,
        "family": same([each.family for each in one], [each.family for each in other]),
        "model": model,
        "slope": model * bits,
        "cell": model * quant,
        "quant": same([each.plain for each in one], [each.plain for each in other]),
        "mixture": mixed,
        "mixtures": mixed * quant,
    }


def _columns(kinds: Sequence[Kind]) -> list[list[float]]:
    return [
        [each.bits - MIDDLE_BITS for each in kinds],
        [math.log2(each.billions / USUAL_B) for each in kinds],
        [max(0.0, math.log2(SMALL_B / each.billions)) for each in kinds],
        [float(each.quant != each.plain) for each in kinds],
    ]


def weight_noise(one: Sequence[Kind], other: Sequence[Kind]) -> Mapping[str, Matrix]:
    ratios = [[float(each.by_perplexity) for each in kinds] for kinds in (one, other)]
    own = np.eye(len(one)) if one is other else np.zeros((len(one), len(other)))
    text = same([each.text for each in one], [each.text for each in other])
    both = product(*ratios)
    return {"text": np.maximum(text, own), "maker": own, "perplexity": own * both, "perplexities": both}


def fitted(found: Sequence[Observation]) -> Fit:
    kinds, logs = [each.kind for each in found], [each.log for each in found]
    return fit(weight_terms, weight_noise, kinds, logs, GUESS)


def estimates(fit_: Fit, kinds: Sequence[Kind]) -> list[Estimate]:
    medians, spreads = fit_.predict(kinds)
    return [
        Estimate(math.exp(m), math.exp(m - Z_95 * s), math.exp(m + Z_95 * s))
        for m, s in zip(medians, spreads, strict=True)
    ]


def of_rows(values: Sequence[float], n_texts: int, spreads: Mapping[str, float]) -> Estimate:
    """Return the geometric mean of rows, and between what the loss in another text, of another maker's file, is."""
    variance = spreads["text"] ** 2 / n_texts + spreads["maker"] ** 2 * (1 + 1 / len(values))
    mean, half = statistics.geometric_mean(values), math.exp(Z_95 * math.sqrt(variance))
    return Estimate(mean, min(mean / half, *values), max(mean * half, *values))


def in_order(cells: Mapping[str, Estimate], stated: Iterable[str]) -> dict[str, Estimate]:
    """Return the cells with estimates moved so that each quant loses more than the next finer one of its ladder.

    What rows of the model state stays.
    """
    moved, fixed = dict(cells), set(stated)
    for ladder in LADDERS:
        least, names = 0.0, ladder.split()
        for index, name in enumerate(names):
            if name not in fixed:
                coarser = [(n, moved[each].value) for n, each in enumerate(names[index:]) if each in fixed]
                most = min((value / LEAST_STEP**n for n, value in coarser), default=math.inf)
                moved[name] = _moved(moved[name], max(least * LEAST_STEP, min(moved[name].value, most)))
            least = max(least, moved[name].value)
    return moved


def _moved(cell: Estimate, value: float) -> Estimate:
    return Estimate(value, min(cell.low, value), max(cell.high, value))


def weight_lines(
    rows: Sequence[PublishedRow], found: Sequence[Observation], fit_: Fit
) -> Iterator[dict[str, str]]:
    """Yield a line for each model with rows, then for each size of each family with rows and of all models."""
    models = {each.kind.model: each.kind for each in found}
    for model, own in sorted(models.items()):
        stated = own_cells([row for row in rows if row.model == model], fit_.spreads)
        kinds = [kind_of(model, quant, own.billions) for quant in QUANTS]
        cells = dict(zip(QUANTS, estimates(fit_, kinds), strict=True)) | {
            name: each[0] for name, each in stated.items()
        }
        texts = {quant: cell_text(cell) for quant, cell in in_order(cells, stated).items()}
        quants = dict.fromkeys(each.kind.quant for each in found if each.kind.model == model)
        of = " ".join(dict.fromkeys(names_of(model, rows)))
        yield (
            {"of": of, "from": f"its {in_words(list(quants))}"}
            | texts
            | {name: f"{texts[name]} {source}" for name, (_, source) in stated.items()}
        )
    families = sorted({each.kind.family for each in found} - {*OLD.values(), ""})
    for family in (*families, ""):
        near = sorted({each.kind.model for each in found if each.kind.family == family})
        for least, billions in zip(SIZES_B, CLASS_B, strict=True):
            kinds = [kind_of(ANOTHER, quant, billions)._replace(family=family or ANOTHER) for quant in QUANTS]
            cells = in_order(dict(zip(QUANTS, estimates(fit_, kinds), strict=True)), ())
            texts = {quant: cell_text(cell) for quant, cell in cells.items()}
            yield {"of": f"{family}/{least}B", "from": in_words(near or ["models of all families"])} | texts


def names_of(model: str, rows: Sequence[PublishedRow]) -> Iterator[str]:
    """Yield the id of a model, the name of its repo, and that of the variant that was scored."""
    yield model
    known = load_catalog().find(model)
    if known is not None and known.repo:
        yield known.repo.rpartition("/")[2].lower().removesuffix("-gguf")
    yield from (
        f"{model}-{row.variant.lower()}"
        for row in rows
        if row.model == model and row.variant and "kld" in row.figures
    )


def place_of(row: PublishedRow) -> str:
    """Return the document of a row, or its address if the document collects those of several places."""
    return row.table.split(" ")[0] if "/" in row.table and "." in row.table.split("/")[0] else row.source


def own_cells(rows: Sequence[PublishedRow], spreads: Mapping[str, float]) -> dict[str, tuple[Estimate, str]]:
    """Return what divergences of a model's own rows state by quant, and how many rows of which text and document."""
    found: dict[str, list[PublishedRow]] = defaultdict(list)
    for row in rows:
        if row.quant and kld_of(row):
            found[row.quant].append(row)
    return {quant: _own_cell(own, spreads) for quant, own in found.items()}


def _own_cell(rows: Sequence[PublishedRow], spreads: Mapping[str, float]) -> tuple[Estimate, str]:
    places = [f"{place_of(row)}, {_text_of(row)}" for row in rows]
    values = [*filter(None, map(kld_of, rows))]
    return of_rows(values, len(set(places)), spreads), _rows_of(places)


def _rows_of(places: Sequence[str]) -> str:
    return f"{counted(len(places), 'row')} of {'; '.join(dict.fromkeys(places))}"


def _text_of(row: PublishedRow) -> str:
    text = row.text or "text not stated"
    return f"{text} at {row.n_ctx}" if row.n_ctx else text


def cell_text(cell: Estimate) -> str:
    return " ".join(f"{each:.3g}" for each in (cell.value, cell.low, cell.high))


def counts(found: Sequence[Observation]) -> dict[str, str]:
    """Return the line of how many rows of how many models state each quant."""
    models: dict[str, list[str]] = defaultdict(list)
    for each in found:
        models[each.kind.quant].append(each.kind.model)
    return {"of": "rows"} | {quant: f"{len(models[quant])} {len(set(models[quant]))}" for quant in QUANTS}


class CachePlace(NamedTuple):
    """What one document says of the caches of one model in one text."""

    model: str
    place: str
    nats: Mapping[str, float]
    """By type of K and V."""

    def of_type(self, kv_type: str, slope: float) -> list[float]:
        """Return its loss of a type, or what the next finer and coarser types suggest by the usual change with bits."""
        bits = {each: KV_BITS[each] - KV_BITS[kv_type] for each in self.nats}
        alike = [self.nats[each] for each in (kv_type, *bits) if bits.get(each) == 0]
        if alike:
            return alike[:1]
        finer = min((each for each in bits if bits[each] > 0), key=bits.__getitem__, default=None)
        coarser = max((each for each in bits if bits[each] < 0), key=bits.__getitem__, default=None)
        return [
            self.nats[each] * math.exp(-slope * bits[each]) for each in (finer, coarser) if each is not None
        ]


def cache_places(rows: Iterable[PublishedRow]) -> list[CachePlace]:
    found: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in rows:
        if (kld := kld_of(row)) and row.type_k:
            found[row.model, f"{place_of(row)}, {_text_of(row)}"][row.type_k] = kld
    return [CachePlace(model, place, nats) for (model, place), nats in found.items()]


def bits_slope(places: Iterable[CachePlace]) -> float:
    """Return the median change of the logarithm of a cache's loss with a bit, of places that have several types."""
    slopes = []
    for each in places:
        fine, coarse = (pick(each.nats, key=KV_BITS.__getitem__) for pick in (max, min))
        if fine != coarse:
            slopes.append(math.log(each.nats[fine] / each.nats[coarse]) / (KV_BITS[fine] - KV_BITS[coarse]))
    return statistics.median(slopes)


def text_factor(places: Sequence[CachePlace], slope: float) -> float:
    """Return the ratio by which a place is usually off the geometric mean of several places with the same model."""
    squares, n_free = 0.0, 0
    for model in {each.model for each in places}:
        logs = [
            math.log(nats) for each in places if each.model == model for nats in each.of_type("q8_0", slope)
        ]
        squares += sum((each - statistics.fmean(logs)) ** 2 for each in logs)
        n_free += len(logs) - 1
    return math.exp(math.sqrt(squares / n_free))


def cache_lines(rows: Sequence[PublishedRow]) -> Iterator[dict[str, str]]:
    """Yield a line for each model with rows, each of their families, and all others, which have the range of those."""
    places = cache_places(rows)
    slope = bits_slope(places)
    factor = text_factor(places, slope)
    by_model: dict[str, list[CachePlace]] = defaultdict(list)
    families: dict[str, list[str]] = defaultdict(list)
    for each in places:
        by_model[each.model].append(each)
    for model, own in sorted(by_model.items()):
        families[family_of(architectures().get(model, ANOTHER))].append(model)
        texts = _cells([own], slope, factor)
        stated = {name: [each.place for each in own if name in each.nats] for name in KV_BITS}
        for name, where in stated.items():
            texts[name] += f" {_rows_of(where)}" if where else ""
        of = " ".join(dict.fromkeys(names_of(model, rows)))
        yield {"of": of, "from": f"its {in_words([name for name, where in stated.items() if where])}"} | texts
    for family in sorted(families.keys() - {ANOTHER}):
        models = families[family]
        texts = _cells([by_model[each] for each in models], slope, factor)
        yield {"of": family, "from": f"the range of {in_words(models)}"} | texts
    source = f"the range of {len(by_model)} models of {len(families)} families"
    yield {"of": "", "from": source} | _cells([*by_model.values()], slope, factor)


def _cells(models: Sequence[Sequence[CachePlace]], slope: float, factor: float) -> dict[str, str]:
    """Return the geometric median of models and the range of places; one place is off by what places usually are."""
    widened = factor if sum(map(len, models)) == 1 else 1.0
    found = {}
    for name in KV_BITS:
        nats = [[each for place in places for each in place.of_type(name, slope)] for places in models]
        middle = math.exp(statistics.median(math.log(statistics.geometric_mean(each)) for each in nats))
        found[name] = cell_text(Estimate(middle, min(map(min, nats)) / widened, max(map(max, nats)) * widened))
    return found


def write(path: Path, columns: Sequence[str], lines: Iterable[Mapping[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, ("of", "from", *columns), lineterminator="\n")
        table.writeheader()
        table.writerows(lines)


class LeftOut(NamedTuple):
    """A quant of a model, predicted without its rows."""

    ratio: float
    """Predicted / published."""
    width: float
    """Upper end / lower end."""
    coverage: float
    """Share of its rows inside the interval."""


def left_out(found: Sequence[Observation], *, whole_model: bool) -> list[LeftOut]:
    """Predict each quant of each model without it, by the spreads of all, or from a fit without the model."""
    cells: dict[tuple[str, str], list[float]] = defaultdict(list)
    for each in found:
        if not each.kind.by_perplexity:
            cells[each.kind.model, each.kind.quant].append(math.exp(each.log))
    groups: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for model, quant in cells:
        groups[model, "" if whole_model else quant].append((model, quant))
    fitted_to_all, results = fitted(found), []
    for (model, quant), group in groups.items():
        rest = [each for each in found if each.kind.model != model or quant not in ("", each.kind.quant)]
        sizes = {each.kind.model: each.kind.billions for each in found}
        size = CLASS_B[sum(sizes[model] >= least for least in SIZES_B) - 1] if whole_model else sizes[model]
        kinds = [kind_of(model, each, size) for _, each in group]
        without = fitted(rest) if whole_model else spread_as(fitted_to_all, rest)
        for cell, estimate in zip(group, estimates(without, kinds), strict=True):
            within = [estimate.low <= each <= estimate.high for each in cells[cell]]
            ratio = estimate.value / statistics.geometric_mean(cells[cell])
            results.append(LeftOut(ratio, estimate.high / estimate.low, statistics.fmean(within)))
    return results


def spread_as(fit_: Fit, found: Sequence[Observation]) -> Fit:
    """Return a fit of other observations with the same spreads."""
    logs = np.array([each.log for each in found])
    return fit_._replace(
        kinds=[each.kind for each in found], values=logs - logs.mean(), mean=float(logs.mean())
    )


def report(name: str, results: Sequence[LeftOut]) -> None:
    """Print one line of the table of EVIDENCE.md."""
    errors = [abs(math.log(each.ratio)) for each in results]
    print(
        f"| {name} | {len(results)} | {statistics.median(each.ratio for each in results):.2f} |"
        f" {math.exp(statistics.median(errors)):.2f} |"
        f" {_share(each <= math.log(1.5) for each in errors)} | {_share(each <= math.log(2) for each in errors)} |"
        f" {statistics.fmean(each.coverage for each in results):.0%} |"
        f" {statistics.median(each.width for each in results):.1f} |"
    )


def _share(found: Iterable[bool]) -> str:
    return f"{statistics.fmean(found):.0%}"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument(
        "--check", action="store_true", help="print the figures of what is left out, and write nothing"
    )
    rows = weight_rows()
    found = observations(rows)
    whole = fitted(found)
    if asked.parse_args().check:
        print(
            "| left out | n | median ratio | off by | within 1.5 | within 2 | inside the interval | its ends |"
        )
        print("|---|---:|---:|---:|---:|---:|---:|---:|")
        report("the quant of the model", left_out(found, whole_model=False))
        report("the model", left_out(found, whole_model=True))
        print("\nspreads: " + ", ".join(f"{name} {spread:.2f}" for name, spread in whole.spreads.items()))
        return
    write(DATA / "loss-weights.csv", QUANTS, [counts(found), *weight_lines(rows, found, whole)])
    write(DATA / "loss-caches.csv", tuple(KV_BITS), cache_lines(cache_rows()))


if __name__ == "__main__":
    main()
