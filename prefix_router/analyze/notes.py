"""What a reader must know of the numbers: where they come from, what was assumed, and what they leave out."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from prefix_router.fleetsim.request import BLOCK_TOKENS

if TYPE_CHECKING:
    from prefix_router.analyze.study import Analysis

MILLION = 1e6


def input_notes(analysis: Analysis) -> list[str]:
    """How much was read, and what could not be used."""
    reading, sharing = analysis.reading, analysis.sharing
    notes = [f"{reading.lines:,} lines, {sharing.requests:,} of them requests with a prompt."]
    notes += [
        f"Not used: {unusable.count:,} × {cause} ({', '.join(unusable.first)}"
        f"{', …' if unusable.count > len(unusable.first) else ''})."
        for cause, unusable in reading.unusable.items()
    ]
    if reading.sample < 1:
        said = (
            f"The capture has {reading.sample:.2%} of the conversations: they share less with each other than"
        )
        notes.append(f"{said} all of them do. The rate was scaled up.")
    return notes


def method_notes(analysis: Analysis) -> list[str]:
    """What was counted and simulated, on which assumptions."""
    return [*_counted(analysis), *_simulated(analysis), *_always(analysis)]


def load_notes(analysis: Analysis) -> list[str]:
    """What the recorded rate means for the fleet that was simulated, if there is anything to say."""
    rate, capacity = analysis.recorded_rate, analysis.facts.capacity
    if rate is None or analysis.question.loads is not None:
        return []
    replicas = analysis.question.replicas
    said = f"The recorded {rate:,.1f} requests a second are {rate / capacity:.0%} of what {replicas} replicas"
    if rate <= capacity:
        return [f"{said} could just take with ideal caches."]
    needed = ceil(rate / capacity * replicas)
    return [
        f"{said} could take with ideal caches: they cannot keep up, and times say how long the record is.",
        f"Try --replicas {needed} or more.",
    ]


def _counted(analysis: Analysis) -> list[str]:
    sharing = analysis.sharing
    notes = []
    if sharing.windows > 1:
        window = sharing.window_blocks * BLOCK_TOKENS / MILLION
        said = f"Sharing was counted in {sharing.windows} windows of about {window:,.0f} million tokens"
        notes.append(f"{said}: what comes back only in a later one counts as new.")
    else:
        notes.append("Sharing was counted over all requests, block by block (16 tokens).")
    if analysis.reading.captured:
        notes.append("A capture has no blocks but levels, 64 tokens apart or more: a little more is shared.")
    ratio = analysis.measured.tokens_per_estimate
    known = "" if ratio is None else f"; the engines counted {ratio:.2f} for each"
    notes.append(f"Tokens are estimated, four bytes each{known}.")
    return notes


def _simulated(analysis: Analysis) -> list[str]:
    traffic, question = analysis.traffic, analysis.question
    count = len(traffic.requests)
    notes = [f"Simulated: {'the first ' if traffic.left_out else 'all '}{count:,} requests."]
    if analysis.recorded_rate is None:
        notes.append("Times were not recorded: requests come independently (Poisson).")
    elif question.loads is not None:
        notes.append("Recorded times, stretched or squeezed to each load.")
    else:
        notes.append("Times as recorded.")
    assumed = count - traffic.counted_outputs
    if assumed:
        limited = traffic.limited_outputs
        limit = f", {limited:,} of them less by the request's own limit" if limited else ""
        said = f"{assumed:,} answers were not recorded and taken to have {question.output_tokens} tokens"
        notes.append(f"{said}{limit}.")
    return notes


def _always(analysis: Analysis) -> list[str]:
    question, failed = analysis.question, analysis.baseline["failed"]
    model = f"The fleet is a model: {question.replicas} replicas of {question.profile}, empty at first."
    notes = [
        f"{model} Differences carry over better than times; a few percent may be chance.",
        "Only prompts fill caches here. Engines keep their answers, too: later turns of a chat are cheaper.",
    ]
    if failed:
        notes.append(f"{failed:,} requests do not fit a replica's cache, and fail under every strategy.")
    return notes
