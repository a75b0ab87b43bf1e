"""What a token of a model does in each memory, and the speed that a machine's profile gives it."""

from __future__ import annotations

from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.gguf_file.model_file import ModelFile, active_bytes, layer_of
from ggbench.machine.profile import MachineProfile
from ggbench.sizing.placement import Placement
from ggbench.sizing.theory.offload import HOST
from ggbench.stats.intervals import Expected
from ggbench.stats.profile_speed import AttentionWork, Rates, Work, batch_ms, cache_key, prompt_ms
from ggbench.stats.speed_estimate import POSITIONS, SpeedEstimate

_PROMPTS = (512, 2048, 8192)
_NOTHING = Work(0, 0, 0, {}, {}, {}, ())


def works_by_place(file: ModelFile, placement: Placement, setup: LlamaConfig) -> dict[int, Work]:
    """Return the work of one token at each place; empty if a layer's state or a tensor's type is unknown."""
    layers = range(file.n_layer - file.n_layer_nextn)
    is_plain = not any(file.states[n].recurrent_elements or not file.states[n].v_width for n in layers)
    if file.no_kv_reason or file.unknown_types or not is_plain:
        return {}
    dense: dict[int, dict[str, float]] = {}
    routed: dict[int, dict[str, float]] = {}
    output: dict[int, dict[str, float]] = {}
    expert_layers: dict[int, set[int]] = {}
    n_matrices: dict[int, int] = {}
    for tensor, place in zip(file.tensors, placement.read_places, strict=True):
        layer = layer_of(tensor.name)
        kinds = dense if layer is not None else output
        if "_exps." in tensor.name and layer in layers:
            kinds = routed
            expert_layers.setdefault(place, set()).add(layer)  # type: ignore[arg-type]
        found, name, n_bytes = kinds.setdefault(place, {}), tensor.type_name.lower(), active_bytes(tensor, file)
        found[name] = found.get(name, 0.0) + n_bytes
        n_matrices[place] = n_matrices.get(place, 0) + (len(tensor.shape) > 1 and n_bytes > 0)
    attention: dict[int, dict[tuple[float, int | None], AttentionWork]] = {}
    for layer in layers:
        place, state = placement.cache_places[layer], file.states[layer]
        source = state if state.reads_layer is None else file.states[state.reads_layer]
        head_dim = (source.head_dim_k + source.head_dim_v) / 2
        alike, key = attention.setdefault(place, {}), (head_dim, source.window)
        before = alike.get(key, AttentionWork(head_dim, 0, 0, source.window))
        alike[key] = replace(
            before,
            n_head=before.n_head + file.n_head[layer],
            n_bytes=before.n_bytes + source.kv_bytes_per_token(setup.type_k, setup.type_v),
        )
    works = {
        place: Work(
            n_layer=placement.layers[:-1].count(place),
            n_expert_layer=len(expert_layers.get(place, ())),
            n_matrix=n_matrices.get(place, 0),
            dense_bytes={name: n_bytes for name, n_bytes in dense.get(place, {}).items() if n_bytes},
            expert_bytes=routed.get(place, {}),
            output_bytes={name: n_bytes for name, n_bytes in output.get(place, {}).items() if n_bytes},
            attention=tuple(attention.get(place, {}).values()),
        )
        for place in {*dense, *routed, *output, *attention}
    }
    return {place: work for place, work in works.items() if work != _NOTHING}


def profiled_speed(
    profile: MachineProfile, file: ModelFile, placement: Placement, setup: LlamaConfig
) -> SpeedEstimate | None:
    """Return the speed of a file by a profile of the planned machine.

    None if the profile does not have what the setup needs: its threads, its kind of KV cache, or one of its devices.
    """
    works = works_by_place(file, placement, setup)
    if not works or (HOST in works and setup.threads not in (None, profile.threads)):
        return None
    rates = {place: profile.rates_of(None if place == HOST else placement.devices[place].name) for place in works}
    if not all(rates.values()):
        return None
    cache = cache_key(setup.type_k, setup.type_v, flash_attn=setup.flash_attn != "off")

    def parts(n_batch: int) -> list[tuple[Rates, Work]]:
        return [(rates[place][n_batch], work) for place, work in works.items()]

    windows = {each.window for work in works.values() for each in work.attention} - {None}
    steps: list[tuple[int, Expected]] = []
    for n in sorted({*POSITIONS, *windows}):  # type: ignore[type-var]
        found = batch_ms(parts(1), n, cache)  # type: ignore[arg-type]
        if found is None:
            return None
        steps.append((n, found))  # type: ignore[arg-type]
    common = set.intersection(*(set(each) for each in rates.values()))
    n_batch = max(common)
    prompts = [(n, prompt_ms(parts(n_batch), n, n_batch, cache)) for n in _PROMPTS] if n_batch > 1 else []
    names = ", ".join(dict.fromkeys(each.name for each in (*profile.devices, profile.host) if each.rates))
    return SpeedEstimate(
        "profile",
        f"a profile of {names}, {profile.taken}",
        tuple(steps),
        tuple((n, found) for n, found in prompts if found is not None),
    )
