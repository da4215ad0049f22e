"""Freed memory goes back to the system."""

import ctypes
import os
import sys
from pathlib import Path

import numpy as np

from tightset.compute import memory


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_what_was_freed_is_given_back():
    memory.give_memory_back()  # wherever this runs
    if sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"):  # another allocator
        return
    many = [np.ones(12_000) for _ in range(1000)]  # small enough for the heap, 96 MB in all
    many = many[::100]  # what stays keeps the heap from shrinking by itself
    before = resident()
    memory.give_memory_back()
    assert before - resident() > 50e6


def test_without_such_an_allocator_nothing_happens(monkeypatch):
    def missing(name):
        raise OSError(name)

    for library in (missing, lambda _: object()):
        monkeypatch.setattr(memory.ctypes, "CDLL", library)
        memory.give_memory_back()
