"""The commands that run a quant. That llama-server starts with them is for tests/real."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml  # type: ignore[import-untyped]
from msgspec.structs import replace

from ggbench.decisions.check import model as check_model
from ggbench.decisions.pick.run_commands import FORMS, RunSettings, render
from ggbench.engines.llama.command_line import parse_command
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.hub.access import HubAccess
from ggbench.models.catalog import load_catalog
from ggbench.models.targets import FileToRun
from ggbench.sizing.projectors import Projector
from tests.fakes.modelfile import parse_modelfile

HERE = FileToRun("model", "q4_k_m", (Path("/models/model-q4_k_m.gguf"),), is_here=True)
DEFAULT = LlamaConfig(n_ctx=8192)
PROJECTOR = Projector(Path("/models/mmproj.gguf"), 1 << 20)
SWAP_SCHEMA = Path(__file__).parents[1] / "data" / "llama_swap.schema.json"


def settings(file: FileToRun = HERE, setup: LlamaConfig = DEFAULT, **more: Any) -> RunSettings:  # noqa: ANN401
    return RunSettings(file, setup, **more)


def line(file: FileToRun = HERE, setup: LlamaConfig = DEFAULT, **more: Any) -> str:  # noqa: ANN401
    return render(settings(file, setup, **more), "sh")


def modelfile(file: FileToRun = HERE, setup: LlamaConfig = DEFAULT, **more: Any) -> str:  # noqa: ANN401
    return render(settings(file, setup, **more), "modelfile")


def test_a_default_load_names_the_context_and_one_slot_alone() -> None:
    """One slot, since llama-server's default of four grows the sliding-window caches beyond what was planned."""
    made = settings().commands
    assert made.llama_server == "llama-server -m /models/model-q4_k_m.gguf -c 8192 -np 1"
    assert made.pull == ""


@pytest.mark.parametrize(
    ("setup", "words"),
    [
        (LlamaConfig(type_k="q8_0", type_v="q4_0"), "-ctk q8_0 -ctv q4_0"),
        (LlamaConfig(flash_attn="off"), "-fa off"),
        (LlamaConfig(n_batch=1024, n_ubatch=256), "-b 1024 -ub 256"),
        (LlamaConfig(n_gpu_layers=12), "-ngl 12"),
        (LlamaConfig(main_gpu=1), "-mg 1 -sm none"),
        (LlamaConfig(devices=("CUDA0", "CUDA2")), "-dev CUDA0,CUDA2"),
        (LlamaConfig(split_mode="row", tensor_split=(3.0, 1.0)), "-ts 3,1 -sm row"),
        (LlamaConfig(n_cpu_moe=5), "-ncmoe 5"),
        (LlamaConfig(cpu_moe=True), "-cmoe"),
        (LlamaConfig(override_tensor=("ffn_up=CPU", "blk.1=CPU")), "-ot ffn_up=CPU,blk.1=CPU"),
        (LlamaConfig(threads=4, threads_batch=8), "-t 4 -tb 8"),
        (LlamaConfig(mmap=False), "-lm none"),
        (LlamaConfig(mlock=True), "-lm mmap+mlock"),
        (LlamaConfig(mmap=False, mlock=True), "-lm mlock"),
        (LlamaConfig(kv_offload=False), "-nkvo"),
        (LlamaConfig(swa_full=True), "--swa-full"),
    ],
)
def test_every_setting_is_named_as_llama_cpp_names_it(setup: LlamaConfig, words: str) -> None:
    assert line(setup=replace(setup, n_ctx=512)) == f"llama-server -m /models/model-q4_k_m.gguf -c 512 {words} -np 1"


@pytest.mark.parametrize(
    ("setup", "draft", "words"),
    [
        (LlamaConfig(), HERE, "-md /models/model-q4_k_m.gguf --spec-type draft-simple"),
        (LlamaConfig(n_gpu_layers=0, type_k_draft="q8_0"), FileToRun("m", "q8_0", repo="org/m"),
         "-hfd org/m:q8_0 --spec-type draft-simple -ngld 0 -ctkd q8_0"),
        (LlamaConfig(mtp=True, type_v_draft="q8_0"), None, "--spec-type draft-mtp -ctvd q8_0"),
        (LlamaConfig(mtp=True, spec_draft_n_max=2), None, "--spec-type draft-mtp --spec-draft-n-max 2"),
    ],
)  # fmt: skip
def test_what_drafts_is_named(setup: LlamaConfig, draft: FileToRun | None, words: str) -> None:
    assert line(setup=setup, draft=draft).endswith(words)


