"""The ratios of the main rows of bench/table by version, and which rows a change may not slow down.

`history.json` has the versions in order, and for each the median ratio of each row. A ratio is a
figure divided by its reference's in the same rounds.
"""

import json
import os

HISTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "history.json")
# The part of a recorded ratio that a guarded row must reach (for latencies: may exceed).
LEAST_SHARE = 2 / 3


def load(path=HISTORY):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def record(version, date, results, path=HISTORY):
    """Adds or replaces a version. `results` are the rows of bench/table --json. Returns the names of
    the main and guarded rows that were not measured."""
    history = load(path)
    ratios = {row["name"]: round(row["ratio"], 2) for row in results if "ratio" in row}
    names = list(dict.fromkeys(history["main"] + history["guarded"]))
    entry = {"version": version, "date": date,
             "ratios": {name: ratios[name] for name in names if name in ratios}}
    history["versions"] = [one for one in history["versions"] if one["version"] != version]
    history["versions"].append(entry)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(history, file, indent=2)
        file.write("\n")
    return [name for name in names if name not in ratios]


def latest(history):
    """Returns the ratio with which each row is compared: the last recorded one, or a lower one that
    other machines had (`floors`)."""
    ratios = {}
    for version in history["versions"]:
        ratios.update(version["ratios"])
    ratios.update(history.get("floors", {}))
    return ratios


def has_fallen(ratio, recorded, is_latency):
    """Returns True when a ratio is more than a third worse than the recorded one."""
    return ratio > recorded / LEAST_SHARE if is_latency else ratio < recorded * LEAST_SHARE


def markdown(history, label_of):
    """Returns the table of docs/performance.md. `label_of` has the label of each row's name."""
    versions = history["versions"]
    lines = ["| ratio | " + " | ".join(one["version"] for one in versions) + " |",
             "| --- |" + " --- |" * len(versions)]
    for name in history["main"]:
        cells = ["%.2f" % one["ratios"][name] if name in one["ratios"] else "-"
                 for one in versions]
        lines.append("| %s | %s |" % (label_of[name], " | ".join(cells)))
    return "\n".join(lines)
