"""The CPU device's limit: from the setting, the environment, the container or the machine."""

import pytest

from cuzk_engine.devices.arena import machine_limit, resolve
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
