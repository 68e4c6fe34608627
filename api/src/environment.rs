//! `pod.etcdEnv`: CoreOS's way to set etcd's flags.
//!
//! etcd reads `ETCD_SOME_FLAG` as `--some-flag`, and dies when a flag is given both ways. So what has a field in `options` is
//! read here as if it stood there, and only the rest reaches the member's environment.

use k8s_openapi::api::core::v1::EnvVar;

use crate::v1beta2::PodPolicy;

/// The flag an environment variable sets, where it is of etcd's form. `ETCD_UNSUPPORTED_ARCH` is the one such name that is no
/// flag.
pub fn flag_of(variable: &str) -> Option<String> {
    let rest = variable.strip_prefix("ETCD_")?;
    (rest != "UNSUPPORTED_ARCH").then(|| rest.to_ascii_lowercase().replace('_', "-"))
}

/// The variable that sets a flag.
pub fn variable_of(flag: &str) -> String {
    format!("ETCD_{}", flag.to_ascii_uppercase().replace('-', "_"))
}

/// The entry that sets `flag`, with its place in the list. etcd sees the last of several.
pub(crate) fn entry<'a>(pod: Option<&'a PodPolicy>, flag: &str) -> Option<(usize, &'a EnvVar)> {
    pod?.etcd_env
        .as_ref()?
        .iter()
        .enumerate()
        .rfind(|(_, env)| flag_of(&env.name).as_deref() == Some(flag))
}

/// Whether the environment sets `flag`.
pub(crate) fn sets(pod: Option<&PodPolicy>, flag: &str) -> bool {
    entry(pod, flag).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_and_flags_translate_both_ways() {
        assert_eq!(
            flag_of("ETCD_AUTO_COMPACTION_RETENTION").as_deref(),
            Some("auto-compaction-retention")
        );
        assert_eq!(
            variable_of("auto-compaction-retention"),
            "ETCD_AUTO_COMPACTION_RETENTION"
        );
        assert_eq!(flag_of("ETCDCTL_API"), None);
        assert_eq!(flag_of("ETCD_UNSUPPORTED_ARCH"), None);
        assert_eq!(flag_of("GOMAXPROCS"), None);
    }
}
