"""Drawing in SVG text: elements, axes, legends. Colours are CSS classes of the page, so charts follow dark mode and print.

Used by the charts only. All text is escaped here and nowhere else.
"""

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

WIDTH = 960  # user units; the page scales the drawing to its column

Point = tuple[float, float]


def element(name: str, body: str = "", /, **attributes: object) -> str:
    """Return an element; `cls` stands for class and `_` in names for `-`; numbers are rounded to 0.1; `body` is markup."""
    texts = []
    for key, value in attributes.items():
        label = "class" if key == "cls" else key.replace("_", "-")
        texts.append(f' {label}="{html.escape(f"{value:.1f}" if isinstance(value, float) else str(value))}"')
    return f"<{name}{''.join(texts)}>{body}</{name}>"


def title(words: str) -> str:
    """Return a tooltip."""
    return f"<title>{html.escape(words)}</title>"


def text(x: float, y: float, words: str, cls: str = "tick", anchor: str = "start") -> str:
    """Return a text."""
    return element("text", html.escape(words), x=float(x), y=float(y), cls=cls, text_anchor=anchor)


def line(start: Point, end: Point, cls: str, tip: str = "") -> str:
    """Return a straight line."""
    body = title(tip) if tip else ""
    return element("line", body, x1=float(start[0]), y1=float(start[1]), x2=float(end[0]), y2=float(end[1]), cls=cls)


def dot(at: Point, radius: float, cls: str, tip: str = "") -> str:
    """Return a circle."""
    return element("circle", title(tip) if tip else "", cx=float(at[0]), cy=float(at[1]), r=float(radius), cls=cls)


def polyline(points: Iterable[Point], cls: str) -> str:
    """Return an open line through points."""
    return element("polyline", points=_coordinates(points), cls=cls)


def polygon(points: Iterable[Point], cls: str) -> str:
    """Return a filled area."""
    return element("polygon", points=_coordinates(points), cls=cls)


def steps(points: Sequence[Point], end: float) -> list[Point]:
    """Return the corners of a step line that holds each y until the next x, and the last until `end`."""
    corners: list[Point] = []
    for (x, y), following in zip(points, [*(p[0] for p in points[1:]), end], strict=True):
        corners += [(x, y), (following, y)]
    return corners


def drawing(height: float, body: Iterable[str], label: str, *, width: float = WIDTH) -> str:
    """Return a whole SVG with an accessible name."""
    return element(
        "svg",
        title(label) + "".join(body),
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        role="img",
        aria_label=label,
        xmlns="http://www.w3.org/2000/svg",
        cls="chart",
    )


def legend(x: float, y: float, entries: Iterable[tuple[str, str]]) -> str:
    """Return a legend row; an entry is (class of a line, words)."""
    parts = []
    for cls, words in entries:
        parts += [line((x, y - 4), (x + 22, y - 4), cls), text(x + 28, y, words, "legend")]
        x += 28 + 6.6 * len(words) + 24  # 6.6 units is the mean advance of the 12 px interface font
    return "".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A plot area in user units and the values at its edges; `is_log` makes x logarithmic (both ends > 0)."""

    left: float
    top: float
    width: float
    height: float
    x_range: tuple[float, float]
    y_range: tuple[float, float] = (0.0, 1.0)
    is_log: bool = False

    def x(self, value: float) -> float:
        """Return the horizontal place of a value."""
        low, high = map(self._x_scale, self.x_range)
        return self.left + self.width * (self._x_scale(value) - low) / ((high - low) or 1.0)

    def y(self, value: float) -> float:
        """Return the vertical place of a value."""
        low, high = self.y_range
        return self.top + self.height * (1 - (value - low) / ((high - low) or 1.0))

    def at(self, x: float, y: float) -> Point:
        """Return the place of a pair of values."""
        return self.x(x), self.y(y)

    def _x_scale(self, value: float) -> float:
        """Return a value on the horizontal scale."""
        return math.log10(value) if self.is_log else value

    def axes(self, x_label: str, y_label: str, x_words: Callable[[float], str], y_words: Callable[[float], str]) -> str:
        """Return grid, ticks and axis labels."""
        bottom, right = self.top + self.height, self.left + self.width
        parts = []
        for value in linear_ticks(*self.y_range, 5):
            y = self.y(value)
            parts += [line((self.left, y), (right, y), "grid"), text(self.left - 8, y + 4, y_words(value), "tick", "end")]
        for value in log_ticks(*self.x_range) if self.is_log else linear_ticks(*self.x_range, 8):
            x = self.x(value)
            parts += [line((x, bottom), (x, bottom + 5), "axis"), text(x, bottom + 19, x_words(value), "tick", "middle")]
        parts += [
            line((self.left, bottom), (right, bottom), "axis"),
            text(self.left + self.width / 2, bottom + 38, x_label, "label", "middle"),
            text(self.left, self.top - 12, y_label, "label", "start"),
        ]
        return "".join(parts)


def linear_ticks(low: float, high: float, count: int) -> list[float]:
    """Return round values in [low, high], at most `count` + 1 of them."""
    span = high - low
    if span <= 0:
        return [low]
    power = 10 ** math.floor(math.log10(span / count))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if span / (power * m) <= count)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1-2-5 values in [low, high], thinned to decades over a wide range."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    multiples = (1, 2, 5) if math.log10(high / low) <= 1.5 else (1, 3) if math.log10(high / low) <= 2.2 else (1,)  # noqa: PLR2004
    return [m * 10.0**d for d in decades for m in multiples if low <= m * 10.0**d <= high]


def _coordinates(points: Iterable[Point]) -> str:
    """Return points as SVG coordinates."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
