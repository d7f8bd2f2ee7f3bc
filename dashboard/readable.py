"""Numbers as people read them. None is what the source does not know: never shown as zero."""

UNKNOWN = "unknown"


def count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def percent(part: float | None, whole: float | None) -> str:
    """`part` of `whole`; a dash where there is nothing to divide by."""
    if part is None or whole is None:
        return UNKNOWN
    return f"{100 * part / whole:.1f} %" if whole else "–"


def factor(part: float | None, whole: float | None) -> str:
    """`part` to `whole` as a multiple; a dash where there is nothing to divide by."""
    if part is None or whole is None:
        return UNKNOWN
    return f"{part / whole:.2f} ×" if whole else "–"


def size(value: int) -> str:
    """Bytes in binary units."""
    power = min(4, max(0, value.bit_length() - 1) // 10)
    amount = value / 1024**power
    unit = ("B", "KiB", "MiB", "GiB", "TiB")[power]
    return f"{amount:,.0f} {unit}" if power == 0 or amount >= 100 else f"{amount:.1f} {unit}"


def seconds(value: float) -> str:
    """As people say them: 420 ms, 8.25 s, 3 min 20 s, 2 h 5 min."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.2f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def shortened(name: str, longest: int = 16) -> str:
    """A request's id, cut in the middle where it is long."""
    return name if len(name) <= longest else f"{name[: longest - 6]}…{name[-5:]}"
