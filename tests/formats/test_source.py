import hashlib
import os
import socket

import numpy as np
import pytest

from cuzk_engine.errors import FormatError
from cuzk_engine.formats.source import FileIdentity, SourceFile, open_regular, read_at
from cuzk_engine.formats.zkey import ZKey
from tests.support.cases import case

KEY = case("bn128", "mul_pub").path("circuit.zkey")


@pytest.mark.parametrize("copy_below", [0, 1 << 30], ids=["mapped", "copied"])
def test_holds_the_bytes_and_does_not_let_them_be_written(copy_below):
    source = SourceFile.open(KEY, copy_below=copy_below)
    assert source.mapped is (copy_below == 0)
    assert source.data.tobytes() == KEY.read_bytes()
    with pytest.raises(ValueError, match="read-only"):
        source.data[0] = 1


def test_small_files_are_copied_and_large_ones_mapped(tmp_path):
    path = tmp_path / "file"
    for size, mapped in (((4 << 20) - 1, False), (4 << 20, True)):
        with path.open("wb") as file:
            file.truncate(size)
        assert SourceFile.open(path).mapped is mapped


@pytest.mark.parametrize("copy_below", [0, 1])
def test_an_empty_file_is_no_error_of_its_own(tmp_path, copy_below):
    path = tmp_path / "empty"
    path.touch()
    source = SourceFile.open(path, copy_below=copy_below)
    assert source.size == 0
    assert source.content_hash() == hashlib.blake2b(digest_size=32).hexdigest()


def test_content_hash(tmp_path):
    data = np.random.default_rng(1).bytes((2 << 20) + 17)
    path = tmp_path / "file"
    path.write_bytes(data)
    assert SourceFile.open(path).content_hash() == hashlib.blake2b(data, digest_size=32).hexdigest()


def test_no_descriptor_stays_open():
    before = os.listdir("/proc/self/fd")
    copied = SourceFile.open(KEY)
    assert os.listdir("/proc/self/fd") == before
    mapped = SourceFile.open(KEY, copy_below=0)
    view = mapped.data[3:10]
    del mapped
    assert view.tobytes() == copied.data[3:10].tobytes()
    del view
    assert os.listdir("/proc/self/fd") == before


def expect_refusal(path, message):
    with pytest.raises(FormatError) as caught:
        SourceFile.open(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing(tmp_path):
    expect_refusal(tmp_path / "absent", "no such file")


def test_folder(tmp_path):
    expect_refusal(tmp_path, "is a folder, expected a regular file")


def test_file_where_a_folder_should_be(tmp_path):
    (tmp_path / "file").touch()
    expect_refusal(tmp_path / "file" / "inner", "not a directory")


@pytest.mark.timeout(5)
def test_pipe_without_a_writer_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    expect_refusal(tmp_path / "pipe", "is a pipe, expected a regular file")


@pytest.mark.timeout(5)
def test_path_that_becomes_a_pipe_is_refused_at_once(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    regular = os.stat(KEY)
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", lambda *_args, **_kwargs: regular)
        with pytest.raises(FormatError, match="is a pipe"), open_regular(tmp_path / "pipe"):
            pass


def test_device():
    expect_refusal("/dev/zero", "is a device, expected a regular file")


def test_socket(cuzk_home):
    path = cuzk_home / "socket"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        expect_refusal(path, "is a socket, expected a regular file")


def test_dangling_link_names_its_target(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "gone.zkey")
    expect_refusal(link, f"is a link to {tmp_path / 'gone.zkey'}, which does not exist")


def test_link_to_itself(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(link)
    expect_refusal(link, "cannot be opened: too many levels of symbolic links")


def test_path_with_a_zero_byte():
    with pytest.raises(FormatError, match=r"^a\\x00b: cannot be opened"):
        SourceFile.open("a\0b")


def test_no_permission(tmp_path, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)  # root may read everything
        expect_refusal(KEY, "permission denied")


def test_an_error_of_the_disk_names_the_file(monkeypatch):
    def fail(*_args):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", fail)
        expect_refusal(KEY, "cannot be read: input/output error")


@pytest.mark.parametrize("name", ["with space.zkey", "schlüssel-鍵.zkey", "-o.zkey", "'quoted\".zkey"])
@pytest.mark.parametrize("copy_below", [0, 1 << 30], ids=["mapped", "copied"])
def test_unusual_names_and_read_only_files(tmp_path, name, copy_below):
    path = tmp_path / name
    path.write_bytes(KEY.read_bytes())
    path.chmod(0o444)
    link = tmp_path / "link"
    link.symlink_to(path)
    for opened in (path, link):
        assert ZKey.open(opened, copy_below=copy_below).n_vars == 8


def test_a_name_that_is_not_utf_8(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.zkey")
    with open(path, "wb") as file:
        file.write(KEY.read_bytes())
    assert ZKey.open(path).n_vars == 8


@pytest.fixture(params=[0, 1 << 30], ids=["mapped", "copied"])
def opened(request, tmp_path):
    path = tmp_path / "key"
    path.write_bytes(KEY.read_bytes())
    return path, SourceFile.open(path, copy_below=request.param)


def test_unchanged(opened):
    _, source = opened
    assert source.is_unchanged()


def test_replaced_by_rename_keeps_the_old_bytes(opened, tmp_path):
    path, source = opened
    other = tmp_path / "other"
    other.write_bytes(bytes(source.size))
    os.utime(other, ns=(source.identity.mtime_ns, source.identity.mtime_ns))
    other.replace(path)
    assert not source.is_unchanged()
    assert source.data.tobytes() == KEY.read_bytes()


def test_overwritten_in_place_with_the_same_size_and_time(opened):
    path, source = opened
    path.write_bytes(bytes(source.size))
    os.utime(path, ns=(source.identity.mtime_ns, source.identity.mtime_ns))
    assert not source.is_unchanged()


def test_cut_short(opened):
    path, source = opened
    os.truncate(path, 100)
    assert not source.is_unchanged()


def test_removed(opened):
    path, source = opened
    path.unlink()
    assert not source.is_unchanged()
    assert FileIdentity.of(path) is None


@pytest.mark.parametrize("copy_below", [0, 1 << 30], ids=["mapped", "copied"])
@pytest.mark.parametrize("size", [10, 5468, 6000])
def test_a_file_that_changes_while_it_is_read(tmp_path, monkeypatch, copy_below, size):
    path = tmp_path / "key"
    path.write_bytes(KEY.read_bytes())
    fstat, calls = os.fstat, []

    def fstat_and_change(descriptor):
        calls.append(descriptor)
        if len(calls) == 2:
            os.truncate(path, size)
        return fstat(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", fstat_and_change)
        with pytest.raises(FormatError, match="changed while it was read"):
            SourceFile.open(path, copy_below=copy_below)


def test_a_short_read_is_seen(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    with open_regular(path) as (descriptor, _):
        assert read_at(descriptor, 10, 1) == b"bc"


def test_a_buffer_is_not_copied():
    data = bytearray(b"abc")
    source = SourceFile.from_buffer(data, "the witness")
    data[0] = ord("x")
    assert source.data.tobytes() == b"xbc"
    assert source.identity is None
    assert source.is_unchanged()
