"""What a process may have here, read from made-up /proc and /sys trees."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from lowtide.machine import Group, Memory, memory, oom_kills, tightest_group

GIB = 1 << 30
TOTAL = 64 * GIB


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


V2_MOUNT = "30 20 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"


def version_2(path: str, **numbers: str) -> dict[str, str]:
    folder = f"sys/fs/cgroup{path}".rstrip("/")
    return {f"{folder}/memory.{name}": text for name, text in numbers.items()}


def version_1(path: str, limit: int, usage: int, cache: int = 0) -> dict[str, str]:
    folder = f"sys/fs/cgroup/memory{path}".rstrip("/")
    return {
        f"{folder}/memory.limit_in_bytes": f"{limit}\n",
        f"{folder}/memory.usage_in_bytes": f"{usage}\n",
        f"{folder}/memory.stat": f"inactive_file 1\ntotal_inactive_file {cache}\n",
    }


def test_a_container_of_version_2_has_its_limit_less_what_it_uses_less_cache(tmp_path: Path) -> None:
    stat = f"anon 5\ninactive_file {GIB}\n"
    numbers = version_2("/", max=f"{8 * GIB}\n", current=f"{3 * GIB}\n", stat=stat)
    root = tree(tmp_path, {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": V2_MOUNT, **numbers})
    group = tightest_group(TOTAL, root)
    assert group is not None
    assert (group.limit, group.used, group.left) == (8 * GIB, 2 * GIB, 6 * GIB)


def test_of_nested_groups_the_one_with_least_left_counts(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pods/one/box\n",
            "proc/self/mountinfo": V2_MOUNT,
            **version_2("/pods/one/box", max="max\n", current=f"{GIB}\n"),
            **version_2("/pods/one", max=f"{4 * GIB}\n", current=f"{GIB}\n"),
            **version_2("/pods", max=f"{16 * GIB}\n", current=f"{14 * GIB}\n"),
        },
    )
    group = tightest_group(TOTAL, root)
    assert group is not None
    assert group.path.endswith("/pods")
    assert group.left == 2 * GIB


def test_version_1_beside_an_empty_tree_of_version_2(tmp_path: Path) -> None:
    groups = "9:name=systemd:/\n4:memory:/jobs/a\n1:cpu,cpuacct:/\n0::/\n"
    mounts = V2_MOUNT.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified") + V1_MOUNT
    numbers = version_1("/jobs/a", 6 * GIB, 3 * GIB, cache=2 * GIB) | version_1("/", 0x7FFFFFFFFFFFF000, 9 * GIB)
    root = tree(tmp_path, {"proc/self/cgroup": groups, "proc/self/mountinfo": mounts, **numbers})
    group = tightest_group(TOTAL, root)
    assert group is not None
    assert (group.limit, group.left) == (6 * GIB, 5 * GIB)


def test_a_container_that_sees_only_its_own_part_of_the_tree(tmp_path: Path) -> None:
    mount = V1_MOUNT.replace(" / /sys", " /docker/1234 /sys")
    files = {"proc/self/cgroup": "4:memory:/docker/1234\n", "proc/self/mountinfo": mount}
    root = tree(tmp_path, files | version_1("/", 2 * GIB, GIB))
    group = tightest_group(TOTAL, root)
    assert group is not None
    assert group.left == GIB


@pytest.mark.parametrize("path", ["/../other", "/elsewhere"])
def test_a_group_that_is_out_of_sight_is_read_at_the_root_of_the_mount(tmp_path: Path, path: str) -> None:
    mount = V2_MOUNT.replace(" / /sys", " /here /sys")
    files = {"proc/self/cgroup": f"0::{path}\n", "proc/self/mountinfo": mount}
    root = tree(tmp_path, files | version_2("/", max=f"{GIB}\n", current="0\n"))
    assert tightest_group(TOTAL, root) == Group(str(root / "sys/fs/cgroup"), GIB, 0)


def test_no_limit_below_the_machines_memory_is_no_limit(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "4:memory:/\n", "proc/self/mountinfo": V1_MOUNT}
    assert tightest_group(TOTAL, tree(tmp_path, files | version_1("/", 0x7FFFFFFFFFFFF000, GIB))) is None
    assert tightest_group(TOTAL, tmp_path / "not Linux") is None


def test_kills_are_counted_by_the_processs_own_group(tmp_path: Path) -> None:
    groups = {"proc/self/cgroup": "0::/pods/box\n", "proc/self/mountinfo": V2_MOUNT, "proc/vmstat": "oom_kill 9\n"}
    events = version_2("/pods/box", events="low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    assert oom_kills(tree(tmp_path, groups | events)) == 2


def test_version_1_counts_kills_beside_its_switch(tmp_path: Path) -> None:
    groups = {"proc/self/cgroup": "4:memory:/jobs/a\n0::/\n", "proc/self/mountinfo": V1_MOUNT}
    control = {"sys/fs/cgroup/memory/jobs/a/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n"}
    assert oom_kills(tree(tmp_path, groups | control)) == 4


def test_where_no_group_counts_the_machine_does(tmp_path: Path) -> None:
    groups = {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": V2_MOUNT, "proc/vmstat": "pgfault 1\noom_kill 7\n"}
    assert oom_kills(tree(tmp_path, groups)) == 7
    assert oom_kills(tmp_path / "not Linux") is None


def test_more_used_than_allowed_leaves_nothing() -> None:
    assert Group("/", GIB, 2 * GIB).left == 0
    assert Memory(TOTAL, 32 * GIB, 0, 0, Group("/", GIB, 2 * GIB)).usable == 0


def test_usable_is_the_smaller_of_free_ram_and_what_the_group_has_left() -> None:
    assert Memory(TOTAL, 32 * GIB, 0, 0, Group("/", 16 * GIB, GIB)).usable == 15 * GIB
    assert Memory(TOTAL, 8 * GIB, 0, 0, Group("/", 16 * GIB, GIB)).usable == 8 * GIB
    assert Memory(TOTAL, 8 * GIB, 0, 0, None).usable == 8 * GIB


def test_this_machine_has_memory() -> None:
    here = memory()
    assert 0 < here.usable <= here.available <= here.total == psutil.virtual_memory().total
