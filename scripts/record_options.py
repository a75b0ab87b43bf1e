"""Write `engines/llama/server_options.csv`: the options that a llama-server lists, and those that earlier ones had."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

TABLE = Path(__file__).parent.parent / "ggbench/engines/llama/server_options.csv"
COLUMNS = ("on", "off", "n_values", "env", "gone", "role", "own")
_HEAD = re.compile(r"(?P<names>(?:-\S+,\s+)*-\S+)(?: (?P<hint>\S.*?))?(?:\s{3,}(?P<help>\S.*))?")
_ENV = re.compile(r"\(env: (\w+)\)")
_REMOVED = re.compile(r"argument has been removed\. (use [^()]*)")
_LISTS = re.compile(r"--(?:help|version|cache-list|completion-bash|list-devices)\b")
"""Options with which a program prints something and ends."""
_OFF = re.compile(r"-n|--no-")
_TWO_VALUES = "START END"
_IK, _CLI = "only ik_llama.cpp has it", "llama-cli has it"
_OWN = {
    "--model": "*:*", "--hf-repo": "*:*", "--model-url": "*:*", "--hf-repo-draft": "*:-md,*",
    "--draft-max": "*:--spec-draft-n-max,*", "--threads": "-1: 0: *:-t,*", "--threads-batch": "-1: 0: *:-tb,*",
    "--parallel": "-1: *:-np,*", "--device": "none:-ngl,0 *:-dev,*",
    "--n-gpu-layers": "all:-ngl,-1 auto:-ngl,-1 *:-ngl,*",
    "--flash-attn": "1:-fa,on true:-fa,on enabled:-fa,on 0:-fa,off false:-fa,off disabled:-fa,off -1:-fa,auto *:-fa,*",
    "--spec-type": "none: draft-simple: draft-mtp:--mtp", "--mmproj-url": "*:--mmproj,auto",
    "--load-mode": "auto: mmap: none:--no-mmap dio:--no-mmap mlock:--no-mmap,--mlock mmap+mlock:--mlock",
    "--mmap": "on: off:--no-mmap", "--mlock": "on:--mlock", "--direct-io": "on:--no-mmap off:",
}  # fmt: skip
"""How ggbench writes options that it has otherwise, by last spelling: words by value, `*` for any."""
_ROLES = {
    "model": "--model --hf-repo --hf-file --model-url",
    "idle": "--defrag-thold",
    "check": "--fit --fit-target --fit-ctx --cache-ram --mmproj-auto",
    "uncounted": "--lora --lora-scaled --control-vector --n-gpu-layers-draft --override-tensor-draft --cpu-moe-draft"
    " --n-cpu-moe-draft --device-draft --n-cpu-ffn --kv-unified-per-slot --no-host --repack --op-offload --override-kv"
    " --lazy-mode --mmproj-device --mmproj-offload --numa",
}
_EARLIER = (
    ("--mmap", "--no-mmap", 0, "use -lm none"), ("--mlock", "", 0, "use -lm mmap+mlock; mlock is without mmap"),
    ("-dio --direct-io", "-ndio --no-direct-io", 0, "use -lm dio"),
    ("-cd --ctx-size-draft", "", 1, "a draft has the context of the model"),
    ("-gan --grp-attn-n", "", 1, "no model of today needs it"),
    ("-gaw --grp-attn-w", "", 1, "no model of today needs it"),
    ("-cnv --conversation", "-no-cnv --no-conversation", 0, _CLI), ("-i --interactive", "", 0, _CLI),
    ("-co --color", "", 0, _CLI), ("-sys --system-prompt", "", 1, _CLI),
    ("-fmoe --fused-moe", "-no-fmoe --no-fused-moe", 0, _IK), ("-rtr --run-time-repack", "", 0, _IK),
    ("-mla --mla-use", "", 1, _IK), ("-amb --attention-max-batch", "", 1, _IK),
    ("-ser --smart-expert-reduction", "", 1, _IK), ("-ger --grouped-expert-routing", "", 0, _IK),
)  # fmt: skip
"""Options that people still write, and what does their work: of earlier versions and of relatives."""


def listed_options(usage: str) -> Iterator[dict[str, str]]:
    """Yield a row for each option of what `--help` prints."""
    entries = re.split(r"\n(?=-)", usage[usage.index("\n-h,") + 1 :])
    for entry in entries:
        first, _, rest = entry.partition("\n")
        head = _HEAD.fullmatch(first.strip())
        if head is None or first.startswith("-----") or _LISTS.search(first):
            continue
        names, hint = [name.strip() for name in head["names"].split(",")], head["hint"] or ""
        text = " ".join(f"{head['help'] or ''} {rest}".split())
        removed, env = _REMOVED.search(text), _ENV.search(text)
        begin = len(names)
        if not hint:
            begin = next((index for index, name in enumerate(names) if index and _OFF.match(name)), begin)
        yield {
            "on": " ".join(names[:begin]),
            "off": " ".join(names[begin:]),
            "n_values": str((1 + (hint == _TWO_VALUES)) if hint else 0),
            "env": env[1] if env else "",
            "gone": removed[1].strip()
            if removed
            else "it has no effect any more"
            if "(DEPRECATED)" in text
            else "",
        }


def rows_of(usage: str) -> list[dict[str, str]]:
    """Return the rows of the table; those of earlier versions only where the build does not list the option."""
    rows = list(listed_options(usage))
    known = {name for row in rows for name in (*row["on"].split(), *row["off"].split())}
    for on, off, values, gone in _EARLIER:
        if not known & {*on.split(), *off.split()}:
            rows.append({"on": on, "off": off, "n_values": str(values), "env": "", "gone": gone})
    for row in rows:
        name = row["on"].split()[-1]
        row["role"] = next((role for role, names in _ROLES.items() if name in names.split()), "")
        row["own"] = _OWN.get(name, "")
    return rows


def main() -> None:
    """Write the table."""
    usage = subprocess.run([sys.argv[1], "--help"], text=True, check=True, capture_output=True).stdout
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows_of(usage))


if __name__ == "__main__":
    main()