@pytest.mark.parametrize(
    ("file", "projector", "words"),
    [
        (HERE, PROJECTOR, "-m /models/model-q4_k_m.gguf --mmproj /models/mmproj.gguf"),
        (FileToRun("m", "q8_0", repo="org/m"), None, "-hf org/m:q8_0 --no-mmproj"),
        (FileToRun("m", "q8_0", repo="org/m"), Projector(None, 1), "-hf org/m:q8_0"),
        (FileToRun("m", "q8_0", repo="org/m"), Projector(None, 1, url="https://hub/mmproj.gguf"),
         "-hf org/m:q8_0 --mmproj-url https://hub/mmproj.gguf"),
        (FileToRun("m", "q8_0"), Projector(None, 1), "-m m-q8_0.gguf --mmproj mmproj-MODEL.gguf"),
    ],
)  # fmt: skip
def test_a_projector_is_loaded_only_as_planned(file: FileToRun, projector: Projector | None, words: str) -> None:
    assert line(file, LlamaConfig(), projector=projector) == f"llama-server {words} -np 1"


def test_all_layers_are_stated_for_a_gpu_and_all_shards_for_ollama() -> None:
    """llama-server's default may leave some layers in main memory; llama.cpp finds the shards from the first."""
    shards = tuple(Path(f"/m/x-0000{n}-of-00002.gguf") for n in (1, 2))
    made = settings(replace(HERE, paths=shards), backends=("CUDA",))
    assert render(made, "sh").startswith("llama-server -m /m/x-00001-of-00002.gguf -c ")
    assert "-ngl 999" in render(made, "sh")
    assert parse_modelfile(render(made, "modelfile")) | {"num_ctx": []} == {
        "model": list(map(str, shards)), "num_gpu": ["999"], "num_ctx": [],
    }  # fmt: skip
    assert "-ngl 4" in line(setup=replace(DEFAULT, n_gpu_layers=4), backends=("CUDA",))


@pytest.mark.parametrize("name", ["my model.gguf", "it's.gguf", "$(id).gguf", '"q".gguf', "-x.gguf", "é模.gguf"])
def test_hostile_names_are_one_word_in_every_form(name: str) -> None:
    path = Path("/my models") / name
    made = settings(replace(HERE, paths=(path,)))
    assert shlex.split(render(made, "sh"))[2] == str(path)
    assert parse_modelfile(render(made, "modelfile")) == {"model": [str(path)], "num_ctx": ["8192"]}
    assert f"m = {path}" in render(made, "preset").splitlines()
    assert shlex.split(yaml.safe_load(render(made, "llama-swap"))["models"]["model-q4_k_m"]["cmd"])[4] == str(path)
    docker = shlex.split(render(made, "docker"))
    assert docker[docker.index("-v") + 1] == "/my models:/my models:ro" and str(path) in docker


def test_a_file_whose_name_has_control_characters_is_a_placeholder() -> None:
    made = settings(replace(HERE, paths=(Path("/models/a\x1b[2J'\n.gguf"),)))
    assert made.commands.llama_server.startswith("llama-server -m model-q4_k_m.gguf -c")
    assert "FROM ./model-q4_k_m.gguf" in render(made, "modelfile")
    assert "replace model-q4_k_m.gguf with the path of yours" in made.notes[0]


def test_a_catalog_model_is_run_from_its_repo() -> None:
    """Without the projector that `-hf` would add; no file is named where no repo is known."""
    made = settings(FileToRun("qwen1.5-7b", "q4_k_m", repo="Qwen/Q-GGUF"))
    assert made.commands.pull == "ggbench pull qwen1.5-7b q4_k_m"
    assert made.commands.llama_server == "llama-server -hf Qwen/Q-GGUF:q4_k_m --no-mmproj -c 8192 -np 1"
    ollama = render(made, "modelfile")
    assert parse_modelfile(ollama)["model"] == ["hf.co/Qwen/Q-GGUF:q4_k_m"]
    assert ollama.startswith("# ollama create qwen1.5-7b-q4_k_m -f Modelfile; ollama run qwen1.5-7b-q4_k_m\n")
    unknown = settings(FileToRun("mine", "q4_0")).commands
    assert unknown.pull == ""
    assert unknown.llama_server.startswith("llama-server -m mine-q4_0.gguf ")
    assert any("replace mine-q4_0.gguf" in note for note in unknown.notes)
    lacking = settings(FileToRun("qwen1.5-7b", "q5_1", lacking_repo="Qwen/Q-GGUF"))
    assert lacking.notes[0].startswith("q5_1 is not known to be published in Qwen/Q-GGUF: replace qwen1.5-7b-q5_1.gguf")


