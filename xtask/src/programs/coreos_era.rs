//! etcd of the CoreOS era: what it takes to build releases from before Go had modules. Pure.
//!
//! Their sources name no versions of what they need, so each has a go.mod of ours, whole. Two of them need a library that today's
//! Go no longer runs, and are given a copy of it with one line put right.

/// Every release from before 3.5 that is built, oldest first.
pub const ETCD: [&str; 4] = ["3.1.10", "3.2.13", "3.3.27", "3.4.31"];

/// A module that is built from a changed copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mended {
    pub module: &'static str,
    pub version: &'static str,
    /// Where the copy stands, beside the go.mod that replaces the module by it.
    pub folder: &'static str,
    pub file: &'static str,
    pub wrong: &'static str,
    pub right: &'static str,
}

/// Its alphabet for names has the same letter twice, which `encoding/base64` has refused since Go 1.22.
const UGORJI: Mended = Mended {
    module: "github.com/ugorji/go",
    version: "v0.0.0-20170107133203-ded73eae5db7",
    folder: "ugorji",
    file: "codec/gen.go",
    wrong: "0123456789__\"",
    right: "0123456789-_\"",
};

/// The whole go.mod of a release; nothing for those that have their own.
pub fn go_mod(version: &str) -> Option<&'static str> {
    match version {
        "3.1.10" => Some(include_str!("../../go/etcd/3.1.10.mod")),
        "3.2.13" => Some(include_str!("../../go/etcd/3.2.13.mod")),
        "3.3.27" => Some(include_str!("../../go/etcd/3.3.27.mod")),
        "3.4.31" => Some(include_str!("../../go/etcd/3.4.31.mod")),
        _ => None,
    }
}

/// The module that a release's programs are packages of.
pub fn module(version: &str) -> &'static str {
    if version.starts_with("3.4.") {
        "go.etcd.io/etcd"
    } else {
        "github.com/coreos/etcd"
    }
}

/// What a go.mod takes from a folder beside it.
pub fn mended(go_mod: &str) -> Option<Mended> {
    go_mod
        .contains(&format!("{} => ./{}", UGORJI.module, UGORJI.folder))
        .then_some(UGORJI)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_release_has_a_go_mod_that_requires_its_module() {
        for version in ETCD {
            let text = go_mod(version).unwrap();
            assert!(text.starts_with("module local\n"), "{version}");
            assert!(text.contains(module(version)), "{version}");
            let (major, _) = version.rsplit_once('.').unwrap();
            // The module of 3.4 was never published under its number.
            assert!(
                major == "3.4" || text.contains(&format!("v{version}+incompatible")),
                "{version}"
            );
        }
        assert_eq!(go_mod("3.5.35"), None);
    }

    #[test]
    fn only_the_oldest_need_a_mended_library_and_their_go_mod_requires_that_very_version() {
        for version in ETCD {
            let text = go_mod(version).unwrap();
            let needs = version.starts_with("3.1.") || version.starts_with("3.2.");
            let mended = mended(text);
            assert_eq!(mended.is_some(), needs, "{version}");
            if let Some(mended) = mended {
                assert!(text.contains(&format!("{} {}", mended.module, mended.version)));
            }
        }
    }
}
