from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from prefix_router.settings.load import load_text
from prefix_router.settings.problems import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from prefix_router.settings.flags import Given


@pytest.fixture
def mistakes() -> Callable[..., list[str]]:
    """The problems of a configuration as the operator reads them."""

    def of(text: str, environ: Mapping[str, str] | None = None, flags: Sequence[Given] = ()) -> list[str]:
        with pytest.raises(SettingsError) as caught:
            load_text(dedent(text), "x.yaml", environ or {}, flags=flags)
        return [str(problem) for problem in caught.value.problems]

    return of
