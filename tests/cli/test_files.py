"""Files that are not what they seem, streams that are closed or full, pipes, links: a sentence that names them."""

import gzip
import io
import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from commands import FAST, everything, refused, write
from makers import table
from tightset.exceptions import TableError
from tightset.tables.files import TableFile

FIT = ("--target", "kind", *FAST, "--out", "new.tightset")


def zipped(entries, **how):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", **how) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def with_bytes(data, at, value):
    """A zip archive of one file, with a field of both of its headers changed; ``at`` as in the first of them."""
    changed = bytearray(data)
    changed[at] = value
    changed[data.index(b"PK\x01\x02") + at + 2] = value
    return bytes(changed)


# ---- tables -------------------------------------------------------------------------------------------------------


def test_packed_tables_that_cannot_be_read_are_named(here, cli):
    rows = Path("train.csv").read_bytes()
    whole = zipped({"d.csv": rows})
    for name, data, message in (
        ("junk.zip", b"PK\x03\x04junk", "junk.zip is a zip archive that cannot be unpacked: File is not a zip file"),
        (
            "secret.zip",
            with_bytes(whole, 6, 1),
            "secret.zip is a zip archive that cannot be unpacked: File 'd.csv' is enc",
        ),
        (
            "method.zip",
            with_bytes(whole, 8, 99),
            "method.zip is a zip archive that cannot be unpacked: That compression",
        ),
        ("folder.zip", zipped({"d/": ""}), "folder.zip is a zip archive of 0 files"),
        ("twice.csv.gz", gzip.compress(gzip.compress(rows)), "twice.csv.gz is compressed twice; decompress it once"),
        ("inside.zip", zipped({"d.csv.gz": gzip.compress(rows)}), "inside.zip is compressed twice"),
        (
            "feather",
            b"ARROW1\0\0" + bytes(100),
            "feather is a Feather file, which is not supported; save it as Parquet",
        ),
        ("packed.gz", gzip.compress(b"ARROW1\0\0" + bytes(100)), "packed.gz is a Feather file"),
    ):
        write(name, data)
        refused(cli, message, "fit", name, *FIT)
        refused(cli, message, "predict", "m.tightset", name)


def test_a_table_in_a_folder_of_a_zip_archive_is_read(here, cli):
    write("d.zip", zipped({"d/": "", "d/d.csv": Path("test.csv").read_bytes()}))
    assert cli("predict", "m.tightset", "d.zip") == cli("predict", "m.tightset", "test.csv")


@pytest.mark.parametrize("delimiter", ["é", "😀", "\n", "\r", '"', "\0", ";;", ""])
def test_delimiters_that_are_none(delimiter, here, cli):
    message = (
        "the delimiter must be a single character of ASCII, such as ';', and neither a quote nor the end of a line"
    )
    with pytest.raises(TableError, match="single character of ASCII") as caught:
        TableFile("train.csv", delimiter=delimiter)
    assert repr(delimiter) in str(caught.value)
    refused(cli, message, "fit", "train.csv", *FIT, "--delimiter", delimiter)


@pytest.mark.parametrize("encoding", ["hex", "idna", "punycode", "undefined", "zip", "nonsense", "", "a\0b"])
def test_encodings_that_are_none_of_text(encoding, here, cli):
    message = "the encoding must be one of text, such as utf-8, latin-1 or utf-16; got"
    refused(cli, message, "fit", "train.csv", *FIT, "--encoding", encoding)
    refused(cli, message, "predict", "m.tightset", "test.csv", "--encoding", encoding)


# ---- pipes --------------------------------------------------------------------------------------------------------


@pytest.fixture
def pipe():
    """Write some bytes into a pipe, as ``<(...)`` of a shell does, once; it must be read, and once only."""
    writers = []

    def made(data):
        out, into = os.pipe()

        def write():
            with os.fdopen(into, "wb") as file:
                file.write(data)

        writers.append(threading.Thread(target=write, daemon=True))
        writers[-1].start()
        return f"/dev/fd/{out}"

    yield made
    for writer in writers:
        writer.join(30)
        assert not writer.is_alive()


def test_pipes_of_a_shell_are_read_as_standard_input_is(here, cli, pipe):
    rows = Path("test.csv").read_bytes()
    assert cli("predict", "m.tightset", pipe(rows))[1] == cli("predict", "m.tightset", "test.csv")[1]
    assert (
        cli("evaluate", "m.tightset", pipe(rows), "--json")[1] == cli("evaluate", "m.tightset", "test.csv", "--json")[1]
    )
    code, out, err = cli("fit", pipe(Path("train.csv").read_bytes()), *FIT)
    assert (code, err) == (0, "")
    assert "600 rows, 4 columns, 3 labels" in out
    code, _, err = cli("predict", "m.tightset", pipe(zipped({"d.csv": rows})))
    assert code == 1
    assert "is a zip archive; unpack it first" in " ".join(err.split())
    Path("new.tightset").unlink()