def test_what_is_still_to_be_downloaded_is_downloaded_by_what_runs_it() -> None:
    """A file whose place is known is no file yet; where a quant has several files, the file is named."""
    file = replace(HERE, repo="org/m", is_here=False)
    assert line(file) == "llama-server -hf org/m:q4_k_m --no-mmproj -c 8192 -np 1"
    assert parse_modelfile(modelfile(file))["model"] == ["hf.co/org/m:q4_k_m"]
    assert "-hf org/m -hff sub/m-Q4_K_M.gguf " in line(replace(file, quant="sub/m-Q4_K_M.gguf"))
    assert "-m /models/model-q4_k_m.gguf" in line(replace(file, is_here=True))


def test_ollama_takes_kv_type_and_flash_attention_from_its_servers_environment() -> None:
    """A quantized V cache needs flash attention, as in llama.cpp."""
    made = modelfile(setup=replace(DEFAULT, type_k="q8_0", type_v="q8_0", threads=4, n_ubatch=256))
    server = "# restart Ollama's server, for all its models: "
    assert made.startswith(f"{server}OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE=q8_0 ollama serve\n")
    assert parse_modelfile(made) == {
        "model": ["/models/model-q4_k_m.gguf"], "num_ctx": ["8192"], "num_batch": ["256"], "num_thread": ["4"],
    }  # fmt: skip
    off = modelfile(setup=replace(DEFAULT, flash_attn="off"))
    assert off.startswith(f"{server}OLLAMA_FLASH_ATTENTION=0 ollama serve")
    four = modelfile(setup=replace(DEFAULT, n_seq_max=4))
    assert "OLLAMA_NUM_PARALLEL=4" in four and parse_modelfile(four)["num_ctx"] == ["2048"]


@pytest.mark.parametrize(
    ("form", "made", "obstacle"),
    [
        ("modelfile", settings(setup=LlamaConfig(type_k="q8_0")), "a KV cache of K q8_0 and V f16"),
        ("modelfile", settings(setup=LlamaConfig(type_k="q5_1", type_v="q5_1")), "a KV cache of K q5_1 and V q5_1"),
        ("modelfile", settings(setup=LlamaConfig(n_cpu_moe=2)), "experts or single tensors in main memory"),
        ("modelfile", settings(setup=LlamaConfig(devices=("CUDA0",))), "a choice among GPUs"),
        ("modelfile", settings(setup=LlamaConfig(rpc_servers=("a:1",))), "devices of other machines"),
        ("modelfile", settings(projector=PROJECTOR), "a separate projector file"),
        ("modelfile", settings(draft=HERE), "a draft"),
        ("modelfile", settings(setup=LlamaConfig(mtp=True)), "a draft"),
        ("modelfile", settings(setup=LlamaConfig(n_seq_max=4, kv_unified=True)), "a KV cache that slots share"),
        ("docker", settings(backends=("MTL",)), "GPUs of MTL"),
        ("docker", settings(replace(HERE, paths=(Path("/a.gguf"),))), "a file in the root folder"),
        (
            "docker",
            settings(setup=LlamaConfig(rpc_servers=("127.0.0.1:50052",))),
            "an RPC server of this machine, which a container does not reach",
        ),
        ("docker", settings(backends=("CUDA", "ROCm")), "GPUs of different makers"),
        ("docker", settings(FileToRun("mine", "q4_0")), "a file whose place is unknown"),
        ("docker", settings(replace(HERE, paths=(Path("/a:b/m.gguf"),))), "a folder with a colon in its name"),
        ("preset", settings(replace(HERE, paths=(Path("/m/a;b.gguf"),))), "a name with ; or #"),
        ("preset", settings(replace(HERE, paths=(Path("/m/a #1.gguf"),))), "a name with ; or #"),
        ("llama-swap", settings(replace(HERE, paths=(Path("/m/${HOME}.gguf"),))), "a name with ${"),
    ],
)
def test_what_a_form_cannot_hold_is_one_line(form: str, made: RunSettings, obstacle: str) -> None:
    with pytest.raises(UsageError) as raised:
        render(made, form)
    assert raised.value.message == f"{form} has no setting for {obstacle}"
    assert render(made, "sh")


