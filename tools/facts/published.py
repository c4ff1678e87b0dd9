"""Published layouts, cut down to what a check looks at: `python tools/facts/published.py SOURCE.json`.

SOURCE.json lists points (model, hardware, layout, measured, source) that were gathered from papers and repositories.
What its rows leave unsaid, and the sources say elsewhere, is added here.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

TARGET = Path(__file__, "../../../tests/cases/published_layouts.json").resolve()
MODEL = ("name", "layers", "hidden", "heads", "kv_heads", "ffn", "vocab")
LAYOUT = ("tp", "pp", "dp", "cp", "ep", "mbs", "gbs", "vpp", "seq")
# Routed experts of the models that the rows name: their own configurations on Hugging Face.
EXPERTS = {"deepseekv2": 160, "deepseekv3": 256}
# How the trainer shares layers out, where it does not do so evenly.
SHARED_OUT = {
    # Llama 3 (arXiv:2407.21783, section 3.3.2): one layer less on the first and on the last stage.
    "2407.21783": "embedding-and-loss",
    # nanotron balances the stages by the cost of their blocks.
    "nanotron": "remainder-first",
}


def facts_of(point):
    found = {}
    name = point["id"].lower()
    for model, experts in EXPERTS.items():
        if model in name and (point["layout"].get("ep") or 1) > 1:
            found["experts"] = experts
    for word, policy in SHARED_OUT.items():
        if word in point["source"] and point["model"].get("layers"):
            found["layer_split"] = policy
    return found


def main(source):
    rows = []
    for point in json.loads(Path(source).read_text(encoding="utf-8")):
        row = {"id": point["id"], "source": point["source"], "gpus": point["hw"].get("n_gpus")}
        row["gpus_per_node"] = point["hw"]["gpus_per_node"]
        row["model"] = {name: point["model"][name] for name in MODEL if point["model"].get(name) is not None}
        row["layout"] = {name: point["layout"][name] for name in LAYOUT if point["layout"].get(name) is not None}
        row["facts"] = facts_of(point)
        rows.append(json.dumps(row, ensure_ascii=False, separators=(",", ":")))
    TARGET.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