def test_a_pipe_with_a_name_is_refused_and_not_waited_for(here, cli, tmp_path):
    os.mkfifo(tmp_path / "named")
    for words in (("predict", "m.tightset", tmp_path / "named"), ("fit", tmp_path / "named", *FIT)):
        code, _, err = cli(*words)
        assert code == 1
        assert "named is a named pipe and not a file; give -" in " ".join(err.split())


def test_pipes_with_names_are_written_to(here, cli, tmp_path):
    wanted = cli("predict", "m.tightset", "test.csv")[1]
    os.mkfifo(tmp_path / "pipe")
    found = []
    reader = threading.Thread(target=lambda: found.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    code, _, err = cli("predict", "m.tightset", "test.csv", "--out", tmp_path / "pipe", "--format", "csv")
    reader.join(30)
    assert code == 0, err
    assert found == [wanted]


# ---- where nothing can be written ---------------------------------------------------------------------------------


def test_links_that_lead_nowhere_are_refused_before_training(here, cli, tmp_path):
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    (tmp_path / "far.csv").symlink_to(tmp_path / "nowhere" / "far.csv")
    fit = ("fit", "train.csv", "--target", "kind", "--out")
    predict = ("predict", "m.tightset", "test.csv", "--out")
    for command in (fit, predict):
        refused(cli, "loop.csv is a link that points to itself", *command, tmp_path / "loop.csv", code=2)
        refused(cli, "there is no folder", *command, tmp_path / "far.csv", code=2)


def test_files_that_are_read_only(here, cli, monkeypatch):
    """Asked of the system, which lets the administrator write everywhere."""
    write("old.csv", "precious")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK or Path(path).name != "old.csv")
    refused(cli, "old.csv is read-only", "predict", "m.tightset", "test.csv", "--out", "old.csv", code=2)
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
    refused(cli, "the folder . cannot be written to", "predict", "m.tightset", "test.csv", "--out", "p.csv", code=2)


LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
sys.argv = ["tightset", *sys.argv[1:]]
from tightset.cli import main
main()
"""


def run(folder, *words, shell=""):
    """Run by a shell, which closes or turns aside standard streams."""
    command = f'exec "$0" -m tightset "$@" {shell}'
    return subprocess.run(
        ["sh", "-c", command, sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False
    )


def test_a_full_disk_names_the_file(folder, tmp_path):
    (tmp_path / "old.csv").write_text("precious")
    words = ["predict", folder / "m.tightset", folder / "test.csv", "--out", "old.csv"]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"tightset: File too large: {tmp_path.resolve() / 'old.csv'}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["old.csv"]
    assert (tmp_path / "old.csv").read_text() == "precious"


@pytest.mark.parametrize("words", [["info", "m.tightset"], ["predict", "m.tightset", "test.csv"]])
def test_a_full_standard_output_is_named(folder, words):
    done = run(folder, *words, shell="> /dev/full")
    assert (done.returncode, done.stderr) == (1, "tightset: No space left on device: standard output\n")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["predict", "m.tightset", "test.csv"], 2),
        (["predict", "m.tightset", "test.csv", "--format", "jsonl"], 2),
        (["info", "m.tightset"], 1),
        (["evaluate", "m.tightset", "test.csv"], 1),
        (["explain", "m.tightset", "test.csv", "--row", "5"], 1),
    ],
)
def test_a_closed_standard_output_is_said(folder, words, code):
    done = run(folder, *words, shell=">&-")
    assert done.returncode == code
    assert "standard output is closed" in done.stderr
    assert "Traceback" not in done.stderr


def test_other_closed_streams(folder, tmp_path, cli):
    model, rows = str(folder / "m.tightset"), str(folder / "test.csv")
    for words in (["predict", model, "-"], ["evaluate", model, "-"], ["fit", "-", "--target", "kind"]):
        done = run(tmp_path, *words, shell="<&-")
        assert (done.returncode, done.stderr) == (1, "tightset: standard input is closed\n")
    done = run(tmp_path, "predict", model, rows, "--out", "p.csv", shell="<&- >&- 2>&-")
    assert done.returncode == 0
    assert (tmp_path / "p.csv").read_text() == cli("predict", model, rows)[1]


def test_a_file_is_not_where_a_closed_stream_was(folder, tmp_path):
    """Else what a library prints would stand in the model."""
    table(120).to_csv(tmp_path / "t.csv", index=False)
    done = run(tmp_path, "fit", "t.csv", "--target", "kind", *FAST, "--out", "m.tightset", shell=">&- <&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert run(tmp_path, "info", "m.tightset").returncode == 0


def test_nothing_is_left_behind(here):
    assert not [name for name in everything() if name.endswith(".part")]
