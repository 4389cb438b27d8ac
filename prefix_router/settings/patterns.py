"""What texts in the configuration look like: patterns, and the words that say what is expected.

A pattern helps nobody at night, so each annotation of a text carries both.
"""

from __future__ import annotations

from typing import Final


def whole(pattern: str) -> str:
    """Make `pattern` match whole texts only: a bare `$` would let a final line feed through."""
    return rf"^(?:{pattern})$(?!\n)"


HOST_PATTERN: Final = whole(r"[A-Za-z0-9._:-]{1,253}")
NAME_PATTERN: Final = whole(r"[A-Za-z0-9._:/\[\]-]{0,128}")
PATH_PATTERN: Final = whole(r"/[!-~]*")
EVENTS_PATTERN: Final = whole(r"tcp://(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[1-9][0-9]{0,4}")
FIELD_NAME_PATTERN: Final = whole(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
"""A header or cookie name: `token` of RFC 9110, section 5.6.2."""

URL: Final = {"expects": "a URL such as http://10.0.0.1:8000"}
HOST: Final = {"expects": "a host name or an IP address, without brackets or port"}
NAME: Final = {"expects": "at most 128 letters, digits, - . _ : / [ or ]"}
MODEL: Final = {"expects": "the name of a model"}
FILE: Final = {"expects": "the path of a file"}
PATH: Final = {"expects": "a path that begins with / and holds no space"}
EVENTS: Final = {"expects": "an address such as tcp://10.0.0.1:5557, with a host in it, not a *"}
FIELD_NAME: Final = {"expects": "a name of letters, digits, - or _"}
