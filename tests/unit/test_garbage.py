from __future__ import annotations

import gc

from prefix_router.garbage import spare_what_lives_on


def test_what_exists_is_not_looked_at_again_and_what_comes_later_is() -> None:
    old = [[number] for number in range(1000)]
    spare_what_lives_on()
    try:
        assert gc.get_freeze_count() > 1000
        new = [[number] for number in range(100)]
        looked_at = {id(found) for found in gc.get_objects()}
        assert not looked_at & {id(element) for element in old}
        assert looked_at >= {id(element) for element in new}
    finally:
        gc.unfreeze()
