//! `cargo xtask generate`: what is committed but derived from something else, written anew.
//!
//! The api crate gives the chart its CRDs and the docs their reference and their rules; `values.yaml` gives the chart's README its table, and
//! the chart's roles give the docs their table of what accounts may do.
//! Each part below is a pure function from text or types to text; only this file and `committed` touch the disk, and only below the
//! checkout.

mod access;
mod crds;
mod reference;
mod rules;
mod values;

use std::{fs, io, path::Path};

use anyhow::{Context as _, bail};

use crate::{
    committed::{self, Wanted},
    operator::{CHART, checkout},
    yaml::sorted,
};

const CRDS: &str = "charts/etcd-operator/templates/crds";

#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Args {
    /// Write nothing; fail and name the files that are not what would be written
    #[arg(long)]
    pub check: bool,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let root = checkout();
    committed::keep(&root, wanted(&root)?, args.check, "cargo xtask generate")
}

/// Everything this command is answerable for.
fn wanted(root: &Path) -> anyhow::Result<Vec<Wanted>> {
    let definitions = etcd_operator_api::all_crds();
    let mut files = Vec::new();
    for definition in &definitions {
        files.push(Wanted {
            path: format!("{CRDS}/{}.yaml", definition.spec.names.plural),
            contents: Some(crds::template(definition)?),
        });
    }
    files.push(Wanted {
        path: format!("{CRDS}/_names.tpl"),
        contents: Some(crds::names(&definitions)),
    });
    files.extend(orphans(root, &files)?);
    files.push(Wanted {
        path: "docs/reference/api.md".to_owned(),
        contents: Some(reference::page(&definitions)?),
    });
    files.push(Wanted {
        path: "docs/reference/rules.md".to_owned(),
        contents: Some(rules::page()?),
    });

    let text = |name: &str| {
        let path = root.join(CHART).join(name);
        fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))
    };
    let roles = access::ACCOUNTS
        .iter()
        .map(|account| text(&format!("templates/{}", account.template)))
        .collect::<anyhow::Result<Vec<String>>>()?;
    files.push(Wanted {
        path: "docs/reference/access.md".to_owned(),
        contents: Some(access::page(&roles).context("what accounts may do")?),
    });
    let values = values::parse(&text("values.yaml")?).context("values.yaml")?;
    let disagreements = values
        .disagreements(&text("values.schema.json")?)
        .context("values.schema.json")?;
    if !disagreements.is_empty() {
        bail!(
            "values.yaml and values.schema.json disagree: {}",
            disagreements.join("; ")
        );
    }
    files.push(Wanted {
        path: format!("{CHART}/README.md"),
        contents: Some(
            values
                .put_into(&text("README.md")?)
                .context("the chart's README.md")?,
        ),
    });
    Ok(files)
}

/// Templates of CRDs that no longer exist.
fn orphans(root: &Path, known: &[Wanted]) -> anyhow::Result<Vec<Wanted>> {
    let folder = root.join(CRDS);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(error).with_context(|| format!("could not list {}", folder.display()));
        }
    };
    let mut orphans = Vec::new();
    for entry in entries {
        let path = format!("{CRDS}/{}", entry?.file_name().to_string_lossy());
        if !known.iter().any(|file| file.path == path) {
            orphans.push(Wanted {
                path,
                contents: None,
            });
        }
    }
    Ok(orphans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_carries_the_version_of_the_workspace() {
        let chart = fs::read_to_string(checkout().join(CHART).join("Chart.yaml")).unwrap();
        let chart: serde_yaml_ng::Value = serde_yaml_ng::from_str(&chart).unwrap();
        assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    }

    /// Names of metrics in a text: words that begin as ours do, without what Prometheus adds to a histogram or a counter.
    fn metrics_in(text: &str) -> std::collections::BTreeSet<String> {
        let ours = [
            "controller_runtime_",
            "etcd_operator_",
            "leader_election_",
            "rest_client_",
        ];
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words
            .filter(|word| ours.iter().any(|prefix| word.starts_with(prefix)))
            .map(|word| {
                let added = ["_bucket", "_total", "_info"];
                let base = added.iter().find_map(|suffix| word.strip_suffix(suffix));
                base.unwrap_or(word).to_owned()
            })
            .collect()
    }

    #[test]
    fn alerts_and_dashboard_speak_of_metrics_that_exist() {
        let read = |path: &str| fs::read_to_string(checkout().join(path)).unwrap();
        let sources = [
            "controller/src/metrics.rs",
            "process/src/metrics.rs",
            "webhook/src/metrics.rs",
        ];
        let known = metrics_in(&sources.map(read).concat());
        for file in [
            "templates/metrics/prometheusrule.yaml",
            "files/dashboard.json",
        ] {
            let named = metrics_in(&read(&format!("{CHART}/{file}")));
            assert!(named.len() > 3, "{file} names {named:?}");
            let unknown: Vec<_> = named.difference(&known).collect();
            assert!(unknown.is_empty(), "{file}: {unknown:?}");
        }
    }

    #[test]
    fn the_dockerfile_builds_with_the_pinned_toolchain() {
        let pin = fs::read_to_string(checkout().join("rust-toolchain.toml")).unwrap();
        let pin = pin
            .split_once("channel = \"")
            .unwrap()
            .1
            .split_once('"')
            .unwrap()
            .0;
        let dockerfile = fs::read_to_string(checkout().join("Dockerfile")).unwrap();
        assert!(
            dockerfile.contains(&format!("FROM rust:{pin}-")),
            "rust-toolchain.toml pins {pin}"
        );
    }

    #[test]
    fn what_is_committed_is_what_would_be_generated() {
        let root = checkout();
        let kept = committed::keep(&root, wanted(&root).unwrap(), true, "cargo xtask generate");
        assert_eq!(kept.map_err(|error| error.to_string()), Ok(()));
    }
}
