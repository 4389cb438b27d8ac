"""Several JSON reports side by side, as Markdown: `python -m conformance.compare A.json B.json …`.

The first report is the one whose failures are listed first. Nothing is judged here: verdict and evidence are
what the runner wrote. A report that lacks a case (an older or partial run) shows a dash.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SIGNS = {"pass": "pass", "fail": "**fail**", "not applicable": "n/a", "error": "**error**"}
_NOT_PASSED = ("fail", "error")

INTRODUCTION = """\
# Conformance: the same cases against three routers

Every case is something that went wrong in a public report about a router or proxy of this kind. It is
tried over real sockets against the suite's own scriptable backends, in one or more variants (endpoint,
streaming or not, moment of failure); a case passes when all its variants do. `python -m conformance
--list` says what each one asks.

**How to read it.** The suite is ours, and so are its expectations. A case that does not apply to a
router's design (no line of waiting requests, no change of backends at run time, no drain) is *not
applicable*, with the reason in the report, and is no mark against it. A *fail* means that this case's
expectation was not met by this version, with the settings that the launcher in `conformance/launchers/`
gave it; another configuration may do better, and a newer version may have changed. Cases may depend on
settings that a router has under another meaning. Corrections are welcome.

Reproduce it with `make conformance-peers`: it installs the peers from their published wheels into their
own environments, runs the three one after the other and writes this file. One router alone: `python -m
conformance --start NAME`.

**What to know about single rows.** Where a case asks for the least loaded backend, vllm-router and smg run
their `power_of_two` policy, the nearest they have: it compares two backends drawn at random. vllm-router's
`--max-concurrent-requests` fills a token bucket, which its help calls rate limiting; A13, B5 and M1 read it
as a limit on what runs at the same time, and may be unfair to it in that. L24 sends 20 MiB of different
prompts; a prefix tree with a larger bound grows through all of that and is bounded all the same. H5b wants a
model off the list within seconds of its last backend's end; a router that lists what it once learned is
slower, not wrong.
"""


def comparison(reports: Sequence[dict[str, Any]]) -> str:
    """Return the Markdown document for reports as `conformance.report.as_document` makes them."""
    lines = [INTRODUCTION, f"Machine: {platform.machine()}, Python {platform.python_version()}.", ""]
    lines += ["| router | version | pass | fail | not applicable |", "|---|---|---|---|---|"]
    for report in reports:
        counts = Counter(case["verdict"] for case in report["cases"])
        failed = sum(counts[verdict] for verdict in _NOT_PASSED)
        cells = (report["router"], report["version"], counts["pass"], failed, counts["not applicable"])
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    lines += ["", "## Case by case", ""]
    lines += [
        "| case | | what must hold | " + " | ".join(report["router"] for report in reports) + " |",
        "|---|---|---|" + "---|" * len(reports),
    ]
    by_id = [{case["id"]: case for case in report["cases"]} for report in reports]
    for case in reports[0]["cases"]:
        verdicts = [
            _SIGNS.get(found[case["id"]]["verdict"], "?") if case["id"] in found else "–" for found in by_id
        ]
        row = [case["id"], case["priority"], _cell(case["expectation"]), *verdicts]
        lines.append("| " + " | ".join(row) + " |")
    for report in reports:
        lines += ["", f"## What was seen: {report['router']} {report['version']}", ""]
        others = [case for case in report["cases"] if case["verdict"] != "pass"]
        lines += [f"- **{case['id']}** {case['verdict']}: {_cell(case['evidence'])}" for case in others]
        if not others:
            lines.append("Every case passed.")
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the comparison of the reports that are named."""
    parser = argparse.ArgumentParser(prog="python -m conformance.compare", description=__doc__)
    parser.add_argument("report", nargs="+", type=Path)
    options = parser.parse_args(arguments)
    sys.stdout.write(comparison([json.loads(path.read_text(encoding="utf-8")) for path in options.report]))
    return 0


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.exit(main())
