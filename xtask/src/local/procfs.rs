//! What the kernel says about processes and mounts. Reads `/proc` and `/sys/fs/cgroup`; the parsing is pure.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// One line of a `mountinfo` file.
#[derive(Debug, PartialEq, Eq)]
pub struct Mount {
    pub point: PathBuf,
    pub kind: String,
    /// The file system's own options; of an overlay, the folders it is made of.
    pub options: String,
}

pub fn parse_mountinfo(text: &str) -> Vec<Mount> {
    text.lines().filter_map(parse_mount).collect()
}

/// `36 35 98:0 /root /point options [optional…] - kind source super-options`, proc(5).
fn parse_mount(line: &str) -> Option<Mount> {
    let (place, system) = line.split_once(" - ")?;
    let point = place.split(' ').nth(4)?;
    let mut system = system.split(' ');
    let kind = system.next()?.to_owned();
    let options = system.nth(1).unwrap_or_default().to_owned();
    Some(Mount {
        point: unescape(point).into(),
        kind,
        options,
    })
}

/// Blanks and backslashes are written as octal escapes.
fn unescape(path: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .iter()
    .fold(path.to_owned(), |path, (code, character)| {
        path.replace(code, character)
    })
}

/// Whether a process that sees these mounts has for its root an overlay made of folders below `folder`.
pub fn root_is_an_overlay_below(mounts: &[Mount], folder: &Path) -> bool {
    let inside = format!("{}/", folder.display());
    mounts
        .iter()
        .rfind(|mount| mount.point == Path::new("/"))
        .is_some_and(|root| {
            root.kind == "overlay"
                && root
                    .options
                    .split([',', ':', '='])
                    .any(|word| word.starts_with(&inside))
        })
}

/// Mount points below `folder` (or at it) that this process sees, the deepest and newest first: the order to unmount in.
pub fn mounted_below(folder: &Path) -> Vec<PathBuf> {
    let mounts = parse_mountinfo(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default());
    mounts
        .into_iter()
        .rev()
        .map(|mount| mount.point)
        .filter(|point| point.starts_with(folder))
        .collect()
}

/// None for a process that is gone, or that only waits to be reaped.
pub fn command_line(process: i32) -> Option<Vec<String>> {
    // In the middle of an exec a process has no command line for a moment.
    for _ in 0..20 {
        let bytes = fs::read(format!("/proc/{process}/cmdline")).ok()?;
        if let Some(words) = parse_command_line(&bytes) {
            return Some(words);
        }
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        if is_dead(&stat) {
            return None;
        }
        thread::sleep(Duration::from_millis(1));
    }
    None
}

fn parse_command_line(bytes: &[u8]) -> Option<Vec<String>> {
    let words = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    (!words.is_empty()).then(|| {
        let words = words.split(|byte| *byte == 0);
        words
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect()
    })
}

/// `number (name) state …`, and the name may hold anything.
fn is_dead(stat: &str) -> bool {
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_none_or(|state| state.starts_with(['Z', 'X']))
}

pub fn exists(process: i32) -> bool {
    command_line(process).is_some()
}

fn processes() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// Processes whose root file system is an overlay below `folder`: containers, whoever started them and whatever became of that one.
pub fn with_root_below(folder: &Path) -> BTreeSet<i32> {
    let rooted = |process: &i32| {
        let text = fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap_or_default();
        root_is_an_overlay_below(&parse_mountinfo(&text), folder)
    };
    processes().into_iter().filter(rooted).collect()
}

/// Processes that were started with this very word.
pub fn with_argument(word: &str) -> BTreeSet<i32> {
    let has = |process: &i32| {
        command_line(*process).is_some_and(|words| words.iter().skip(1).any(|own| own == word))
    };
    processes().into_iter().filter(has).collect()
}

