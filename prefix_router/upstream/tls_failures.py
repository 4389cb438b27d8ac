"""What OpenSSL's errors mean for somebody who has to mend them. Pure."""

from __future__ import annotations

from ssl import SSLError

_REFUSALS = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")
"""What alerts about a certificate have in their names, in all versions of TLS."""


def refuses_ours(error: BaseException | None) -> bool:
    """Whether `error` is the other side's alert that it wants another certificate of us, or one at all."""
    reason = _reason(error) if isinstance(error, SSLError) else ""
    return "_ALERT_" in reason and any(word in reason for word in _REFUSALS)


def tls_failure(error: SSLError) -> str:
    """Return the cause in words, without OpenSSL's file names and numbers."""
    reason = _reason(error)
    words = reason.replace("_", " ").lower()
    if refuses_ours(error):
        return f"it does not accept the router's certificate: {words}"
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
        return "TLS failed: it does not speak TLS at this port"
    return f"TLS failed: {words or error.strerror or type(error).__name__}"


def _reason(error: SSLError) -> str:
    """OpenSSL's word for the cause; an error that the event loop made itself has none."""
    return getattr(error, "reason", None) or ""
