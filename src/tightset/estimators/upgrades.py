"""Parameters in model files of the first version that are settings of the search now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tightset.search.settings import SEARCHES, Grid, Search, as_search

__all__ = ["with_search"]

_OF_SEARCH = ("measure", "unfold", "max_iter", "average", "boost", "standardise")
_MOVED = tuple(dict.fromkeys((*_OF_SEARCH, *Grid.names())))


def with_search(parts: dict[str, Any]) -> dict[str, Any]:
    """Fields of a model file in which what is tried is ``search``, and not a parameter each."""
    rest = dict(parts)
    moved = {name: rest.pop(name) for name in _MOVED if name in rest}
    if moved:
        rest["search"] = _search_of(rest.get("search", "default"), moved)
    return rest


def _search_of(search: Any, moved: dict[str, Any]) -> Any:
    """The settings that parameters of the first version say; the name of a search that they do not change."""
    if search == "grid":
        return Grid(**{name: moved[name] for name in Grid.names() if moved.get(name) is not None})
    settings = as_search(search)
    if not isinstance(settings, Search):
        return settings
    own = {name: moved[name] for name in _OF_SEARCH if name != "measure" and moved.get(name) is not None}
    changed = replace(settings, **own)
    if moved.get("measure") is not None:
        changed = changed.only(moved["measure"])
    return search if isinstance(search, str) and changed == SEARCHES[search] else changed
