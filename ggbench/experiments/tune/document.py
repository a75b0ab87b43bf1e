"""What a search for settings says, for every output: its JSON, its texts, and the commands that use what it found."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from ggbench.decisions.pick.run_commands import RunCommands, commands_lines, modelfile_lines, run_commands
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.tune.record import Gain, TunedCandidate, TuneResult, TuneSettings, result_of
from ggbench.models.command_line import setup_options
from ggbench.models.targets import FileToRun
from ggbench.runs.run import Run
from ggbench.show.documents import origin_document, picked
from ggbench.show.names import model_name
from ggbench.stats.intervals import Expected


def tune_document(run: Run) -> dict[str, object]:
    """Return the run for JSON: every key is always there, null for unknown."""
    subject, found = run.subject, result_of(run)
    settings = run.head.settings
    best = found.best
    commands = tuned_commands(run)
    return {
        **picked(subject, "model quant file"),
        "provenance": subject.source,
        **picked(subject, "file_bytes n_params bpw weight_bytes kv_bytes_per_token"),
        **picked(settings if isinstance(settings, TuneSettings) else None, "depths within_s kv_types n_prompt"),
        "for": found.objective,
        "best": {} if best is None else found.changes(best),
        "has_gain": found.has_gain,
        "ratio": found.ratio and found.ratio.value,
        "ci95": _ends(found.ratio),
        "gain": _gain_document(found.gain),
        "finalist": found.finalist,
        "candidates": [_candidate_document(found, each) for each in found.candidates],
        **picked(found, "n_measured n_discarded noise"),
        "unsteady": found.unsteady or None,
        "commands": commands
        and {
            "ggbench": ggbench_line(run),
            "llama_server": commands.llama_server,
            "llama_cli": commands.llama_cli,
            "ollama": "\n".join(modelfile_lines(commands)) or None,
        },
        **origin_document(run),
    }


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
    options = [] if setup is None else setup_options(setup)
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


def _candidate_document(found: TuneResult, candidate: TunedCandidate) -> dict[str, object]:
    loss = candidate.kv_loss
    return {
        **picked(candidate, "number state"),
        "settings": found.changes(candidate),
        "reason": candidate.reason or None,
        "n_timed": candidate.n_timed,
        "ratio": candidate.ratio and candidate.ratio.value,
        "ci95": _ends(candidate.ratio),
        "at": _gain_document(candidate.at),
        "kld": loss and loss.nats.value,
        "kld_ci95": loss and _ends(loss.nats),
    }


def _gain_document(gains: Sequence[Gain]) -> Mapping[str, object]:
    """By depth: the ratio of what was asked for, of a decode where both were, and each with its interval."""
    return {
        str(each.n_depth): {
            "ratio": (main := each.decode or each.prefill) and main.value,
            "ci95": _ends(main),
            "prefill_ratio": each.prefill and each.prefill.value,
            "prefill_ci95": _ends(each.prefill),
            **picked(each, "step_ms batch_ms"),
        }
        for each in gains
    }


def _ends(ratio: Expected | None) -> tuple[float, float] | None:
    return None if ratio is None else (ratio.low, ratio.high)