@pytest.mark.parametrize(
    ("backends", "words"),
    [
        ((), "{}"),
        (("CUDA", "CUDA"), "--gpus all {}-cuda"),
        (("ROCm",), "--device /dev/kfd --device /dev/dri {}-rocm"),
        (("Vulkan",), "--device /dev/dri {}-vulkan"),
        (("SYCL",), "--device /dev/dri {}-intel"),
        (("RPC", "CUDA"), "--gpus all {}-cuda"),
    ],
)
def test_docker_runs_the_image_of_the_gpus(backends: tuple[str, ...], words: str) -> None:
    """Source: docs/docker.md and docs/build.md of llama.cpp; downloads are kept."""
    image = "-v llama.cpp:/root/.cache -p 127.0.0.1:8080:8080 ghcr.io/ggml-org/llama.cpp:server"
    ngl = "-ngl 999 " if backends else ""
    docker = render(settings(FileToRun("m", "q8_0", repo="org/m"), backends=backends), "docker")
    assert docker == f"docker run --rm {words.format(image)} -hf org/m:q8_0 --no-mmproj -c 8192 {ngl}-np 1"


def test_docker_mounts_what_a_file_links_to(tmp_path: Path) -> None:
    """The Hub's cache has links; what is locked in memory may exceed the limit of a container."""
    blobs, snapshots = tmp_path / "blobs", tmp_path / "snapshots"
    for folder in (blobs, snapshots):
        folder.mkdir()
    (blobs / "abc").touch()
    path = snapshots / "m.gguf"
    path.symlink_to("../blobs/abc")
    docker = render(settings(replace(HERE, paths=(path,)), replace(DEFAULT, mlock=True)), "docker")
    assert f"--ulimit memlock=-1 -v {snapshots}:{snapshots}:ro -v {blobs}:{blobs}:ro " in docker


_INI = re.compile(r"(?P<key>[a-zA-Z_][a-zA-Z0-9_.-]*)[ \t]*=[ \t]*(?P<value>[^;#\n]*?)[ \t]*")
"""A line of llama.cpp's INI files, by common/preset.cpp."""


def read_preset(text: str) -> list[str]:
    """Return the arguments that llama-server's router gives a model's process, with short names and no order."""
    header, *lines = text.splitlines()
    assert re.fullmatch(r"\[[^]]+\]", header)
    words = []
    for line in lines:
        match = _INI.fullmatch(line)
        assert match, line
        words += [match["key"], *([] if match["value"] == "true" else [match["value"]])]
    return words


@pytest.mark.parametrize(
    ("file", "setup"),
    [
        (HERE, DEFAULT),
        (FileToRun("m", "q8_0", repo="org/m"), replace(DEFAULT, type_k="q8_0", mmap=False, swa_full=True, n_cpu_moe=3)),
        (replace(HERE, paths=(Path("/models/it's $HOME.gguf"),)), replace(DEFAULT, tensor_split=(3.0, 1.0))),
    ],
)
def test_a_preset_and_a_configuration_of_llama_swap_have_the_servers_arguments(
    file: FileToRun, setup: LlamaConfig
) -> None:
    made = settings(file, setup, backends=("CUDA",))
    _, *words = shlex.split(render(made, "sh"))
    assert read_preset(render(made, "preset")) == [word.lstrip("-") for word in words]
    swap = yaml.safe_load(render(made, "llama-swap"))
    jsonschema.validate(swap, json.loads(SWAP_SCHEMA.read_bytes()))
    (model,) = swap["models"].values()
    assert shlex.split(model["cmd"]) == ["llama-server", "--port", "${PORT}", *words]


def test_every_form_is_offered_by_the_command() -> None:
    from ggbench.cli.pick import command

    assert [each.type.choices for each in command.params if each.name == "form"] == [tuple(FORMS)]  # type: ignore[attr-defined]


def test_check_takes_the_line_of_every_model_of_the_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the same model and quant, whatever the repo is called; also where no repo is known."""
    catalog, hub = load_catalog(), HubAccess(True, "", Path(), Path(), Path())
    monkeypatch.setattr(check_model, "load_catalog", lambda: catalog)
    monkeypatch.setattr(check_model, "resolve_headers", lambda ref, **_: (ref,))
    for model in catalog:
        quant = model.quants[0] if model.quants else "q3_k_m"
        line = settings(FileToRun(model.id, quant, repo=model.repo or "")).commands.llama_server
        ref, _, _ = check_model.find_target(parse_command(line), (), hub, None)
        assert (catalog.named(ref.name), ref.quants) == (model, (quant,)), line
