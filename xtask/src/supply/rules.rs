//! What `deny.toml` says of licences, bans and sources, checked without the network. Reads that file; the rest is pure. What
//! needs an advisory database is cargo-deny's work.

use std::fs;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use spdx::{Expression, ParseMode};

use super::metadata::{Metadata, Package};
use crate::operator::checkout;

#[derive(Debug, Deserialize)]
struct Rules {
    licenses: Licences,
    bans: Bans,
    sources: Sources,
}

#[derive(Debug, Deserialize)]
struct Licences {
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    wildcards: String,
    deny: Vec<Banned>,
}

#[derive(Debug, Deserialize)]
struct Banned {
    #[serde(rename = "crate")]
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: Vec<String>,
}

/// Fails and names every package that breaks a rule.
pub(crate) fn check() -> Result<()> {
    let text = fs::read_to_string(checkout().join("deny.toml")).context("deny.toml")?;
    let rules: Rules = toml::from_str(&text).context("deny.toml")?;
    let broken = rules.broken(&Metadata::read(None)?);
    if broken.is_empty() {
        return Ok(());
    }
    bail!("deny.toml does not allow:\n{}", broken.join("\n"))
}

impl Rules {
    fn broken(&self, metadata: &Metadata) -> Vec<String> {
        metadata
            .packages
            .iter()
            .flat_map(|package| {
                let faults = [
                    self.licence(package),
                    self.ban(package),
                    self.source(package),
                    self.wildcard(package),
                ];
                faults
                    .into_iter()
                    .flatten()
                    .map(move |fault| format!("{} {}: {fault}", package.name, package.version))
            })
            .collect()
    }

    fn licence(&self, package: &Package) -> Option<String> {
        let Some(licence) = &package.license else {
            return Some("names no licence".to_owned());
        };
        // Lax, because older packages write `MIT/Apache-2.0`.
        let Ok(expression) = Expression::parse_mode(licence, ParseMode::LAX) else {
            return Some(format!("`{licence}` is no SPDX expression"));
        };
        let allowed = expression.evaluate(|wanted| {
            let wanted = wanted.to_string();
            self.licenses.allow.contains(&wanted)
        });
        (!allowed).then(|| format!("its licence is {licence}"))
    }

    fn ban(&self, package: &Package) -> Option<String> {
        let banned = self.bans.deny.iter().any(|ban| ban.name == package.name);
        banned.then(|| "is banned".to_owned())
    }

    fn source(&self, package: &Package) -> Option<String> {
        let source = package.source.as_deref()?;
        let known = source.strip_prefix("registry+").is_some_and(|registry| {
            self.sources
                .allow_registry
                .iter()
                .any(|known| known == registry)
        });
        (!known).then(|| format!("comes from {source}"))
    }

    /// Only our own manifests are ours to put right.
    fn wildcard(&self, package: &Package) -> Option<String> {
        if package.source.is_some() || self.bans.wildcards != "deny" {
            return None;
        }
        let open: Vec<&str> = package.wildcards().collect();
        (!open.is_empty()).then(|| format!("takes any version of {}", open.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supply::metadata::tests::small;

    fn rules(allow: &[&str], deny: &[&str], registry: &str) -> Rules {
        let deny: Vec<String> = deny
            .iter()
            .map(|name| format!("{{ crate = {name:?} }}"))
            .collect();
        toml::from_str(&format!(
            "[licenses]\nallow = {allow:?}\n[bans]\nwildcards = \"deny\"\ndeny = [{}]\n[sources]\nallow-registry = [{registry:?}]\n",
            deny.join(", ")
        ))
        .unwrap()
    }

    const REGISTRY: &str = "https://github.com/rust-lang/crates.io-index";

    #[test]
    fn one_of_several_licences_is_enough() {
        let broken = rules(&["Apache-2.0", "MIT"], &[], REGISTRY).broken(&small());
        assert_eq!(broken, Vec::<String>::new());
    }

    #[test]
    fn a_licence_that_is_not_allowed_is_named_with_its_package() {
        let broken = rules(&["Apache-2.0", "GPL-3.0-only"], &[], REGISTRY).broken(&small());
        assert_eq!(
            broken,
            [
                "maker 1.0.0: its licence is MIT",
                "tester 1.0.0: its licence is MIT"
            ]
        );
    }

    #[test]
    fn banned_packages_and_unknown_registries_are_named() {
        let broken = rules(&["Apache-2.0", "MIT"], &["maker"], REGISTRY).broken(&small());
        assert_eq!(broken, ["maker 1.0.0: is banned"]);
        let broken = rules(&["Apache-2.0", "MIT"], &[], "https://example.org").broken(&small());
        assert_eq!(broken.len(), 3, "{broken:?}");
    }

    #[test]
    fn both_of_two_licences_that_hold_together_must_be_allowed() {
        let mut metadata = small();
        metadata.packages.truncate(1);
        metadata.packages[0].license = Some("(MIT OR Zlib) AND BSD-3-Clause".to_owned());
        assert_eq!(rules(&["MIT"], &[], REGISTRY).broken(&metadata).len(), 1);
        let both = rules(&["MIT", "BSD-3-Clause"], &[], REGISTRY).broken(&metadata);
        assert_eq!(both, Vec::<String>::new());
    }
}
