//! The memory of this machine, or the part of it that the process may use.

use std::path::Path;

/// The most memory that this process can have, in bytes: that of the machine, or less if a control
/// group (version 2 or 1) limits it. None: the operating system does not tell.
pub fn memory_of_this_machine() -> Option<u64> {
    memory_below(Path::new("/"))
}

fn memory_below(root: &Path) -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let total = read("proc/meminfo").and_then(|text| total_in(&text));
    let groups = read("proc/self/cgroup").unwrap_or_default();
    let limits =
        groups.lines().filter_map(|line| group_in(line)).flat_map(|(folder, path, file)| {
            // Each group is also bound by its ancestors. In a container the path may be that of the
            // host, while the group that applies is mounted as the root.
            Path::new(path.trim_start_matches('/'))
                .ancestors()
                .filter_map(|group| read(&format!("{folder}/{}/{file}", group.display())))
                .filter_map(|limit| limit.trim().parse().ok())
                .collect::<Vec<u64>>()
        });
    limits.chain(total).min()
}

/// The total memory in `/proc/meminfo`, in bytes.
fn total_in(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The memory controller in a line of `/proc/self/cgroup`: the folder of the groups, the path of
/// this process's group, and the file with its limit.
fn group_in(line: &str) -> Option<(&'static str, &str, &'static str)> {
    let (number, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    if number == "0" && controllers.is_empty() {
        Some(("sys/fs/cgroup", path, "memory.max"))
    } else if controllers.split(',').any(|controller| controller == "memory") {
        Some(("sys/fs/cgroup/memory", path, "memory.limit_in_bytes"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of a machine whose files have these contents.
    fn memory(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        memory_below(root.path())
    }

    const MACHINE: (&str, &str) =
        ("proc/meminfo", "MemTotal:       2097152 kB\nMemFree:        1 kB\n");

    #[test]
    fn the_machine_counts_unless_a_group_has_less() {
        assert_eq!(memory(&[]), None);
        assert_eq!(memory(&[MACHINE]), Some(2 << 30));
        let second = ("proc/self/cgroup", "0::/system.slice/bandana.service\n");
        let own = "sys/fs/cgroup/system.slice/bandana.service/memory.max";
        assert_eq!(memory(&[MACHINE, second, (own, "max\n")]), Some(2 << 30));
        assert_eq!(memory(&[MACHINE, second, (own, "1073741824\n")]), Some(1 << 30));
        let above = ("sys/fs/cgroup/system.slice/memory.max", "536870912\n");
        assert_eq!(memory(&[MACHINE, second, (own, "1073741824\n"), above]), Some(512 << 20));
    }

    #[test]
    fn groups_of_the_first_version_count_too() {
        let first = ("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n");
        // In a container the group is mounted as the root.
        let inside = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n");
        assert_eq!(memory(&[MACHINE, first, inside]), Some(256 << 20));
        let none = ("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712");
        assert_eq!(memory(&[MACHINE, first, none]), Some(2 << 30));
    }
}
