"""Show the findings of `ggbench doctor` with advice, then the facts, as Markdown to paste into a bug report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from msgspec.structs import replace

from ggbench.decisions.doctor.checkup import AMX, AMX_INSTRUCTION, Checkup, Finding, dotted, missing_instructions
from ggbench.engines.llama.build import LlamaBuild
from ggbench.hub.access import HubLogin
from ggbench.machine.condition import CpuState, DataFolder, GpuDriver, GpuState, MemoryState
from ggbench.machine.readings import program_name
from ggbench.runs.store.health import StoreHealth
from ggbench.show.anonymous import Paths
from ggbench.show.document import Document, Field, Get, Shape, field, many, of
from ggbench.text import sanitize
from ggbench.units import counted, format_bandwidth, format_bytes, format_number, format_percent


def checkup_text(checkup: Checkup, found: Sequence[Finding], paths: Paths) -> str:
    lines = [f"ggbench doctor: {_verdict(found)}", ""]
    for number, finding in enumerate(found, 1):
        lines += [f"{number}. {finding.severity}: {sanitize(finding.message)}", f"   - do: {sanitize(finding.hint)}"]
    lines += [""] if found else []
    lines += [f"- {name}: {sanitize(text)}" for name, text in _facts(checkup, paths)]
    return "\n".join(lines)


def shown_checkup(checkup: Checkup, paths: Paths) -> Checkup:
    """Return the checkup as JSON; unless `paths.whole`, without full paths and serial numbers."""
    driver, hub = checkup.driver, checkup.hub
    if not paths.whole:
        driver = replace(driver, gpus=tuple(map(_without_serials, driver.gpus)))
    return replace(
        checkup,
        driver=driver,
        llama=replace(checkup.llama, problem=paths.without(checkup.llama.problem)),
        places=tuple(replace(each, path=paths.shown(each.path)) for each in checkup.places),
        store=replace(
            checkup.store, path=paths.shown(checkup.store.path), problem=paths.without(checkup.store.problem)
        ),
        hub=replace(
            hub,
            token_from=None if hub.token_from is None else paths.shown(hub.token_from),
            endpoint=hub.endpoint if paths.whole or hub.endpoint is None else "another",
        ),
    )


def _version(name: str, at: Get = lambda root: root) -> tuple[Field, ...]:
    return field(name, str | None, "E.g. `12.4`; null if unknown.", lambda root: _known(getattr(at(root), name)))


def _known(version: tuple[int, int] | None) -> str | None:
    return None if version is None else dotted(version)


_LLAMA = Shape(
    "LlamaCpp",
    "The llama.cpp that ggbench uses.",
    of(
        LlamaBuild,
        "is_installed problem llama_cpp_python llama_cpp commit build_flags backends devices",
        lambda checkup: checkup.llama,
    ),
    field(
        "features",
        dict[str, dict[str, str]],
        "Features each backend was compiled with, by llama.cpp's names.",
        lambda checkup: checkup.llama.features,
    ),
    field(
        "missing_instructions",
        list[str],
        "Instruction sets of this CPU that the build does not use.",
        lambda checkup: missing_instructions(checkup.llama, checkup.cpu),
    ),
    _version("cuda_version", lambda checkup: checkup.llama),
)
_GPU = Shape("DriverGpu", "", of(GpuState, "gpu processes throttle"), _version("compute_capability"))
_DRIVER = Shape(
    "Driver",
    "NVIDIA's driver.",
    of(GpuDriver, "version problem n_visible"),
    _version("cuda_version"),
    field("gpus", many(_GPU)),
)
DOCTOR = Document(
    "doctor",
    "doctor",
    "This machine as ggbench sees it, with advice.",
    field("findings", list[Finding], "Advised changes, problems first."),
    of(Checkup, "ggbench python os"),
    field("llama_cpp", _LLAMA, get=lambda checkup: checkup),
    of(Checkup, "cpu memory"),
    field("gpu_driver", _DRIVER, get=lambda checkup: checkup.driver),
    of(Checkup, "places store hub calibration"),
)


def _without_serials(state: GpuState) -> GpuState:
    processes = state.processes and tuple(replace(each, name=program_name(each.name)) for each in state.processes)
    return replace(state, gpu=replace(state.gpu, uuid=None, pci_bus_id=None), processes=processes)


def _verdict(found: Sequence[Finding]) -> str:
    n_problems = sum(each.severity == "problem" for each in found)
    n_advice = len(found) - n_problems
    parts = [counted(n_problems, "problem")] if n_problems else []
    parts += [f"{counted(n_advice, 'piece')} of advice"] if n_advice else []
    return " and ".join(parts) or "nothing to do"


def _facts(checkup: Checkup, paths: Paths) -> Iterator[tuple[str, str]]:
    yield "ggbench", f"{checkup.ggbench}, Python {checkup.python}, {checkup.os}"
    yield "llama.cpp", _llama(checkup.llama, checkup.cpu, paths)
    yield "CPU", _cpu(checkup.cpu)
    yield "memory", _memory(checkup.memory)
    driver = checkup.driver
    if driver.gpus:
        runs = f", runs CUDA {dotted(driver.cuda_version)}" if driver.cuda_version else ""
        hidden = len(driver.gpus) - driver.n_visible
        yield "NVIDIA driver", f"{driver.version or 'unknown'}{runs}{f', {hidden} hidden' if hidden else ''}"
        for each in driver.gpus:
            yield f"GPU {each.gpu.index}", _gpu(each, paths)
    others = [device for device in checkup.llama.devices if device.is_gpu and device.backend != "CUDA"]
    for device in others:
        free = f"{format_bytes(device.free_bytes)} of {format_bytes(device.total_bytes)} free"
        yield f"GPU {device.name}", f"{device.description}, {free}"
    if driver.problem or not (driver.gpus or others):
        yield "GPU", driver.problem or "none that llama.cpp or NVIDIA's driver lists"
    for place in checkup.places:
        if not place.is_disposable:
            yield place.name, _place(place, checkup.places, paths)
    yield "results file", _store(checkup.store, paths)
    yield "Hub", _hub(checkup.hub, paths)
    rate, shares = checkup.calibration.bandwidth, checkup.calibration.shares
    if rate is None:
        yield "calibration", "the memory bandwidth is measured by the first run"
    else:
        known = shares or "fewer than two models have run here"
        yield "calibration", f"{format_bandwidth(rate.bytes_per_s)}, {rate.source}; {known}"


def _llama(llama: LlamaBuild, cpu: CpuState, paths: Paths) -> str:
    if llama.problem:
        return paths.without(llama.problem)
    of_cpu = llama.features_of("CPU")
    parts = [
        f"{llama.llama_cpp}{f' ({llama.commit})' if llama.commit else ''}, llama-cpp-python {llama.llama_cpp_python}",
        f"backends {', '.join(llama.backends)}",
        *([f"built with {llama.build_flags}"] if llama.build_flags else []),
        *([f"CUDA {dotted(llama.cuda_version)}"] if llama.cuda_version else []),
        *([f"compiled for CUDA {archs}"] if (archs := llama.features_of("CUDA").get("ARCHS")) else []),
        f"devices {', '.join(f'{each.name} ({each.description})' for each in llama.devices)}",
        f"instructions {' '.join(of_cpu) or 'unknown'}",
    ]
    missing = missing_instructions(llama, cpu)
    if missing:
        parts.append(f"not compiled in {' '.join(missing)}")
    if AMX_INSTRUCTION in cpu.instructions and of_cpu and AMX not in of_cpu:
        parts.append(f"{AMX} left out on purpose")
    return "; ".join(parts)


def _cpu(cpu: CpuState) -> str:
    quota = f", quota {format_number(cpu.quota_cpus)}" if cpu.quota_cpus is not None else ""
    busy = f", {format_percent(cpu.busy_share)} busy" if cpu.busy_share is not None else ""
    scaling = ", ".join(filter(None, (*cpu.governors, cpu.scaling_driver, cpu.energy_preference)))
    power = {None: "", True: ", on battery", False: ", on mains power"}[cpu.is_on_battery]
    cores = f"{counted(cpu.n_cores, 'core')} of {counted(cpu.n_cpus, 'logical CPU')}{quota}{busy}"
    return f"{cpu.name}, {cores}, governor {scaling or 'unknown'}{power}"


def _memory(memory: MemoryState) -> str:
    limits = {
        "container": memory.container_limit_bytes,
        "address space": memory.address_space_limit_bytes,
        "locked": memory.locked_limit_bytes,
    }
    swap = f"{format_bytes(memory.swap_used_bytes)} of {format_bytes(memory.swap_total_bytes)} swap in use"
    return "; ".join(
        [
            f"{format_bytes(memory.available_bytes)} of {format_bytes(memory.total_bytes)} available",
            *(f"{name} limit {format_bytes(limit)}" for name, limit in limits.items() if limit is not None),
            swap if memory.swap_total_bytes else "no swap",
            f"huge pages {memory.huge_pages or 'unknown'}",
            *([] if memory.overcommit is None else [f"overcommit {memory.overcommit}"]),
        ]
    )


def _gpu(state: GpuState, paths: Paths) -> str:
    gpu = state.gpu
    serials = [gpu.uuid, gpu.pci_bus_id] if paths.whole else []
    capability = f"compute capability {dotted(state.compute_capability)}" if state.compute_capability else None
    processes = None if state.processes is None else counted(len(state.processes), "program")
    throttle = f"clocks throttled by {', '.join(state.throttle)}" if state.throttle else None
    free = f"{format_bytes(gpu.free_bytes)} of {format_bytes(gpu.total_bytes)} free"
    return ", ".join(filter(None, (gpu.name, capability, free, processes, throttle, *serials)))


def _place(place: DataFolder, places: Sequence[DataFolder], paths: Paths) -> str:
    used = f"{format_bytes(place.used_bytes)} in " if place.used_bytes is not None else ""
    disk = f"{place.file_system}, " if place.file_system else ""
    inside = [
        f"{each.name} {format_bytes(each.used_bytes)}"
        for each in places
        if each.used_bytes and each is not place and PurePath(each.path).is_relative_to(place.path)
    ]
    whole = f"{used}{paths.shown(place.path)} ({disk}{format_bytes(place.free_bytes)} free)"
    return f"{whole}: {', '.join(inside)}" if inside else whole


def _store(store: StoreHealth, paths: Paths) -> str:
    if store.problem:
        return paths.without(store.problem)
    if store.file_bytes is None:
        return "none yet"
    running = f", {store.n_running} running" if store.n_running else ""
    runs = "" if store.n_runs is None else f", {counted(store.n_runs, 'run')}{running}"
    state = "no damage found in the part that was checked" if store.is_partly_checked else "sound"
    return f"{state}, version {store.version}{runs}, {format_bytes(store.file_bytes)}"


def _hub(hub: HubLogin, paths: Paths) -> str:
    source = hub.token_from
    login = "not logged in"
    if source is not None:
        login = f"a token from {paths.shown(source) if '/' in source else source}"
    endpoint = hub.endpoint if paths.whole or hub.endpoint is None else "an endpoint other than Hugging Face's"
    return ", ".join(filter(None, (login, "offline" if hub.is_offline else None, endpoint, hub.problem)))
