"""What comes out of one engine step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefix_router.engine.request import EngineRequest


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step produced.

    duration_seconds: simulated seconds that the step took.
    advanced: the requests that gained one token, in order of admission, the finished ones included.
    first_tokens: those of them whose first token it was.
    finished: those of them whose last token it was; the engine no longer knows them.
    """

    duration_seconds: float
    advanced: list[EngineRequest]
    first_tokens: list[EngineRequest]
    finished: list[EngineRequest]
