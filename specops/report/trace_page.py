"""One request as a picture: blocks, accepted and rejected tokens, alternatives, and time, in one HTML file.

Called by `specops trace show --html` with a trace; it reads nothing else. Test: tests/report/test_trace_page.py.
"""

from collections.abc import Callable
from pathlib import Path

import jinja2

from specops.core.trace import STAGES, Trace
from specops.core.trace_why import why
from specops.report.page import write

_VISIBLE = str.maketrans({"\n": "\u23ce", " ": "\u00b7"})


def build(trace: Trace, path: Path, text: Callable[[int], str] | None = None) -> None:
    """Write the page.

    Raises:
        OSError: the folder cannot be written.
    """
    write(render(trace, text), path)


def render(trace: Trace, text: Callable[[int], str] | None = None) -> str:
    """Return the page as HTML text; everything that a client may have chosen is escaped.

    Args:
        trace: the request.
        text: the text of a token id; None shows the ids.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template("trace.html.j2").render(
        trace=trace,
        found=why(trace, text=text),
        stages=STAGES,
        longest=max((each.total_s for each in trace.rounds), default=0.0) or 1.0,
        word=str if text is None else lambda token: text(token).translate(_VISIBLE) or "\u2205",
    )
