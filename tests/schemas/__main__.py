"""Write the schemas that the package ships: `python -m tests.schemas`."""

from tests.schemas.files import FOLDER, schema_files


def main() -> None:
    """Write them all, and remove those of documents that are gone."""
    made = schema_files()
    for old in FOLDER.glob("*.json"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
