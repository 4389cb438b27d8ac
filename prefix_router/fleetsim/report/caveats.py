"""What a reader of the report must know, so as not to believe more than is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefix_router.fleetsim.report.findings import FAILED_SHARE_LIMIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefix_router.fleetsim.command.comparison import Comparison
    from prefix_router.fleetsim.command.scenario import Facts

SQUEEZED = 2.0
"""From this factor on it is said that time was squeezed."""

_ALWAYS = (
    """Everything here is simulated: the engines are a model of vLLM with the costs of measured kernels, the
    routers decide as the real ones do. Differences between strategies carry over better than times.""",
    """Load is a share of what the fleet could just take with ideal caches, which makes workloads comparable.
    Requests arrive whether or not earlier ones are answered.""",
    """A strategy that finds less in the caches can take less load. Where it cannot keep up, its times say how
    long the run was, and an advantage over it has no natural size.""",
    """One run of each, with one seed. Differences of a few percent, and of more at P99, can be chance.""",
    f"""Whoever fails {FAILED_SHARE_LIMIT:.0%} of the requests more than another is not marked as best.""",
)


def caveats(comparison: Comparison, workloads: Sequence[Facts]) -> list[str]:
    """Sentences, as plain text."""
    found = [" ".join(caveat.split()) for caveat in _ALWAYS]
    if comparison.events:
        events = ", ".join(
            f"{event.change.value} of replica {event.replica} at {event.seconds:g} s"
            for event in comparison.events
        )
        found.append(f"The fleet changes meanwhile: {events}.")
    load = max(comparison.loads)
    factors = {
        facts.label: load * facts.capacity / facts.natural_rate for facts in workloads if facts.natural_rate
    }
    squeezed = [f"{label} {factor:.0f} times" for label, factor in factors.items() if factor >= SQUEEZED]
    if squeezed:
        found.append(
            f"To reach load {load:g}, the workload's own time was squeezed, and with it the pauses in "
            f"conversations: {', '.join(squeezed)}."
        )
    return found
