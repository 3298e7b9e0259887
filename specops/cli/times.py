"""Times on the command line: ISO 8601, as `--json` prints them, so that one can be pasted into the next command."""

from datetime import UTC, datetime, tzinfo

from specops.errors import InvalidInput


def parse_time(text: str, *, zone: tzinfo | None = None) -> datetime:
    """Return a time in UTC.

    Args:
        text: what a person wrote, ISO 8601.
        zone: what a time without one means; None refuses it.

    Raises:
        InvalidInput: no time, one without a zone where it needs one, or one before the year 1 or after 9999 in UTC.
    """
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            time = time.replace(tzinfo=zone)
        if time.tzinfo is None:
            raise InvalidInput(f"{text} has no zone; write it as 2026-11-29T12:00:00+00:00 or with a Z at the end")
        return time.astimezone(UTC)
    except (ValueError, OverflowError) as exc:
        raise InvalidInput(f"{text!r} is not a time; write it as 2026-11-29T12:00:00Z") from exc
