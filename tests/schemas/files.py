"""The files that the package ships, made from the shapes of all documents."""

import json
from pathlib import Path

import ggbench

FOLDER = Path(ggbench.__file__).parent / "schemas"


def schema_files() -> dict[str, str]:
    """Return the text of every file by its name."""
    from tests.schemas import compared, machine, measured, models
    from tests.schemas.shapes import schema_of

    found = {}
    for module in (models, measured, compared, machine):
        for name, document in module.documents().items():
            schema = schema_of(name, document, measured.SETUPS)
            found[f"{name}.json"] = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    return found
