"""Downloads from the Hugging Face hub, and the errors for models that cannot be fetched."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlparse

from deelbo._extras import require
from deelbo._wording import first_line


@contextmanager
def cache_without_network() -> Iterator[None]:
    """Read only the local cache if the hub's host cannot be resolved: its client would keep trying for 20 seconds."""
    constants = require("huggingface_hub.constants", "text")
    before = constants.HF_HUB_OFFLINE
    proxied = any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"))
    constants.HF_HUB_OFFLINE = before or not (proxied or _has_address(constants.ENDPOINT))
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _has_address(url: str) -> bool:
    try:
        return bool(socket.getaddrinfo(urlparse(url).hostname, 443))
    except OSError:
        return False


def unavailable(spec: str, error: Exception) -> ValueError:
    """Return the error for a model that cannot be fetched."""
    return ValueError(f"cannot download {spec}: no network, or no such model ({first_line(error)})")


def unknown(spec: str, name: str, known: list[str]) -> ValueError:
    """Return the error for a name that no model has, with the most similar names."""
    import difflib

    near = known if len(known) <= 5 else difflib.get_close_matches(name, known, 5, 0.4) or known[:5]
    return ValueError(f"unknown model {spec!r}; there are {', '.join(near)}{', ...' if len(known) > len(near) else ''}")
