"""The paper's data sets: prepared as in its table from real files, refused when damaged, fetched from a hostile server."""

import hashlib
import http.server
import io
import shutil
import tarfile
import threading
import zipfile
from functools import cache

import numpy as np
import pytest

from studies import fetch as fetching
from studies.datasets import KNOWN, DataError, data_folder, load
from studies.fetch import fetch, present
from studies.recipes import ARCHIVE, DATASETS, DataSet, RawFile
from studies.summary import printed

once = cache(load)  # for tests that only look at the parts


@pytest.mark.parametrize("name", DATASETS)
def test_rows_columns_labels_and_parts_are_those_of_the_papers_table(name, raw_data):
    split = once(name, 0, raw_data)
    row = next(row for row in printed("datasets") if row["dataset"] == name)
    assert str(len(split.y_train)) == row["train"]
    assert {len(split.y_cal), len(split.y_test)} == {int(row["calibration"]), int(row["test"])}
    assert len(np.unique(split.y_train)) == int(row["labels"])
    if name != "wine":  # its 64 variables cannot be derived from the 11 there are
        assert split.X_train.shape[1] == int(row["variables"])
    labels = np.concatenate([split.y_train, split.y_cal, split.y_test])
    majority = 100 * np.unique(labels, return_counts=True)[1].max() / len(labels)
    assert majority == pytest.approx(float(row["majority_pct"]), abs=1.3)
    assert np.isfinite(split.X_train).all()


@pytest.mark.parametrize("name", DATASETS)
def test_seeds_draw_other_rows_and_the_same_seed_the_same(name, raw_data):
    first, again, other = once(name, 1, raw_data), load(name, 1, raw_data), once(name, 2, raw_data)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (first.X_train != other.X_train).any()


@pytest.mark.parametrize("name", DATASETS)
def test_no_row_is_in_two_parts(name, raw_data):
    split = once(name, 1, raw_data)
    rows = np.concatenate([split.X_train, split.X_cal, split.X_test])
    labels = np.concatenate([split.y_train, split.y_cal, split.y_test])
    everything = {
        "avila": 20867,
        "covtype": 36000,
        "dna": 2000,
        "fotp": 6118,
        "wine": 6497,
        "polish": 1332,
        "mice": 1077,
    }
    assert len(labels) == everything[name]
    if name in {"covtype", "mice"}:  # sets without duplicate rows: a row drawn twice would show
        assert len(np.unique(rows, axis=0)) == len(rows)


def test_missing_proteins_are_imputed_from_training_rows_only(raw_data, monkeypatch):
    seen = []
    original = np.nanmean
    monkeypatch.setattr(np, "nanmean", lambda x, axis: seen.append(x.shape) or original(x, axis=axis))
    load("mice", 0, raw_data)
    assert seen == [(359, 71)]


def test_the_original_arff_of_polish_is_read(raw_data, tmp_path):
    import gzip

    lines = gzip.decompress((raw_data / "polish" / "3year.csv.gz").read_bytes()).decode().splitlines()
    (tmp_path / "polish").mkdir()
    body = "\n".join(",".join(cell or "?" for cell in line.split(",")) for line in lines[1:])
    (tmp_path / "polish" / "3year.arff").write_text(f"@relation x\n@attribute a numeric\n@DATA\n{body}\n")
    np.testing.assert_array_equal(load("polish", 2, tmp_path).X_train, once("polish", 2, raw_data).X_train)


def test_avila_and_fotp_keep_their_given_parts(raw_data):
    np.testing.assert_array_equal(once("avila", 1, raw_data).X_test, once("avila", 2, raw_data).X_test)
    table = np.loadtxt(raw_data / "fotp" / "train.csv", delimiter=",")
    np.testing.assert_array_equal(once("fotp", 0, raw_data).X_train, table[:, :51])


@pytest.mark.parametrize("damage", ["cut", "altered", "other", "missing"])
def test_a_damaged_file_is_refused_by_name(damage, raw_data, tmp_path):
    shutil.copytree(raw_data / "wine", tmp_path / "wine")
    path = tmp_path / "wine" / "winequality-red.csv"
    path.chmod(0o644)
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes({"cut": content[:-100], "altered": b"x" + content[1:], "other": b"<html>sorry</html>"}[damage])
    expected = {
        "missing": "cannot be read",
        "altered": "SHA-256",
        "cut": "84099 bytes, 84199 expected",
        "other": "bytes",
    }
    with pytest.raises(DataError, match=expected[damage]) as caught:
        load("wine", 0, tmp_path)
    assert "winequality-red.csv" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "file"), [("polish", "3year.arff"), ("dna", "dna.csv"), ("mice", "Data_Cortex_Nuclear.csv")]
)
def test_a_file_without_a_known_checksum_is_judged_by_its_content(name, file, tmp_path):
    (tmp_path / name).mkdir()
    (tmp_path / name / file).write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=f"{file} is not what it should be"):
        load(name, 0, tmp_path)
    assert not present(DATASETS[name], tmp_path)


