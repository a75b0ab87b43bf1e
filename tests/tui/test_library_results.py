"""Which stored runs the Library takes for its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ggbench.engines.llama.config import LlamaConfig
from ggbench.runs.imported import Imported
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_run
from ggbench.tui.library_results import LatestResults
from tests.fakes import measured

IMPORTED = Imported(tool="ggbench 0.1.0", file="x.zip", file_sha256="1", content_sha256="2")


def test_an_imported_decode_is_not_this_machine_s(tmp_path: Path) -> None:
    head = measured.start()
    with Store.open(tmp_path / "results.sqlite") as store:
        run = read_run(store, store.load_run(measured.put_run(store, head)))
    environment = replace(measured.ENVIRONMENT, imported=IMPORTED)
    elsewhere = replace(run, head=replace(run.head, environment=environment))

    asked = (head.subject.model, head.subject.quant, head.subject.file, LlamaConfig())
    assert LatestResults.of([run]).decode(*asked) is not None
    assert LatestResults.of([elsewhere]).decode(*asked) is None
