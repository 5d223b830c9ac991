"""Moments and spans of time as people read them."""

import datetime


def day_of(unix_ms: int) -> str:
    """YYYY-MM-DD in UTC."""
    return datetime.datetime.fromtimestamp(unix_ms / 1000, datetime.UTC).strftime("%Y-%m-%d")


def moment_of(unix_ms: int) -> str:
    """YYYY-MM-DD HH:MM:SS in UTC."""
    return datetime.datetime.fromtimestamp(unix_ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")


def span(seconds: float) -> str:
    """The two largest units: 3h05m, 12m07s, 9s."""
    whole = max(0, int(seconds))
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{whole}s"
