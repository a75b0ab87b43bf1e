"""What a search for settings says, for every output: its JSON, its texts, and the commands that use what it found."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from ggbench.decisions.pick.run_commands import RunCommands, commands_lines, modelfile_lines, run_commands
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.tune.record import Gain, TunedCandidate, TuneResult, TuneSettings, result_of
from ggbench.fields import config_options
from ggbench.models.targets import FileToRun
from ggbench.runs.run import Run
from ggbench.show.document import Shape, by_name, field, many, of
from ggbench.show.names import model_name
from ggbench.show.run_documents import MEASURED_FILE, ORIGIN, expected, run_documents


def setup_to_use(run: Run) -> LlamaConfig | None:
    """Return the best setup, with the n_ctx asked for; the baseline if nothing beats it; None if nothing was timed."""
    found, given = result_of(run), run.head.setup
    if not found.n_measured:
        return None
    best = found.best or found.candidates[0]
    return replace(best.setup, n_ctx=given.n_ctx)


def ggbench_line(run: Run) -> str:
    """Return the decode with the settings that were found."""
    setup = setup_to_use(run)
    options = [] if setup is None else config_options(setup)
    return shlex.join(["ggbench", "decode", run.subject.file or run.subject.model, *options])


def tuned_commands(run: Run) -> RunCommands | None:
    """Return the same load for other programs; None where nothing was found."""
    setup, subject = setup_to_use(run), run.subject
    if setup is None:
        return None
    paths = (Path(subject.file),) if subject.file else ()
    file = FileToRun(model_name(subject), subject.quant, paths, is_here=True)
    return run_commands(file, setup, on_gpu=bool(run.memory.weights_on_gpu), n_ctx_train=subject.n_ctx_train)


def tuned_lines(run: Run) -> list[str]:
    """Return every command, each to be run as it is."""
    commands = tuned_commands(run)
    return [] if commands is None else [ggbench_line(run), *commands_lines(commands)]


def _by_depth(gains: Sequence[Gain]) -> dict[str, Gain]:
    return {str(each.n_depth): each for each in gains}


_GAIN = Shape(
    "GainAtDepth",
    "Speed over that of the defaults, above 1 is faster; null where it is unknown.",
    expected(
        "ratio",
        "Of the decode, or of the prompt where no decode was asked for.",
        lambda gain: gain.decode or gain.prefill,
        "ci95",
    ),
    expected("prefill_ratio", "", lambda gain: gain.prefill, "prefill_ci95"),
    of(Gain, "step_ms batch_ms"),
)
_CANDIDATE = Shape(
    "Candidate",
    "Settings that were tried, or not, as `state` says.",
    of(TunedCandidate, "number state"),
    field("settings", dict[str, object], "What they change of the defaults, by llama.cpp's names."),
    of(TunedCandidate, "reason? n_timed"),
    expected(
        "ratio",
        "Speed over the defaults', over all depths and phases, as the race saw it.",
        lambda candidate: candidate.ratio,
        "ci95",
    ),
    field("at", by_name(_GAIN), "By depth.", lambda candidate: _by_depth(candidate.at)),
    expected(
        "kld",
        "What the KV cache costs in quality, in nats for each token, where it was measured.",
        lambda candidate: candidate.kv_loss and candidate.kv_loss.nats,
        "kld_ci95",
    ),
)
_COMMANDS = Shape(
    "TunedCommands",
    "Each runs the model with what was found.",
    field("ggbench", str),
    of(RunCommands, "llama_server llama_cli"),
    field("ollama", str | None, get=lambda commands: "\n".join(modelfile_lines(commands)) or None),
)


def _best(run: Run) -> dict[str, object]:
    found = result_of(run)
    return {} if found.best is None else found.changes(found.best)


def _commands(run: Run) -> dict[str, object] | None:
    commands = tuned_commands(run)
    return None if commands is None else _COMMANDS.value(commands, ggbench=ggbench_line(run))


def _candidates(run: Run) -> list[dict[str, object]]:
    found = result_of(run)
    return [_CANDIDATE.value(each, settings=found.changes(each)) for each in found.candidates]


_TUNE = Shape(
    "Tune",
    "A search for the settings that beat the defaults.",
    MEASURED_FILE,
    of(TuneSettings, "depths within_s kv_types n_prompt", lambda run: run.head.settings, maybe=True),
    of(TuneResult, "for=objective", result_of),
    field(
        "best",
        dict[str, object],
        "What to change of the defaults, by llama.cpp's names; empty where nothing beats them.",
        _best,
    ),
    of(TuneResult, "has_gain", result_of),
    expected(
        "ratio",
        "Speed of the finalist over the defaults', measured apart from the choice.",
        lambda run: result_of(run).ratio,
        "ci95",
    ),
    field("gain", by_name(_GAIN), "The same by depth.", lambda run: _by_depth(result_of(run).gain)),
    of(TuneResult, "finalist", result_of),
    field("candidates", many(_CANDIDATE), get=_candidates),
    of(TuneResult, "n_measured n_discarded noise unsteady?", result_of),
    field("commands", _COMMANDS | None, "Null where nothing was found.", _commands),
    ORIGIN,
)
DOCUMENTS = run_documents("tune", _TUNE)
