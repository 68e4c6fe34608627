//! The packages of this workspace as `cargo metadata` tells them. Runs cargo, which reads the lock file.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::{command, operator::checkout};

#[derive(Debug, Deserialize)]
pub struct Metadata {
    pub packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Package {
    pub id: String,
    pub name: String,
    pub version: String,
    /// An SPDX expression.
    pub license: Option<String>,
    pub description: Option<String>,
    pub repository: Option<String>,
    /// None: of this workspace.
    pub source: Option<String>,
    #[serde(default)]
    dependencies: Vec<Requirement>,
}

#[derive(Debug, Clone, Deserialize)]
struct Requirement {
    name: String,
    req: String,
    source: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Debug, Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

impl Package {
    /// Requirements that any version meets, of packages from elsewhere.
    pub fn wildcards(&self) -> impl Iterator<Item = &str> {
        self.dependencies
            .iter()
            .filter(|requirement| requirement.req == "*" && requirement.source.is_some())
            .map(|requirement| requirement.name.as_str())
    }
}

impl Metadata {
    /// All of them, for any platform or for one.
    pub fn read(platform: Option<&str>) -> Result<Self> {
        let mut cargo = command::cargo();
        cargo
            .current_dir(checkout())
            .args(["metadata", "--locked", "--format-version", "1"]);
        if let Some(platform) = platform {
            cargo.args(["--filter-platform", platform]);
        }
        Self::parse(&command::output(&mut cargo)?)
    }

    fn parse(text: &str) -> Result<Self> {
        serde_json::from_str(text).context("what cargo tells of the workspace")
    }

    pub fn of_the_workspace(&self, name: &str) -> Result<&Package> {
        self.packages
            .iter()
            .find(|package| package.name == name && package.source.is_none())
            .with_context(|| format!("no package {name} in this workspace"))
    }

    /// What each package that is linked into one of these is itself linked with: not what only builds or tests it.
    pub fn linked<'a>(&'a self, roots: &[&'a Package]) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
        let nodes: BTreeMap<&str, &Node> = self
            .resolve
            .nodes
            .iter()
            .map(|node| (node.id.as_str(), node))
            .collect();
        let mut linked = BTreeMap::new();
        let mut waiting: Vec<&str> = roots.iter().map(|package| package.id.as_str()).collect();
        while let Some(id) = waiting.pop() {
            if linked.contains_key(id) {
                continue;
            }
            let with: BTreeSet<&str> = nodes
                .get(id)
                .into_iter()
                .flat_map(|node| &node.deps)
                .filter(|dependency| dependency.dep_kinds.iter().any(|kind| kind.kind.is_none()))
                .map(|dependency| dependency.pkg.as_str())
                .collect();
            waiting.extend(&with);
            linked.insert(id, with);
        }
        linked
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// `app` is linked with `lib`, built with `maker` and tested with `tester`.
    pub(in crate::supply) fn small() -> Metadata {
        let package = |name: &str, license: &str, source: Option<&str>| json!({"id": name, "name": name, "version": "1.0.0", "license": license, "description": null, "repository": null, "source": source});
        let registry = Some("registry+https://github.com/rust-lang/crates.io-index");
        let kinds = |kind: Option<&str>| json!([{"kind": kind, "target": null}]);
        let text = json!({
            "packages": [
                package("app", "Apache-2.0", None),
                package("lib", "MIT OR GPL-3.0-only", registry),
                package("maker", "MIT", registry),
                package("tester", "MIT", registry),
            ],
            "resolve": {"nodes": [
                {"id": "app", "deps": [
                    {"pkg": "lib", "dep_kinds": kinds(None)},
                    {"pkg": "maker", "dep_kinds": kinds(Some("build"))},
                    {"pkg": "tester", "dep_kinds": kinds(Some("dev"))},
                ]},
                {"id": "lib", "deps": []},
            ]},
        });
        Metadata::parse(&text.to_string()).unwrap()
    }

    #[test]
    fn what_only_builds_or_tests_a_program_is_not_linked_into_it() {
        let metadata = small();
        let linked = metadata.linked(&[metadata.of_the_workspace("app").unwrap()]);
        assert_eq!(linked.keys().copied().collect::<Vec<_>>(), ["app", "lib"]);
    }
}
