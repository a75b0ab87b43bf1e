"""Pasted llama-server commands: which options they have, whatever they stand in, and damaged ones end in an error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggbench.engines.llama.command_line import in_own_words, parse_command, server_options
from ggbench.errors import UsageError

LINE = "llama-server -m a.gguf -c 8192 -fa on -ngl 99"
OPTIONS = {"--model": "a.gguf", "--ctx-size": "8192", "--flash-attn": "on", "--n-gpu-layers": "99"}


def options_of(text: str) -> dict[str, str]:
    return {each.option.name: each.value for each in parse_command(text).given}


def test_an_option_has_its_spellings_values_and_what_replaces_it() -> None:
    options = server_options()
    assert options["-ctk"] is options["--cache-type-k"] and options["-ctk"].env == "LLAMA_ARG_CACHE_TYPE_K"
    assert options["--no-kv-offload"].off == ("-nkvo", "--no-kv-offload")
    assert options["--jinja"].n_values == 0 and options["--control-vector-layer-range"].n_values == 2
    assert "--spec-draft-n-max" in options["--draft-max"].gone and options["--no-mmap"].gone == "use -lm none"


@pytest.mark.parametrize(
    "text",
    [
        LINE, f"sudo nice -n 5 /opt/llama.cpp/build/bin/{LINE}",
         "llama serve -m a.gguf -c 8192 -fa on -ngl 99",
        "llama-server \\\n  -m a.gguf \\\n  -c 8192 -fa on \\\n  -ngl 99\n", f"cd /opt && {LINE} 2>&1 | tee log.txt &",
        "# how I start it\nllama-server ^\n -m a.gguf ^\n -c 8192 -fa on -ngl 99",
        "LLAMA_ARG_CTX_SIZE=8192 LLAMA_ARG_FLASH_ATTN=on llama-server -m a.gguf -ngl 99",
        "docker run -d --rm --gpus all -v /srv/models:/models -p 8080:8080 -e LLAMA_ARG_N_GPU_LAYERS=99"
        " ghcr.io/ggml-org/llama.cpp:server-cuda -m a.gguf -c 8192 -fa on",
        "docker run -it --env LLAMA_ARG_MODEL=a.gguf llama.cpp:full-cuda --server -c 8192 -fa on -ngl 99",
        "llama-server —model “a.gguf” –c 8192 –fa on -ngl 99",
         "llama-server --model a.gguf --ctx_size 8192 -fa on -ngl 99",
    ],
)  # fmt: skip
def test_a_command_is_found_where_people_write_it(text: str) -> None:
    assert options_of(text) == OPTIONS


def test_a_windows_path_keeps_its_backslashes() -> None:
    line = parse_command(r'.\llama-server.exe -m "C:\my models\a-Q4_K_M.gguf" -c 8192')
    assert (line.model, line.value("--ctx-size")) == (r"C:\my models\a-Q4_K_M.gguf", "8192")


@pytest.mark.parametrize(
    ("words", "own"),
    [
        ("-fa 1 --ctx-size 8192", "-fa on -c 8192"), ("-fa --cache-type-k q8_0", "-fa on -ctk q8_0"),
        ("--no-kv-offload --kv-offload", "-nkvo"), ("--gpu-layers all", "-ngl -1"),
        ("-hf org/name:q8_0", "org/name:q8_0"),
        ("--spec-type draft-mtp", "--mtp"), ("-lm none", "--no-mmap"), ("-lm mlock", "--no-mmap --mlock"),
        ("-np -1", ""),
        ("--spec-draft-hf org/small:q8_0", "-md org/small:q8_0"), ("-t -1 --threads-batch 4", "-tb 4"),
        ("-dev none", "-ngl 0"),
        ("--draft 3 -- --jinja", "--draft 3 -- --jinja"),
    ],
)  # fmt: skip
def test_options_become_those_of_a_command(words: str, own: str) -> None:
    flags = "-fa -c -ctk -nkvo -ngl --mtp --no-mmap --mlock -np -md -t -tb -dev --draft"
    assert in_own_words(words.split(), {*flags.split()}) == (own.split(), [])


def test_what_has_no_effect_is_named() -> None:
    words = ["model", "--jinja", "-c", "8k", "--host", "0.0.0.0", "--temp", "0.7"]
    assert in_own_words(words, {"-c"}) == (["model", "-c", "8k"], ["--jinja", "--host", "--temp"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"), (" \n\t", "empty"), ("ollama run qwen3", "no llama-server command"),
        ("ls -l", "no llama-server"),
        ("llama-server --frobnicate 3", "no option of llama-server"), ("llama-server -m 'a.gguf", "unbalanced quotes"),
        ("llama-server -m", "lacks its value"), ("llama-server a.gguf", "belongs to no option"),
        ("llama-server -m a\x1b[31m.gguf", "control characters"),
        ("llama-server " + "-m a " * 20_000, "more than 20,000 characters"),
        ("docker run", "no llama-server command"), ("docker run -v", "no llama-server command"),
        ("|&;", "no llama-server"),
    ],
)  # fmt: skip
def test_what_is_no_command_is_refused_in_a_line(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        parse_command(text)
    assert refused.value.message.isprintable() and len(refused.value.message) < 200


_PARTS = st.sampled_from(
    [*LINE.split(), "docker", "run", "-e", "LLAMA_ARG_CTX_SIZE=1", "llama", "serve", "'", '"', "\\", "\n",
         "|", ">",
     "2", "=",     "—c", "--draft", "-hf", ":", "a=b", "&&", "#", "\x00", "\u202e", "-", "--", "^\n", "C:\\",
         "--ctx-size=", "-ot", ".*=CPU"]
)  # fmt: skip


@given(st.lists(_PARTS | st.text(max_size=8), max_size=14), st.sampled_from([" ", ""]))
def test_a_damaged_command_is_parsed_or_refused(parts: list[str], joint: str) -> None:
    """Nothing but UsageError, whatever is cut off, doubled or moved."""
    try:
        line = parse_command(joint.join(parts))
    except UsageError as error:
        assert "\n" not in error.message
    else:
        line.words({"-c", "-ngl", "-fa"})


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("LLAMA_ARG_NO_KV_OFFLOAD=1 llama-server -m a.gguf", ["-nkvo", "-m"]),
        ("LLAMA_ARG_KV_OFFLOAD=0 llama-server -m a.gguf", ["-nkvo", "-m"]),
        ("LLAMA_API_KEY=s HF_TOKEN=t llama-server -m a.gguf", ["-m"]),
        ('llama-server --chat-template "<|user|>" -c 4096', ["--chat-template", "-c"]),
        ("llama-server --chat-template ';' -c 4096", ["--chat-template", "-c"]),
        (r"llama-server --alias 'a > b' -hf a\;b -c 4096 # as 'before'", ["--alias", "-hf", "-c"]),
        ("export LLAMA_ARG_NO_KV_OFFLOAD=1; llama-server -m a.gguf", ["-nkvo", "-m"]),
        ("llama-server -c 4096; echo done", ["-c"]),
        ("llama-server -np 2 2>&1 | tee log", ["-np"]),
    ],
)
def test_a_shell_is_read_as_a_shell_does(text: str, flags: list[str]) -> None:
    assert [each.flag for each in parse_command(text).given] == flags