def test_altered_numbers_of_mice_are_noticed(raw_data, tmp_path):
    (tmp_path / "mice").mkdir()
    text = (raw_data / "mice" / "Data_Cortex_Nuclear.csv").read_text()
    (tmp_path / "mice" / "Data_Cortex_Nuclear.csv").write_text(text.replace("0.503643884", "0.603643884", 1))
    with pytest.raises(DataError, match="numbers are not those of the published table"):
        load("mice", 0, tmp_path)


def test_a_good_variant_beside_a_damaged_one_is_used(raw_data, tmp_path):
    shutil.copytree(raw_data / "covtype", tmp_path / "covtype")
    (tmp_path / "covtype").chmod(0o755)
    (tmp_path / "covtype" / "covtype.data.gz").write_bytes(b"damaged")
    np.testing.assert_array_equal(load("covtype", 0, tmp_path).y_test, once("covtype", 0, raw_data).y_test)


def test_own_conversions_of_dna_and_mice_are_read(raw_data, tmp_path):
    import gzip

    (tmp_path / "dna").mkdir()
    (tmp_path / "mice").mkdir()
    (tmp_path / "dna" / "dna.csv").write_bytes(gzip.decompress((raw_data / "dna" / "dna_mlbench.csv.gz").read_bytes()))
    windows = (raw_data / "mice" / "Data_Cortex_Nuclear.csv").read_bytes().replace(b"\n", b"\r\n")
    (tmp_path / "mice" / "Data_Cortex_Nuclear.csv").write_bytes(b"\xef\xbb\xbf" + windows)
    for name in ("dna", "mice"):
        np.testing.assert_array_equal(load(name, 2, tmp_path).X_train, once(name, 2, raw_data).X_train)


def test_the_full_covtype_file_is_read_like_the_sample(raw_data, tmp_path, monkeypatch):
    """No header and another name; its checksum is known, so the test replaces it by that of a stand-in."""
    import gzip

    lines = gzip.decompress((raw_data / "covtype" / "covtype_16pct.csv.gz").read_bytes()).split(b"\n", 1)[1]
    (tmp_path / "covtype").mkdir()
    stand_in = gzip.compress(lines, mtime=0)
    (tmp_path / "covtype" / "covtype.data.gz").write_bytes(stand_in)
    with pytest.raises(DataError, match="SHA-256"):
        load("covtype", 0, tmp_path)
    file = RawFile("covtype/covtype.data.gz", None, hashlib.sha256(stand_in).hexdigest())
    changed = DATASETS["covtype"]._replace(variants=((file,), *DATASETS["covtype"].variants[1:]))
    monkeypatch.setitem(KNOWN, "covtype", changed)
    np.testing.assert_array_equal(load("covtype", 0, tmp_path).X_train, once("covtype", 0, raw_data).X_train)


def test_where_data_are_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("TIGHTSET_DATA", str(tmp_path / "named"))
    assert str(data_folder("given")) == "given"
    assert data_folder() == tmp_path / "named"
    monkeypatch.delenv("TIGHTSET_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_folder() == tmp_path / "tightset"


# ---- downloads ------------------------------------------------------------------------------------------------------

CONTENT = np.random.default_rng(0).bytes(300_000)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(fetching, "_PAUSE", 0.0)


def tarball():
    """As fotp's archive is: a tar inside the zip."""
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:gz") as file:
        info = tarfile.TarInfo("inner/toy.csv")
        info.size = len(CONTENT)
        file.addfile(info, io.BytesIO(CONTENT))
    return archive(inner.getvalue(), "inner.tar.gz")


def archive(content=CONTENT, name="inner/toy.csv"):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, content)
    return buffer.getvalue()


TOY = DataSet(
    "toy",
    1,
    2,
    (1, 1, 1),
    ((RawFile("toy/toy.csv", len(CONTENT), hashlib.sha256(CONTENT).hexdigest()),),),
    None,
    f"{ARCHIVE}/1/toy.zip",
    {"toy.csv": "toy/toy.csv"},
    "a toy",
)


class Server:
    """Serves one archive on localhost, and misbehaves as told: a list of manners, one a request, the last one for all."""

    def __init__(self, body, *manners):
        self.requests = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                manner = manners[min(len(outer.requests), len(manners) - 1)] if manners else "good"
                asked = self.headers.get("Range")
                outer.requests.append(asked)
                start = int(asked.split("=")[1].rstrip("-")) if asked and manner != "no ranges" else 0
                if manner in {"404", "503"}:
                    self.send_error(int(manner))
                    return
                if start >= len(body):
                    self.send_error(416)
                    return
                self.send_response(206 if start else 200)
                if start:
                    shift = 7 if manner == "wrong range" else 0
                    self.send_header("Content-Range", f"bytes {start + shift}-{len(body) - 1}/{len(body)}")
                if manner != "no length":
                    self.send_header("Content-Length", str(len(body) - start))
                self.end_headers()
                if manner == "cut":
                    self.wfile.write(body[start : start + 70_000])
                elif manner == "stall":
                    self.wfile.write(body[start : start + 70_000])
                    self.wfile.flush()
                    outer.released.wait(5)
                else:
                    self.wfile.write(body[start:])

            def log_message(self, *args):
                pass

        self.released = threading.Event()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()