/// Processes in the network namespace that `file` holds open.
pub fn in_network_of(file: &Path) -> BTreeSet<i32> {
    let Ok(namespace) = fs::metadata(file) else {
        return BTreeSet::new();
    };
    let own = fs::metadata("/proc/self/ns/net")
        .map(|own| own.ino())
        .unwrap_or_default();
    // A file left behind by a namespace that is gone is an ordinary one, and never that of any process.
    if namespace.ino() == own {
        return BTreeSet::new();
    }
    let inside = |process: &i32| {
        fs::metadata(format!("/proc/{process}/ns/net"))
            .is_ok_and(|net| (net.dev(), net.ino()) == (namespace.dev(), namespace.ino()))
    };
    processes().into_iter().filter(inside).collect()
}

/// The folders of the cgroup `path` in every hierarchy, version 1 or 2, that has it.
pub fn cgroup_folders(path: &str) -> Vec<PathBuf> {
    let base = Path::new("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(base)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()));
    let relative = path.trim_start_matches('/');
    std::iter::once(base.to_owned())
        .chain(hierarchies)
        .map(|hierarchy| hierarchy.join(relative))
        .filter(|folder| folder.is_dir())
        .collect()
}

/// A cgroup folder and those below it, the deepest first.
pub fn cgroups_below(folder: &Path) -> Vec<PathBuf> {
    let children = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir());
    children
        .flat_map(|child| cgroups_below(&child))
        .chain([folder.to_owned()])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTAINER: &str = "\
571 474 0:113 / / ro,relatime master:1 - overlay overlay rw,lowerdir=/cache/clusters/demo/node1/containerd/snapshots/3/fs,upperdir=/cache/clusters/demo/node1/containerd/snapshots/9/fs,workdir=/cache/clusters/demo/node1/containerd/snapshots/9/work
572 571 0:118 / /proc rw,nosuid - proc proc rw
573 571 254:0 /x /data\\040dir rw - ext4 /dev/vda rw
";

    #[test]
    fn mountinfo_gives_points_kinds_and_options() {
        let mounts = parse_mountinfo(CONTAINER);
        assert_eq!(mounts.len(), 3);
        assert_eq!(
            mounts[1],
            Mount {
                point: "/proc".into(),
                kind: "proc".to_owned(),
                options: "rw".to_owned()
            }
        );
        assert_eq!(mounts[2].point, Path::new("/data dir"));
    }

    #[test]
    fn a_container_is_ours_when_its_root_lies_below_our_folder_and_only_then() {
        let mounts = parse_mountinfo(CONTAINER);
        assert!(root_is_an_overlay_below(
            &mounts,
            Path::new("/cache/clusters/demo")
        ));
        assert!(!root_is_an_overlay_below(
            &mounts,
            Path::new("/cache/clusters/de")
        ));
        assert!(!root_is_an_overlay_below(
            &mounts,
            Path::new("/cache/clusters/test")
        ));
    }

    #[test]
    fn a_process_of_the_host_is_nobodys_container() {
        let host = parse_mountinfo(
            "25 1 254:0 / / rw,relatime - ext4 /dev/root rw\n26 25 0:50 / /cache/clusters/demo/merged rw - overlay overlay rw,lowerdir=/cache/clusters/demo/a\n",
        );
        assert!(!root_is_an_overlay_below(
            &host,
            Path::new("/cache/clusters/demo")
        ));
    }

    #[test]
    fn what_is_not_a_mount_line_is_passed_over() {
        assert!(parse_mountinfo("\nnonsense\n1 2 3 - \n").is_empty());
    }

    #[test]
    fn a_zombie_is_dead_whatever_its_name_looks_like() {
        assert!(is_dead("12 (a) S b) Z 1 12"));
        assert!(!is_dead("12 (a) Z b) S 1 12"));
    }

    #[test]
    fn arguments_may_be_empty_words() {
        assert_eq!(parse_command_line(b"a\0\0b\0").unwrap(), ["a", "", "b"]);
        assert_eq!(parse_command_line(b""), None);
    }

    #[test]
    fn our_own_command_line_is_found_and_that_of_nobody_is_not() {
        assert!(exists(i32::try_from(std::process::id()).unwrap()));
        assert!(!exists(i32::MAX));
    }
}
