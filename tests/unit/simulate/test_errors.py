from __future__ import annotations

import pytest

from prefix_router.simulate.errors import ApiError, InvalidRequestError, NotFoundError, QueueFullError


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (InvalidRequestError("m", "p"), 400, "BadRequestError"),
        (NotFoundError("m", "p"), 404, "NotFoundError"),
        (QueueFullError("m", "p"), 503, "ServiceUnavailableError"),
    ],
)
def test_an_error_has_vllms_form_with_the_status_as_a_number(error: ApiError, status: int, kind: str) -> None:
    assert error.status == status
    assert error.body() == {"error": {"message": "m", "type": kind, "param": "p", "code": status}}


def test_an_error_need_not_name_a_field() -> None:
    assert InvalidRequestError("m").body()["error"]["param"] is None
