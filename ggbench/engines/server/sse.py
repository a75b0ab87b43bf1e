"""Server-sent events, as model servers send them: one line of data for each event.

Source: the HTML standard, section 9.2. Servers send no event whose data has several lines; comments keep a connection
alive.
"""

from __future__ import annotations

from ggbench.engines.server.kind import InvalidStream

DONE = b"[DONE]"
"""The data of OpenAI's last event."""
_IGNORED = (b":", b"event:", b"id:", b"retry:")


def data_of(line: bytes) -> bytes | None:
    """Return the data of a line; None for an empty line, a comment and other fields. Raises InvalidStream.

    llama-server before 2025 sent its errors as a field of their own: `error: {...}`.
    """
    if line.startswith(b"data:"):
        return line[5:].strip()
    if line.startswith(b"error:"):
        return line[6:].strip()
    if not line or line.startswith(_IGNORED):
        return None
    raise InvalidStream(f"not a server-sent event: {line[:60].decode(errors='replace')}")
