import errno
import os
import resource
import stat
import threading

import pytest

from cuzk_engine.errors import CuzkError
from cuzk_engine.formats.atomic import PendingFile, prepared, write_atomically


def expect_failure(path, message, data=b"new", **options):
    with pytest.raises(CuzkError) as caught:
        write_atomically(path, data, **options)
    shown = str(path).replace("\0", "\\x00")
    assert str(caught.value).startswith(f"{shown}: cannot be written: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def permissions(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("data", [b"", b"bytes\0", "text, ü", b"x" * 3_000_000])
@pytest.mark.parametrize("name", ["proof.json", "with space ü鍵.json", "n" * 255])
def test_a_new_file(tmp_path, data, name):
    path = tmp_path / name
    write_atomically(path, data)
    assert path.read_bytes() == (data.encode() if isinstance(data, str) else data)
    assert os.listdir(tmp_path) == [name]


def test_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_atomically("proof.json", "new")
    assert (tmp_path / "proof.json").read_text() == "new"


def test_a_new_file_follows_the_umask(tmp_path):
    old = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a", "new")
    finally:
        os.umask(old)
    assert permissions(tmp_path / "a") == 0o640


def test_an_existing_file_is_replaced_and_keeps_its_permissions(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o604)
    write_atomically(path, "new")
    assert (path.read_text(), permissions(path)) == ("new", 0o604)
    assert os.listdir(tmp_path) == ["a"]


def test_permissions_that_are_asked_for(tmp_path):
    for name in ("a", "b"):
        path = tmp_path / name
        if name == "b":
            path.write_text("old")
        write_atomically(path, "new", mode=0o600)
        assert permissions(path) == 0o600


def test_a_reader_sees_the_old_or_the_new_file(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with path.open() as reader:
        write_atomically(path, "new")
        assert reader.read() == "old"


def test_a_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    link.symlink_to(target)
    for text in ("made", "replaced"):  # the link dangles at first
        write_atomically(link, text)
        assert link.is_symlink()
        assert target.read_text() == text
    assert os.listdir(tmp_path / "folder") == ["target"]


class TestFailures:
    """The old file stays, and nothing is left beside it."""

    @pytest.fixture(params=[True, False], ids=["existing", "new"])
    def path(self, request, tmp_path):
        path = tmp_path / "proof.json"
        if request.param:
            path.write_text("old")
        yield path
        assert os.listdir(tmp_path) == (["proof.json"] if request.param else [])
        if request.param:
            assert path.read_text() == "old"

    def test_full_disk_after_a_part(self, path, monkeypatch):
        write = os.write

        def run_full(descriptor, data):
            if len(data) < 1000:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(descriptor, data[:600])

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", run_full)
            expect_failure(path, "no space left on the device", b"x" * 1500)

    @pytest.mark.parametrize("step", ["fsync", "fchmod", "replace", "close"])
    def test_an_error_at_every_step(self, path, monkeypatch, step):
        real = getattr(os, step)

        def fail(*args):
            if step == "close":
                real(*args)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as patch:
            patch.setattr(os, step, fail)
            expect_failure(path, "input/output error", mode=0o644)

    def test_a_limit_of_the_system(self, path):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        try:
            expect_failure(path, "file too large", b"x" * 200_000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    @pytest.mark.parametrize("step", ["write", "fsync", "replace"])
    def test_an_interruption(self, path, monkeypatch, step):
        def interrupt(*_args):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(os, step, interrupt)
            with pytest.raises(KeyboardInterrupt):
                write_atomically(path, b"new")

    def test_not_committed(self, path):
        with PendingFile(path, b"new"):
            pass

    def test_an_error_within_the_block(self, path):
        with pytest.raises(RuntimeError), PendingFile(path, b"new"):
            raise RuntimeError


def test_no_descriptor_stays_open(tmp_path, monkeypatch):
    before = os.listdir("/proc/self/fd")
    write_atomically(tmp_path / "a", b"new")
    with monkeypatch.context() as patch:

        def fail(_descriptor):
            raise OSError(errno.EIO, "")

        patch.setattr(os, "fsync", fail)
        expect_failure(tmp_path / "a", "")
    assert os.listdir("/proc/self/fd") == before


def test_a_missing_folder(tmp_path):
    expect_failure(tmp_path / "absent" / "proof.json", f"the folder {tmp_path / 'absent'} does not exist")
    (tmp_path / "link").symlink_to(tmp_path / "gone" / "proof.json")
    expect_failure(tmp_path / "link", f"the folder {tmp_path / 'gone'} does not exist")


def test_a_file_in_place_of_a_folder(tmp_path):
    (tmp_path / "file").touch()
    expect_failure(tmp_path / "file" / "proof.json", "not a directory")


def test_a_folder(tmp_path):
    expect_failure(tmp_path, "is a folder")


def test_a_link_to_itself(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "link")
    expect_failure(tmp_path / "link", "too many levels of symbolic links")


def test_a_name_that_is_too_long(tmp_path):
    expect_failure(tmp_path / ("n" * 256), "name too long")


def test_a_path_with_a_zero_byte():
    expect_failure("a\0b", "null byte")


def test_a_read_only_file_is_kept(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_args: False)  # root may write everything
        expect_failure(path, "the file is read-only")
    assert path.read_text() == "old"


def test_a_full_device():
    expect_failure("/dev/full", "no space left on the device")


def test_a_device_stays_a_device():
    write_atomically("/dev/null", b"new")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.timeout(10)
def test_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    expect_failure(pipe, "nobody reads from this pipe")
    data, received = os.urandom(300_000), []  # more than a pipe holds
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)

    def read():
        while chunk := os.read(descriptor, 1 << 16):
            received.append(chunk)

    # The reader starts once a writer is there: before that, read() would report the end.
    with PendingFile(pipe, data) as pending:
        writer = threading.Thread(target=pending.commit)
        keeper = os.open(pipe, os.O_WRONLY)
        reader = threading.Thread(target=read)
        reader.start()
        writer.start()
        writer.join()
        os.close(keeper)
        reader.join()
    os.close(descriptor)
    assert b"".join(received) == data
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("form", ["/dev/fd/{}", "/proc/self/fd/{}"])
def test_a_descriptor_of_this_process_keeps_what_was_written(tmp_path, form):
    path = tmp_path / "a"
    with path.open("wb", buffering=0) as file:
        file.write(b"one ")
        write_atomically(form.format(file.fileno()), "two ")
        file.write(b"three")
    assert path.read_text() == "one two three"


def test_standard_output(capfdbinary):
    write_atomically("/dev/stdout", "a proof")
    write_atomically("/dev/stderr", "a word")
    assert tuple(capfdbinary.readouterr()) == (b"a proof", b"a word")


def test_several_files(tmp_path):
    first, second = tmp_path / "proof.json", tmp_path / "public.json"
    first.write_text("old")
    held = []

    def data():
        for path, text in ((first, "proof"), (second, b"public")):
            held.append(sum(file.stat().st_size for file in tmp_path.glob("*.tmp")))
            yield path, text

    with prepared(data()) as pending:
        assert (first.read_text(), second.exists()) == ("old", False)
        assert held == [0, 5]  # what came before is on the disk when the next is asked for
        for file in pending:
            file.commit()
    assert (first.read_text(), second.read_text()) == ("proof", "public")
    assert sorted(os.listdir(tmp_path)) == ["proof.json", "public.json"]


def test_several_files_or_none(tmp_path):
    first = tmp_path / "proof.json"
    first.write_text("old")
    files = ((first, "proof"), (tmp_path / "absent" / "public.json", "public"))
    with pytest.raises(CuzkError, match="absent"), prepared(files) as pending:
        pending[0].commit()
    assert first.read_text() == "old"
    assert os.listdir(tmp_path) == ["proof.json"]
