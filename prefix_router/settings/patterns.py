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

OTLP_ENDPOINT_PATTERN: Final = whole(
    r"https?://(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[1-9][0-9]{0,4})?(?:/[A-Za-z0-9._~%/-]*)?"
)
SERVICE_NAME_PATTERN: Final = whole(r"[A-Za-z0-9._:/-]{1,128}")
CLIENT_PATTERN: Final = whole(r"[A-Za-z0-9._-]{1,64}")
SHA256_PATTERN: Final = whole(r"[0-9A-Fa-f]{64}")
CREDENTIAL_PATTERN: Final = whole(r"[!-~](?:[ -~]{0,8190}[!-~])?")
ORIGIN_PATTERN: Final = whole(r"\*|null|[a-z][a-z0-9+.-]*://[A-Za-z0-9._\[\]:-]{1,253}")
NETWORK_PATTERN: Final = whole(r"[0-9A-Fa-f.:]{2,45}(?:/[0-9]{1,3})?")
DNS_NAME_PATTERN: Final = whole(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9_.])?")
RESOLVER_PATTERN: Final = whole(
    r"[0-9.]{7,15}(?::[0-9]{1,5})?|[0-9A-Fa-f:.]{2,45}|\[[0-9A-Fa-f:.]{2,45}\]:[0-9]{1,5}"
)
OBJECT_NAME_PATTERN: Final = whole(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
SELECTOR_PATTERN: Final = whole(r"[A-Za-z0-9!][A-Za-z0-9._/=!,() -]{0,1000}")
LABEL_PATTERN: Final = whole(r"(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
PORT_NAME_PATTERN: Final = whole(r"(?=[0-9-]*[a-z])[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
PATH_PREFIX_PATTERN: Final = whole(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)*")

SECRET: Final = {"secret": True}
"""Marks a setting whose value is shown nowhere (`settings.secrets`)."""

URL: Final = {"expects": "a URL such as http://10.0.0.1:8000"}
HOST: Final = {"expects": "a host name or an IP address, without brackets or port"}
NAME: Final = {"expects": "at most 128 letters, digits, - . _ : / [ or ]"}
MODEL: Final = {"expects": "the name of a model"}
FILE: Final = {"expects": "the path of a file"}
PATH: Final = {"expects": "a path that begins with / and holds no space"}
OTLP_ENDPOINT: Final = {"expects": "a URL such as http://127.0.0.1:4318, without login or query"}
SERVICE_NAME: Final = {"expects": "1 to 128 letters, digits, - . _ : or /"}
EVENTS: Final = {"expects": "an address such as tcp://10.0.0.1:5557, with a host in it, not a *"}
CLIENT: Final = {"expects": "1 to 64 letters, digits, - . or _"}
SHA256: Final = {"expects": "64 hex digits, as `prefix-router hash-key` prints them", **SECRET}
COLLECTOR_CREDENTIAL: Final = {"expects": 'the value of the header, such as "Bearer ${OTLP_TOKEN}"', **SECRET}
CREDENTIAL: Final = {"expects": 'the value of the header, such as "Bearer ${VLLM_API_KEY}"', **SECRET}
ORIGIN: Final = {"expects": "an origin such as https://app.example.org, without a path, or *"}
NETWORK: Final = {"expects": "an IP address or a network such as 10.0.0.0/8"}
DNS_NAME: Final = {"expects": "a complete host name, such as vllm.serving.svc.cluster.local"}
RESOLVER: Final = {"expects": "an IP address, such as 10.0.0.53, 10.0.0.53:5353 or [fd00::53]:5353"}
OBJECT_NAME: Final = {"expects": "a name of lower-case letters, digits, - and ."}
SELECTOR: Final = {"expects": "a label selector, such as app=vllm"}
LABEL: Final = {"expects": "the key of a label, such as example.org/models"}
PORT_NAME: Final = {"expects": "the name of a port, such as http"}
PATH_PREFIX: Final = {"expects": "a path such as /replica, without a final /"}
FIELD_NAME: Final = {"expects": "a name of letters, digits, - or _"}
