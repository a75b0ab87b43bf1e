"""What tells runs of one command apart."""

from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama_server.config import LlamaServerConfig
from ggbench.models.subject import Subject
from ggbench.show.names import distinct_by_engine, model_names, models_title


def test_runs_are_named_by_their_engine_if_there_are_several() -> None:
    own, server, other = LlamaConfig(), LlamaServerConfig(command="/a/llama-server"), LlamaServerConfig(command="/b/s")
    assert distinct_by_engine(["m q8_0"] * 2, [own, own]) == ("m q8_0", "m q8_0")
    assert distinct_by_engine(["m q8_0"] * 3, [own, server, other]) == (
        "m q8_0, llama",
        "m q8_0, llama-server=/a/llama-server",
        "m q8_0, llama-server=/b/s",
    )


def test_files_of_a_folder_are_named_by_their_models_however_the_folder_is_written() -> None:
    for folder in ("models", "./models", "/home/u/models", "~/models"):
        subjects = [
            Subject(model=folder, quant=quant, source="file", file=f"/home/u/models/{name}-{quant.upper()}.gguf")
            for name, quant in (("SmolLM2", "q4_1"), ("gemma-3-270m", "q4_k_m"), ("SmolLM2", "q4_k_m"))
        ]
        assert model_names(subjects) == ("SmolLM2", "gemma-3-270m", "SmolLM2")
        assert models_title(subjects) == "SmolLM2, gemma-3-270m"
    downloaded = Subject(model="models", quant="q4_1", source="hub", file="/cache/models/x-Q4_1.gguf")
    assert model_names([downloaded]) == ("models",)
