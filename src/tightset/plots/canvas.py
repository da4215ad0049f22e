"""What all figures share: axes, colours for light and dark backgrounds, percentages, legends."""

from __future__ import annotations

from typing import Any

__all__ = [
    "COLOURS",
    "HATCHES",
    "LINES",
    "MARKERS",
    "SHARE",
    "axes_for",
    "colour_of_text",
    "draw_cuts",
    "legend_above",
    "line_style",
    "new_figure",
    "percent",
    "percent_ticks",
    "shortened",
]

# At least 3 : 1 against white and against #111; neighbours differ in lightness, for grey and for colour-blind eyes.
COLOURS = ("#2F72C8", "#C77700", "#AA4499", "#009E73", "#C0392B", "#8A8A8A", "#7B4FB5", "#CC79A7")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 3)), (0, (3, 1)))
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "ooo", "++", "--")
SHARE = 0.95  # of cases that fall into bands and intervals
_LETTERS = 80  # in a line of a legend


def new_figure(width: float, height: float) -> Any:
    """A figure that pyplot, and so a notebook, knows of."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError('figures need matplotlib: pip install "tightset[plots]"') from None
    return plt.figure(figsize=(width, height), layout="constrained")


def axes_for(ax: Any, width: float = 6.0, height: float = 4.0) -> Any:
    """``ax``, or that of a new figure."""
    if ax is None:
        return new_figure(width, height).add_subplot()
    if not hasattr(ax, "get_xaxis_transform"):
        raise ValueError(f"ax must be one matplotlib Axes; got {type(ax).__name__}")
    return ax


def colour_of_text(ax: Any) -> Any:
    """The colour in which the style in force writes on these axes."""
    return ax.xaxis.label.get_color()


def draw_cuts(ax: Any, cuts: Any, eps: float) -> None:
    """Lines at the p-values above which labels are in the set: one at ``eps``, or for the bar of each label its own."""
    how = {"color": colour_of_text(ax), "ls": "--", "lw": 1.1}
    if len(set(cuts)) > 1:
        bars = range(len(cuts))
        ax.vlines(cuts, [at - 0.5 for at in bars], [at + 0.5 for at in bars], label="line of each label", **how)
        return
    why = f"1 \N{MINUS SIGN} confidence = {eps:g}" if cuts[0] == eps else f"line with assurance: {cuts[0]:.3g}"
    ax.axvline(cuts[0], label=why, **how)


def line_style(at: int) -> dict[str, Any]:
    """Of the line of predictor number ``at``."""
    return {
        "color": COLOURS[at % len(COLOURS)],
        "ls": LINES[at % len(LINES)],
        "marker": MARKERS[at % len(MARKERS)],
        "ms": 4.5,
        "lw": 1.6,
    }


def percent(level: Any) -> str:
    """A share as it is written.

    >>> percent(0.95)
    '95 %'
    """
    return f"{round(100 * float(level), 6):g} %".replace("-", "\N{MINUS SIGN}")


def percent_ticks(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: percent(value)))


def shortened(label: Any, letters: int = 24) -> str:
    """A label that is not too long for a tick, and not read as a formula; what is cut out is cut out of its middle.

    >>> shortened("Quercus robur subspecies 17", 16)
    'Quercus …cies 17'
    """
    text = str(label).replace("\n", " ")
    if len(text) > letters:
        tail = letters // 2 - 1
        text = f"{text[: letters - 1 - tail]}…{text[-tail:]}"
    return text.replace("$", r"\$")


def legend_above(ax: Any, handles: Any = None, **more: Any) -> None:
    """A legend over the axes, where no data are, in as many columns as there is room for."""
    handles = ax.get_legend_handles_labels()[0] if handles is None else handles
    if not handles:
        return
    widest = max(len(str(handle.get_label())) for handle in handles) + 6
    ax.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=max(1, min(len(handles), _LETTERS // widest)),
        frameon=False,
        fontsize="small",
        borderaxespad=0.2,
        **more,
    )
