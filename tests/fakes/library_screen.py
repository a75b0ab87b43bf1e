"""What stands on the Library screen, and the way to a model in it."""

from collections.abc import Sequence

import msgspec.structs
from textual.pilot import Pilot

from ggbench.models.disk import LocalModel
from ggbench.tui.app import GgbenchApp
from ggbench.tui.services import Services
from ggbench.tui.widgets.quants_table import QuantsTable
from tests.fakes.driving import press


async def choose(app: GgbenchApp, pilot: Pilot[None], model: str, n_before: int = 0) -> str:
    """Type the model's name and choose it, after those that match too."""
    return await press(app, pilot, "slash", *model, "enter", *["j"] * n_before, "enter")


def table(app: GgbenchApp) -> QuantsTable:
    return app.screen.query_one(QuantsTable)


def names(app: GgbenchApp) -> list[str]:
    return [str(table(app).get_row_at(row)[0]).strip("● ") for row in range(table(app).row_count)]


def with_disk(services: Services, *models: LocalModel) -> GgbenchApp:
    def local_models() -> Sequence[LocalModel]:
        return models

    return GgbenchApp(msgspec.structs.replace(services, local_models=local_models), n_gen=200)
