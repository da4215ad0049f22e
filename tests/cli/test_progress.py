"""One bar for a command: what it says is true, and it leaves the terminal clean."""

import re
import signal

import pytest

from commands import FAST
from terminals import lines_of, on_terminal
from tightset.cli.show import reader
from tightset.compute import progress as module
from tightset.compute.progress import Progress, _Bar, current

FRAME = re.compile(r"^[━╸╺ ]+ +(\d+)% (.*)$")


def frames(written):
    """(percent, what is said beside it) of each frame of the bar."""
    found = [FRAME.match(line) for line in lines_of(written)]
    return [(int(one[1]), one[2].strip()) for one in found if one]


def stages(written):
    named = [re.sub(r"^~\d+ \w+ left ", "", said).strip() for _, said in frames(written)]
    return list(dict.fromkeys(named))


def test_a_fit_has_one_bar_that_only_goes_forward(folder):
    fit = (
        "fit",
        "train.csv",
        "--target",
        "kind",
        "--search",
        "thorough",
        *FAST[2:],
        "--test",
        0.2,
        "--out",
        "bar.tightset",
    )
    code, written = on_terminal(fit, folder=folder)
    assert code == 0
    known = [
        "reading train.csv",
        "training",
        "fitting logistic regressions",
        "searching level 1 of 2",
        "searching level 2 of 2",
        "fitting the baseline",
        "writing bar.tightset",
    ]
    seen = stages(written)
    passing = {"training", "fitting the baseline"}  # which may be over before the bar is drawn again
    assert seen == [name for name in known if name in seen or name not in passing]
    done = [percent for percent, _ in frames(written)]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, 100)
    assert "\x1b[1A\x1b[2K\r\x1b[2K" not in written  # two bars, one above the other
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 1  # the cursor is there again


@pytest.mark.parametrize("columns", [60])
def test_compare_says_which_split_it_is_at(folder, columns):
    compare = ("compare", "train.csv", "--target", "kind", "--search", "thorough", *FAST[2:4], "--splits", 2)
    _, written = on_terminal(compare, columns, folder)
    assert [name for name in stages(written) if "searching" in name] == [
        "split 1 of 2: searching",
        "split 2 of 2: searching",
    ]
    done = [percent for percent, _ in frames(written)]
    assert done == sorted(done)
    assert "…" not in written
    assert "split 1 of 2: At equal coverage" in written


def test_an_interrupt_leaves_a_clean_terminal(folder):
    fit = ("fit", "train.csv", "--target", "kind", "--search", "thorough", "--out", "never.tightset")
    code, written = on_terminal(fit, folder=folder, until="searching", signal=signal.SIGINT)
    assert code == 130
    assert lines_of(written)[-1] == "interrupted"
    assert written.rindex("\x1b[?25h") > written.rindex("%")
    assert "Traceback" not in written
    assert not (folder / "never.tightset").exists()


def test_parts_of_parts_never_go_back():
    whole = Progress()
    first, second = whole.split(1, 3)
    first.stage("reading", 4)
    seen = []
    for _ in range(6):  # more steps than were expected
        first.advance()
        seen.append(whole.share)
    assert seen == [1 / 16, 2 / 16, 3 / 16, 0.25, 0.25, 0.25]
    one, two = second.split(1, 1, before="split 1 of 1: ")
    two.expect(2)
    two.advance()
    assert whole.share == pytest.approx(0.25 + 0.75 * 0.75)
    one.expect(1)
    one.advance()  # out of order
    assert whole.share == pytest.approx(0.25 + 0.75 * 0.75)


def test_steps_of_unknown_number_fill_their_part_and_no_more():
    whole = Progress()
    refine, _ = whole.split(1, 1)
    advance, before = refine.approach(), 0.0
    for _ in range(500):
        advance()
        assert before < whole.share <= 0.5 or whole.share == pytest.approx(0.5)
        before = whole.share
    assert whole.share == pytest.approx(0.5, abs=1e-3)


def test_what_has_progress_of_its_own_becomes_a_part():
    whole = Progress()
    _, train = whole.split(1, 1)
    with train.watching(), Progress(show=True) as inner:
        inner.expect(2)
        inner.advance()
        assert whole.share == 0.75
    assert current().share == 0
    assert module._watched.get() is None


def test_time_left_is_told_once_something_is_known():
    now = [0.0]
    bar = _Bar(show=False, clock=lambda: now[0])
    bar.stage(0.0, "reading")
    bar.move(0.1)
    assert bar.left() == ""  # nothing is known in no time
    now[0] = 1.0
    bar.stage(0.1, "searching")
    now[0] = 11.0
    bar.move(0.2)
    assert bar.left() == "~80 s left"  # by the speed of this stage
    now[0] = 21.0
    assert bar.left() == "~70 s left"  # it counts down in between
    now[0] = 101.0
    assert bar.left() == "~13 min left"  # a step that takes long
    bar.move(0.9)
    bar.stage(0.9, "writing")
    assert bar.left() == ""  # the speed of the stage before says nothing of this one
    now[0] = 104.0
    bar.move(0.905)
    assert bar.left() == ""  # nor does a first small step
    bar.move(1.0)
    assert bar.left() == "~1 s left"


def test_long_work_without_a_terminal_says_once_how_long_it_takes(capsys):
    now = [0.0]

    def moves(seconds, share, *, show="auto"):
        bar = _Bar(show=show, clock=lambda: now[0])
        now[0] = 0.0
        bar.begin()
        bar.stage(0.0, "searching")
        for part in (0.25, 0.5, 1.0):
            now[0] = part * seconds
            bar.move(part * share)
        return capsys.readouterr().err

    assert moves(30, 0.1) == "tightset: searching; about 5 min left\n"  # 2.5 % in 7.5 s
    assert moves(50, 1.0) == ""  # under a minute
    assert moves(1.5, 0.02) == ""  # too soon to tell
    assert moves(30, 0.1, show=False) == ""


def test_passes_over_a_file_are_one_part():
    whole = Progress()
    read, _ = whole.split(1, 1)
    told = reader(read, "reading", 100, passes=2)
    seen = []
    for n_bytes in (0, 50, 100, 0, 50, 100):
        told(n_bytes)
        seen.append(whole.share)
    assert seen == [0, 0.125, 0.25, 0.25, 0.375, 0.5]