def only_files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_good_download_is_put_in_place_and_not_repeated(tmp_path):
    seen = []
    with Server(archive()) as server:
        assert fetch(TOY, tmp_path, mirror=server.address, progress=lambda have, total: seen.append((have, total)))
        assert not fetch(TOY, tmp_path, mirror=server.address)
    assert len(server.requests) == 1
    assert (tmp_path / "toy" / "toy.csv").read_bytes() == CONTENT
    assert only_files(tmp_path) == ["toy/toy.csv"]
    assert seen[-1] == (len(archive()), len(archive()))


@pytest.mark.parametrize("manner", ["cut", "stall"])
def test_a_broken_connection_is_resumed_where_it_stopped(manner, tmp_path):
    with Server(archive(), manner, manner, "good") as server:
        assert fetch(TOY, tmp_path, mirror=server.address, timeout=0.5)
    assert server.requests == [None, "bytes=70000-", "bytes=140000-"]
    assert present(TOY, tmp_path)


@pytest.mark.parametrize("manners", [("503", "good"), ("cut", "wrong range", "good"), ("no length",)])
def test_other_manners_are_borne(manners, tmp_path):
    with Server(archive(), *manners) as server:
        assert fetch(TOY, tmp_path, mirror=server.address)
    assert (tmp_path / "toy" / "toy.csv").read_bytes() == CONTENT


def test_a_tar_inside_the_archive_is_unpacked(tmp_path):
    with Server(tarball()) as server:
        assert fetch(TOY, tmp_path, mirror=server.address)
    assert (tmp_path / "toy" / "toy.csv").read_bytes() == CONTENT


def test_a_server_without_ranges_starts_over(tmp_path):
    with Server(archive(), "cut", "no ranges") as server:
        assert fetch(TOY, tmp_path, mirror=server.address)
    assert present(TOY, tmp_path)


def test_what_was_downloaded_survives_giving_up_and_is_used_by_the_next_call(tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "_TRIES", 2)
    with (
        Server(archive(), "cut") as server,
        pytest.raises(DataError, match=r"broke off, 140000 bytes are kept; run the same command again"),
    ):
        fetch(TOY, tmp_path, mirror=server.address)
    assert only_files(tmp_path) == ["toy.part"]
    with Server(archive()) as server:
        assert fetch(TOY, tmp_path, mirror=server.address)
    assert server.requests == ["bytes=140000-"]


def test_a_complete_part_needs_nothing_more(tmp_path):
    (tmp_path / "toy.part").write_bytes(archive())
    with Server(archive()) as server:
        assert fetch(TOY, tmp_path, mirror=server.address)
    assert present(TOY, tmp_path)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (archive(CONTENT[:-1]), "299999 bytes, 300000 expected"),
        (archive(b"x" + CONTENT[1:]), "SHA-256"),
        (archive(name="other.csv"), "no toy.csv"),
        (b"<html>please log in</html>", "not a zip file"),
        (archive()[:100_000] + b"\7" * 50_000 + archive()[150_000:], "rror|CRC"),
    ],
)
def test_wrong_bytes_are_refused_and_removed(body, message, tmp_path):
    with Server(body) as server, pytest.raises(DataError, match=message):
        fetch(TOY, tmp_path, mirror=server.address)
    assert only_files(tmp_path) == []
    with Server(archive()) as server:
        assert fetch(TOY, tmp_path, mirror=server.address)


def test_an_archive_that_unpacks_without_end_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "_LARGEST", 100_000)
    with Server(archive()) as server, pytest.raises(DataError, match="unpacks to more than 100000 bytes"):
        fetch(TOY, tmp_path, mirror=server.address)
    assert only_files(tmp_path) == []


def test_404_and_no_network_say_in_one_line_what_to_place_where(tmp_path):
    with Server(archive(), "404") as server, pytest.raises(DataError, match=r"answered 404.*by hand") as caught:
        fetch(TOY, tmp_path, mirror=server.address)
    assert str(tmp_path / "toy" / "toy.csv") in str(caught.value)
    with pytest.raises(DataError, match=r"cannot be reached .*by hand") as caught:
        fetch(TOY, tmp_path, mirror=server.address)  # the server is gone
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match=r"cannot be downloaded.*Data_Cortex_Nuclear\.csv.*Excel"):
        fetch(DATASETS["mice"], tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with Server(archive()) as server, pytest.raises(DataError, match=r"file.* cannot be written"):
        fetch(TOY, tmp_path / "file" / "deeper", mirror=server.address)


def test_good_files_of_the_real_sets_are_recognised(raw_data):
    for dataset in DATASETS.values():
        assert present(dataset, raw_data)
