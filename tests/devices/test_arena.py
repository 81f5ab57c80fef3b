"""The CPU device's limit: from the setting, the environment, the container or the machine."""

import pytest

from cuzk_engine.devices.arena import check_budget, host_budget, machine_limit, resolve
from cuzk_engine.errors import SettingError

GIB = 1 << 30
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
V1_MOUNT = "31 23 0:27 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n"
OTHER_MOUNTS = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n32 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"


def machine(root, total=16 * GIB, cgroup="", mounts="", limits=()):
    """A root folder with the files that the kernel would show."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal:       {total >> 10} kB\nMemFree:        1024 kB\n")
    (root / "proc/self/cgroup").write_text(cgroup)
    (root / "proc/self/mountinfo").write_text(OTHER_MOUNTS + mounts)
    for name, text in limits:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(
    ("cgroup", "mounts", "limits", "expected", "source"),
    [
        ("", "", [], 16 * GIB, "memory of the machine"),
        ("0::/job\n", V2_MOUNT, [("sys/fs/cgroup/job/memory.max", 2 * GIB)], 2 * GIB, "cgroup limit"),
        ("0::/job\n", V2_MOUNT, [("sys/fs/cgroup/job/memory.max", "max")], 16 * GIB, "memory of the machine"),
        # The limit of a group above counts as well.
        (
            "0::/outer/inner\n",
            V2_MOUNT,
            [("sys/fs/cgroup/outer/memory.max", GIB), ("sys/fs/cgroup/outer/inner/memory.max", 3 * GIB)],
            GIB,
            "cgroup limit",
        ),
        # In a container the path is the host's, and the mount shows the container's own group.
        ("0::/docker/12ab\n", V2_MOUNT, [("sys/fs/cgroup/memory.max", GIB)], GIB, "cgroup limit"),
        (
            "5:cpu:/job\n4:memory:/job\n0::/\n",
            V1_MOUNT,
            [("sys/fs/cgroup/memory/job/memory.limit_in_bytes", 4 * GIB)],
            4 * GIB,
            "cgroup limit",
        ),
        (
            "4:memory:/job\n",
            V1_MOUNT,
            [("sys/fs/cgroup/memory/job/memory.limit_in_bytes", 9223372036854771712)],
            16 * GIB,
            "memory of the machine",
        ),
        # A limit above the machine's memory limits nothing.
        ("0::/job\n", V2_MOUNT, [("sys/fs/cgroup/job/memory.max", 64 * GIB)], 16 * GIB, "memory of the machine"),
        ("0::/job\n", V2_MOUNT, [("sys/fs/cgroup/job/memory.max", "garbage")], 16 * GIB, "memory of the machine"),
    ],
)
def test_limit_of_machine_and_container(tmp_path, cgroup, mounts, limits, expected, source):
    found = machine_limit(machine(tmp_path, cgroup=cgroup, mounts=mounts, limits=limits))
    assert (found.nbytes, found.source) == (expected, source)


@pytest.mark.parametrize(("total", "margin"), [(16 * GIB, 16 * GIB // 10), (GIB, 256 << 20), (400 << 20, 200 << 20)])
def test_auto_leaves_a_margin(tmp_path, total, margin):
    found = resolve("auto", {}, machine(tmp_path, total=total))
    assert (found.nbytes, found.source) == (total - margin, "memory of the machine")


def test_setting_and_environment(tmp_path):
    root = machine(tmp_path)
    assert resolve("2GiB", {}, root) == resolve("3GiB", {"CUZK_CPU_ARENA": "2GiB"}, root).__class__(
        2 * GIB, "cpu.arena"
    )
    assert resolve("3GiB", {"CUZK_CPU_ARENA": "2GiB"}, root).source == "CUZK_CPU_ARENA"
    assert resolve("3GiB", {"CUZK_CPU_ARENA": "auto"}, root).nbytes == 3 * GIB
    assert resolve("auto", {"CUZK_CPU_ARENA": "1.5GiB"}, root).nbytes == 3 * GIB // 2


@pytest.mark.parametrize("text", ["", "12", "lots", "-1GiB", "2 gib", "auto ", "0", "1KiB", "1e3GiB"])
def test_what_is_no_size_is_refused(text, tmp_path):
    root = machine(tmp_path)
    with pytest.raises(SettingError, match=r"^cpu\.arena is"):
        resolve(text, {}, root)
    with pytest.raises(SettingError, match=r"^CUZK_CPU_ARENA is"):
        resolve("auto", {"CUZK_CPU_ARENA": text}, root)


def test_this_machine():
    found = resolve("auto", {})
    assert 0 < found.nbytes < machine_limit().nbytes
    assert found.source in ("cgroup limit", "memory of the machine")


@pytest.mark.parametrize(
    ("total", "margin", "processes", "expected", "source"),
    [
        ("auto", "5GiB", 1, 11 * GIB, "memory of the machine"),
        ("auto", "0", 1, 16 * GIB, "memory of the machine"),
        ("auto", "5GiB", 2, 11 * GIB // 2, "memory of the machine"),
        # Half at most, so that a small machine can prove at all.
        ("auto", "12GiB", 1, 8 * GIB, "memory of the machine"),
        ("4GiB", "5GiB", 1, 4 * GIB, "memory.total_budget"),
        ("4GiB", "5GiB", 8, GIB // 2, "memory.total_budget"),
        ("1TiB", "5GiB", 1, 16 * GIB, "memory of the machine"),
    ],
)
def test_the_hosts_budget(tmp_path, total, margin, processes, expected, source):
    found = host_budget(total, margin, processes, machine(tmp_path))
    assert (found.nbytes, found.source) == (expected, source)


def test_the_hosts_budget_knows_the_container(tmp_path):
    limits = [("sys/fs/cgroup/job/memory.max", GIB)]
    root = machine(tmp_path, cgroup="0::/job\n", mounts=V2_MOUNT, limits=limits)
    for total in ("auto", "4GiB"):
        found = host_budget(total, "256MiB", root=root)
        assert (found.nbytes, found.source) == (GIB - (GIB // 4 if total == "auto" else 0), "cgroup limit")


def test_a_budget_that_is_too_small_for_all(tmp_path):
    root = machine(tmp_path)
    for check in (host_budget, check_budget):
        with pytest.raises(SettingError, match='total_budget is "4MiB": 524,288 bytes for each of 8 device processes'):
            check("4MiB", processes=8, root=root)


def test_a_budget_that_is_more_than_there_is(tmp_path):
    limits = [("sys/fs/cgroup/job/memory.max", GIB)]
    root = machine(tmp_path, cgroup="0::/job\n", mounts=V2_MOUNT, limits=limits)
    for total in ("auto", "1GiB", "1024MiB"):
        check_budget(total, 8, root)
    with pytest.raises(SettingError) as refusal:
        check_budget("1025MiB", 8, root)
    assert str(refusal.value) == (
        'memory.total_budget is "1025MiB": there are 1 GiB (cgroup limit), expected "auto" or at most "1024MiB"'
    )
