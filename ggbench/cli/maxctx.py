"""`ggbench maxctx`: the largest n_ctx that really works, with its certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggbench.cli.hub_options import HubOptions, download_options
from ggbench.cli.options import load_options
from ggbench.cli.output import Output, output_options

if TYPE_CHECKING:
    from ggbench.records.setup import LlamaSetup


def _parse_size(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    from ggbench.units import parse_size

    return None if text is None else 0 if text.strip() == "0" else parse_size(text)


@click.command()
@click.argument("model")
@click.argument("quant", required=False)
@click.option("--all", "every", is_flag=True, help="Every quant there is, in one table with theory beside.")
@click.option(
    "--reserve",
    "reserve_bytes",
    callback=_parse_size,
    metavar="SIZE",
    help="Memory to keep out of it. Default: 1 GiB of main memory without a limit, else none.",
)
@click.option("--cap-train", is_flag=True, help="Search no further than the context that the model was trained on.")
@click.option("--prove/--no-prove", default=True, show_default=True, help="Decode at the far end of the winner.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Longest silence of the worker. Default: 3600, since a batch at the far end is slow on a CPU.",
)
@load_options
@download_options
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    model: str,
    quant: str | None,
    every: bool,
    reserve_bytes: int | None,
    cap_train: bool,
    prove: bool,
    timeout_s: float | None,
    config: LlamaSetup,
    hub: HubOptions,
    output: Output,
) -> None:
    """Find the largest n_ctx by real allocations, and decode at its far end to prove it.

    Theory and llama.cpp's allocator run dry say where to look; then contexts are made in one worker until the last that
    works and the first that fails are 256 tokens apart. --n-ctx, where given, is as far as it looks.
    """
    from ggbench.catalog.selector import resolve, resolve_one
    from ggbench.cli.downloads import allow_downloads, interruptible, tell_left_out
    from ggbench.cli.gpu_options import check_main_gpu
    from ggbench.cli.searches import exit_code_of, search
    from ggbench.errors import UsageError
    from ggbench.experiments.maxctx import MaxctxSettings
    from ggbench.report.certificate_document import certificate_document

    if every and quant is not None:
        raise UsageError(f"--all and the quant {quant!r} exclude each other", "leave one of them out")
    check_main_gpu(config)
    access = hub.access()
    with interruptible(output):
        targets = resolve(model, hub=access) if every else (resolve_one(model, quant, hub=access),)
    if every:
        tell_left_out(model, (), targets, hub, output)
    allow_downloads(targets, hub, output)
    settings = MaxctxSettings(config, reserve_bytes=reserve_bytes, prove=prove, cap_train=cap_train)
    finished = search(targets, settings, output, timeout_s=timeout_s, every=every)
    certificates = [record.certificate for record in finished]
    if output.as_json and every:
        output.document("maxctx.all", model=model, rows=[certificate_document(each) for each in certificates])
    elif output.as_json:
        for certificate in certificates:
            output.document("maxctx", **certificate_document(certificate))
    elif every and certificates:
        from ggbench.report.terminal.certificates import certificates_table

        output.show(certificates_table(certificates, width=output.console().width))
    else:
        from ggbench.report.terminal.certificates import certificate_details

        for record in finished:
            if record.error is None:
                output.show(certificate_details(record.certificate))
    store_error = next((record.store_error for record in finished if record.store_error is not None), None)
    if not every and finished and finished[0].error is not None:
        if store_error is not None:
            output.notice(store_error.message)
        raise finished[0].error
    if store_error is not None:
        raise store_error
    ctx.exit(exit_code_of(certificates))
