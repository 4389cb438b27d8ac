"""What a case is, and what can become of it.

A case says what must hold, in one sentence, and tries it in one or more variants (another endpoint, with
streaming, another moment of failure). A variant ends in one of four verdicts. The closed set matters: "not
applicable" is a statement about the router's design and carries its reason, never a quiet pass.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from conformance.endpoints import Endpoint
from conformance.profile import DEFAULT_PROFILE, Profile

if TYPE_CHECKING:
    from conformance.context import Context

Evidence = str
"""One sentence with the numbers that were seen."""

Run = Callable[["Context"], Awaitable[Evidence]]


class CaseFailed(Exception):  # noqa: N818  (a verdict)
    """The router did not do what must hold. The text is the evidence."""


class NotApplicable(Exception):  # noqa: N818  (a verdict)
    """The case asks for something that this router does not claim to have. The text is the reason."""


class Priority(Enum):
    """How much a case matters. P0: before any release; P1: before 1.0; P2: welcome."""

    P0 = "P0"
    P1 = "P1"
    P2 = "P2"


class Capability(Enum):
    """What a case may need of a router beyond passing requests on."""

    IN_FLIGHT = "its count of requests in flight for each backend"
    PROCESS = "its process id, to read memory and to send signals"
    METRICS = "its own metrics"
    DECISION_HEADERS = "response headers that name backend and reason"
    ADMIN = "the admin interface of prefix_router"
    FRESH = "a process that the suite starts"
    MEMBERSHIP = "a change of its backends while it runs"
    QUEUE = "a line of waiting requests behind a limit"
    DRAIN = "a drain on SIGTERM"


class Verdict(Enum):
    """How a variant ended."""

    PASS = "pass"
    FAIL = "fail"
    NOT_APPLICABLE = "not applicable"
    ERROR = "error"
    """The suite itself broke; says nothing about the router."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to try a case. option: a word that the case itself understands."""

    endpoint: Endpoint = Endpoint.CHAT
    streaming: bool = False
    option: str = ""

    @property
    def name(self) -> str:
        """How the variant is called in a report."""
        words = [self.endpoint.value, "stream" if self.streaming else "whole", self.option]
        return " ".join(word for word in words if word)


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table.

    id: section letter and number. expectation: what must hold. needs: without these the case does not
    apply. disturbs: it may leave backends ejected, so that the router is checked (and if need be restarted)
    before the next case. fresh: it wants a router process of its own. timeout_seconds: for one variant.
    """

    id: str
    priority: Priority
    title: str
    expectation: str
    run: Run
    variants: tuple[Variant, ...] = (Variant(),)
    profile: Profile = DEFAULT_PROFILE
    needs: frozenset[Capability] = frozenset()
    disturbs: bool = False
    fresh: bool = False
    timeout_seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class VariantResult:
    """How one variant ended, and why."""

    variant: str
    verdict: Verdict
    evidence: Evidence
    seconds: float


@dataclass(frozen=True, slots=True)
class CaseResult:
    """How a case ended: the worst of its variants."""

    case: Case
    variants: tuple[VariantResult, ...]

    @property
    def verdict(self) -> Verdict:
        """Fail before error before pass; not applicable only when no variant applies."""
        verdicts = {result.verdict for result in self.variants}
        for verdict in (Verdict.FAIL, Verdict.ERROR, Verdict.PASS):
            if verdict in verdicts:
                return verdict
        return Verdict.NOT_APPLICABLE

    @property
    def evidence(self) -> Evidence:
        """The evidence of the variants that decided, each text once; of a pass, that of one variant."""
        texts: dict[str, list[str]] = {}
        for result in self.variants:
            if result.verdict is self.verdict:
                texts.setdefault(result.evidence, []).append(result.variant)
        first = next(iter(texts))
        if self.verdict is Verdict.PASS:
            return first if len(texts) == 1 else f"{first} [{texts[first][0]}; others alike]"
        if len(texts) == 1 and len(self.variants) == len(texts[first]):
            return first
        return "; ".join(f"[{', '.join(names)}] {text}" for text, names in texts.items())

    @property
    def seconds(self) -> float:
        """How long all variants took together."""
        return sum(result.seconds for result in self.variants)


def check(condition: object, evidence: Evidence) -> None:
    """Raise CaseFailed with `evidence` unless `condition` is true."""
    if not condition:
        raise CaseFailed(evidence)
