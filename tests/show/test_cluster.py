"""A plan of a cluster for people."""

from collections.abc import Callable

from ggbench.show.plan import cluster_report
from ggbench.sizing.cluster import ClusterPlan, ClusterSplit, DeviceSpeed


def test_a_machine_without_use_is_named_and_commands_stay_whole(render: Callable[..., str]) -> None:
    best = ClusterSplit(n_layers=(8, 0, 0), b_ms=2.0, at_n_ctx_ms=4.0)
    speeds = tuple(
        DeviceSpeed(device=device, server=server, layer_ms=0.2, kv_ms=0.001, output_ms=0.4, link_ms=0.1)
        for device, server in (("RPC0[a:1]", "a:1"), ("RPC0[b:1]", "b:1"), ("CPU", ""))
    )
    plan = ClusterPlan(
        model="m", quant="q8_0", n_ctx=2048, speeds=speeds, best=best,
        without=(("a:1", None), ("b:1", best), ("this machine", best)), llama_server=f"llama-server {'x' * 200}",
    )  # fmt: skip
    text = render(cluster_report(plan, width=80), 80)
    assert f"llama-server {'x' * 200}\n" in text
    assert [line.split()[1] for line in text.splitlines() if "no loss: leave it out" in line] == ["b:1"]
    assert [line.split()[1] for line in text.splitlines() if "does not fit" in line] == ["a:1"]
    assert "500" in text


def test_what_fits_in_no_way_is_one_line(render: Callable[..., str]) -> None:
    plan = ClusterPlan(model="m", quant="q8_0", n_ctx=2048, speeds=(), best=None)
    assert render(cluster_report(plan, width=80), 80).strip() == (
        "m q8_0: the fastest split at n_ctx 2k: none, it does not fit"
    )
