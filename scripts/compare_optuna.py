"""Settings that `ggbench tune` finds beside those of Optuna's TPE sampler, in the same space and as many measurements.

`record` measures every combination on this machine, round after round in alternating order, into a file. `compare`
replays both searches over those measurements: each question of a search gets one of the recorded ones by chance, so
that searches can be repeated with other seeds. Optuna asks for as many as tune took, those of the baseline included,
and has the settings of its best trial; a combination that llama.cpp refuses costs it nothing. The quality of a choice
is its speed over the defaults' by the medians of all that was recorded. Exit code 1 where the median choice of tune is
slower than Optuna's by more than 1 %.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ggbench.engines import protocol
from ggbench.engines.contract import DecodeAtDepth, Request, Source
from ggbench.engines.endings import Completed, Ending
from ggbench.engines.events import Steps
from ggbench.engines.llama.config import LlamaConfig, MakeContext
from ggbench.engines.llama.engine import launch
from ggbench.experiments.tune.race import merged
from ggbench.experiments.tune.record import TuneCandidate, TuneResult, TuneSettings, TuneTiming
from ggbench.experiments.tune.search import TuneTimer
from ggbench.machine.host import default_threads
from ggbench.models.reference import parse_model
from ggbench.models.targets import materialize, resolve_one
from tests.fakes.engine import obey
from tests.fakes.planted import PlantedMachine

Values = dict[str, object]
DEPTHS = (0, 4096)
KV = ("q8_0",)


def space(threads: int) -> dict[str, list[object]]:
    """Return the values of each setting, the default first."""
    counts: list[object] = [*dict.fromkeys((threads, max(1, threads - 1), max(1, threads // 2)))]
    return {"flash_attn": ["auto", "off"], "threads": counts, "kv": ["f16", *KV], "mmap": [True, False]}


def setup_of(baseline: LlamaConfig, values: Values) -> LlamaConfig | None:
    """Return the setup; None for one that llama.cpp refuses."""
    named = {name: value for name, value in values.items() if name != "kv"}
    named |= {"type_k": values["kv"], "type_v": values["kv"]}
    changed = {name: value for name, value in named.items() if getattr(baseline, name) != value}
    return merged(baseline, [changed]) if changed else baseline


def record(model: str, quant: str | None, out: Path, seconds: float) -> int:
    """Measure every combination as often as the time allows, and write the file after each round."""
    path = materialize(resolve_one(parse_model(model, *filter(None, [quant])))).paths[0]
    settings = TuneSettings(DEPTHS, kv_types=KV)
    threads = default_threads()
    baseline = LlamaConfig(threads=threads).holding(settings.n_ctx_needed)
    assert isinstance(baseline, LlamaConfig)
    names = space(threads)
    found = [dict(zip(names, values, strict=True)) for values in itertools.product(*names.values())]
    rows = [(values, setup) for values in found if (setup := setup_of(baseline, values)) is not None]
    times: list[list[list[float]]] = [[] for _ in rows]
    engine, began = launch(threading.Event()), time.monotonic()
    timer = TuneTimer(engine, Source(path), settings, lambda pid: None)
    warm = timer.time(TuneCandidate(0, baseline))
    assert isinstance(warm, TuneTiming), warm
    timer = timer.calibrated(warm)
    order = sorted(range(len(rows)), key=lambda index: rows[index][1].mmap)
    while time.monotonic() - began < seconds:
        for index in order:
            timing = timer.time(TuneCandidate(index, rows[index][1]))
            assert isinstance(timing, TuneTiming), timing
            times[index].append([at.step_ns or 0.0 for at in timing.at])
        order.reverse()
        document = [{"values": values, "step_ns": measured} for (values, _), measured in zip(rows, times, strict=True)]
        out.write_text(json.dumps({"file": str(path), "depths": DEPTHS, "threads": threads, "rows": document}))
    engine.close()
    print(f"{len(rows)} combinations, {min(map(len, times))} measurements of each, in {out}")
    return 0


@dataclass
class RecordedMachine(PlantedMachine):
    """Workers that answer with recorded measurements, each drawn by chance from those of the setup."""

    table: list[tuple[LlamaConfig, list[list[float]]]] = field(default_factory=list)

    def answer(self, request: Request) -> Iterator[protocol.Message | Ending]:
        """As the planted machine."""
        match request:
            case MakeContext(setup):
                self._setup = setup
                self._drawn = self.draw(setup)
                yield from obey(request)
            case DecodeAtDepth(n_depth, n_gen):
                step_ns = self._drawn[max(index for index, each in enumerate(DEPTHS) if each <= n_depth)]
                self.seconds += n_gen * step_ns / 1e9 + 0.1
                self.n_measured += 1
                yield Steps(n_depth + 2, [round(step_ns)] * n_gen, [])
                yield Completed()
            case _:
                yield from obey(request)

    def draw(self, setup: LlamaConfig) -> list[float]:
        """One measurement of that setup: nanoseconds of a step at each depth."""
        same = next(times for known, times in self.table if key(known) == key(setup))
        return self._rng.choice(same)


def key(setup: LlamaConfig) -> object:
    """What the recorded space varies."""
    return setup.flash_attn, setup.threads, setup.type_k, setup.type_v, setup.mmap


def compare(table_file: Path, repeat: int, within_s: float) -> int:
    """Repeat both searches, and print what each chose."""
    document = json.loads(table_file.read_text())
    threads = document["threads"]
    baseline = LlamaConfig(threads=threads)
    table = [
        (setup, row["step_ns"]) for row in document["rows"] if (setup := setup_of(baseline, row["values"])) is not None
    ]
    truth = {
        key(setup): score([statistics.median(each) for each in zip(*times, strict=True)]) for setup, times in table
    }
    own = truth[key(baseline)]
    best = max(math.exp(own - each) for each in truth.values())
    n_rounds = min(len(times) for _, times in table)
    name = Path(document["file"]).name
    print(f"{name}: {len(table)} combinations, {n_rounds} measurements of each; best {best:.3f} times")
    print(f"{'seed':>4} {'tune':>7} {'measured':>9} {'Optuna':>7} {'measured':>9}   {'tune chose':<40} Optuna chose")
    ours, theirs = [], []
    target = resolve_one(parse_model(document["file"]))
    for seed in range(repeat):
        machine = RecordedMachine(seed, table=table, n_logical=threads)
        settings = TuneSettings(DEPTHS, within_s=within_s, kv_types=KV)
        result = machine.tune(target, settings, baseline).result
        assert isinstance(result, TuneResult)
        chosen = result.best.setup if result.best is not None else baseline
        n_measured = machine.n_measured // len(DEPTHS)
        other, n_asked = by_optuna(
            RecordedMachine(1000 + seed, table=table), baseline, space(threads), n_measured, seed
        )
        ours.append(math.exp(own - truth[key(chosen)]))
        theirs.append(math.exp(own - truth[key(other)]))
        print(
            f"{seed:>4} {ours[-1]:>7.3f} {n_measured:>9} {theirs[-1]:>7.3f} {n_asked:>9}   {named(chosen):<40} "
            f"{named(other)}"
        )
    print(
        f"median {statistics.median(ours):.3f} times the speed of the defaults, Optuna {statistics.median(theirs):.3f}"
    )
    return 0 if statistics.median(ours) >= 0.99 * statistics.median(theirs) else 1


def by_optuna(
    machine: RecordedMachine, baseline: LlamaConfig, choices: dict[str, list[object]], n_asked: int, seed: int
) -> tuple[LlamaConfig, int]:
    """Return the setup of Optuna's best trial after `n_asked` measurements, and how many there were."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    n_done = 0
    for _ in range(10 * n_asked):
        if n_done == n_asked:
            break
        trial = study.ask()
        setup = setup_of(baseline, {name: trial.suggest_categorical(name, each) for name, each in choices.items()})
        if setup is None:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            continue
        n_done += 1
        study.tell(trial, score(machine.draw(setup)))
    found = setup_of(baseline, study.best_params)
    assert found is not None
    return found, n_done


def score(step_ns: list[float]) -> float:
    """The mean of the logarithms over depths: less is faster."""
    return statistics.fmean(map(math.log, step_ns))


def named(setup: LlamaConfig) -> str:
    """For people."""
    return f"fa {setup.flash_attn}, {setup.threads} threads, KV {setup.type_k}, mmap {'on' if setup.mmap else 'off'}"


def main() -> int:
    """Record, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    recorder = commands.add_parser("record")
    recorder.add_argument("model")
    recorder.add_argument("quant", nargs="?")
    recorder.add_argument("--out", type=Path, required=True)
    recorder.add_argument("--seconds", type=float, default=240)
    comparer = commands.add_parser("compare")
    comparer.add_argument("table", type=Path)
    comparer.add_argument("--repeat", type=int, default=5)
    comparer.add_argument("--within", type=float, default=240, help="seconds for each search, by the machine's clock")
    asked = parser.parse_args()
    if asked.command == "record":
        return record(asked.model, asked.quant, asked.out, asked.seconds)
    return compare(asked.table, asked.repeat, asked.within)


if __name__ == "__main__":
    sys.exit(main())
