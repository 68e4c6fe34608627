//! `cargo xtask sbom`: what is linked into the shipped programs, as CycloneDX 1.6. The same lock file gives the same bytes: no times and no
//! random serial number.

use std::{
    env, fs,
    io::{self, Write as _},
    path::PathBuf,
};

use anyhow::{Context, Result};
use serde_json::{Value as Json, json};

use super::metadata::{Metadata, Package};
use crate::{images::OPERATOR_PROGRAMS, yaml::sorted};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The platform whose programs are described; this machine's unless another is named
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    /// Where to write it; without, it is printed
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<()> {
    let target = args
        .target
        .unwrap_or_else(|| format!("{}-unknown-linux-gnu", env::consts::ARCH));
    let bill = bill(&Metadata::read(Some(&target))?, &OPERATOR_PROGRAMS, &target)?;
    let text = format!("{}\n", serde_json::to_string_pretty(&sorted(bill))?);
    if let Some(path) = args.output {
        return fs::write(&path, text)
            .with_context(|| format!("could not write {}", path.display()));
    }
    // Whoever reads only the beginning has not made us fail.
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(())
}

fn bill(metadata: &Metadata, programs: &[&str], target: &str) -> Result<Json> {
    let programs = programs
        .iter()
        .map(|name| metadata.of_the_workspace(name))
        .collect::<Result<Vec<_>>>()?;
    let linked = metadata.linked(&programs);
    let mut parts: Vec<&Package> = metadata
        .packages
        .iter()
        .filter(|package| linked.contains_key(package.id.as_str()))
        .collect();
    parts.sort_by_key(|package| (&package.name, &package.version));
    let reference = |id: &str| {
        parts
            .iter()
            .find(|part| part.id == id)
            .map(|part| purl(part))
    };
    let dependencies: Vec<Json> = parts
        .iter()
        .map(|part| {
            let with = linked.get(part.id.as_str());
            let mut with: Vec<String> = with
                .into_iter()
                .flatten()
                .filter_map(|id| reference(id))
                .collect();
            with.sort();
            json!({"ref": purl(part), "dependsOn": with})
        })
        .collect();
    let image = format!("etcd-operator@{}", env!("CARGO_PKG_VERSION"));
    let roots: Vec<String> = programs.iter().map(|program| purl(program)).collect();
    let mut all = vec![json!({"ref": image, "dependsOn": roots})];
    all.extend(dependencies);
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "bom-ref": image,
                "type": "container",
                "name": "etcd-operator",
                "version": env!("CARGO_PKG_VERSION"),
                "licenses": [{"expression": "Apache-2.0"}],
            },
            "properties": [{"name": "rust:target", "value": target}],
        },
        "components": parts
            .iter()
            .map(|part| component(part, roots.contains(&purl(part))))
            .collect::<Vec<_>>(),
        "dependencies": all,
    }))
}

fn component(package: &Package, program: bool) -> Json {
    let mut component = json!({
        "bom-ref": purl(package),
        "type": if program { "application" } else { "library" },
        "name": package.name,
        "version": package.version,
        "purl": purl(package),
    });
    if let Some(licence) = &package.license {
        // As older packages write it, it is no expression.
        let licence = licence.replace(" / ", " OR ").replace('/', " OR ");
        component["licenses"] = json!([{"expression": licence}]);
    }
    if let Some(description) = &package.description {
        component["description"] = json!(description.trim());
    }
    if let Some(url) = &package.repository {
        component["externalReferences"] = json!([{"type": "vcs", "url": url}]);
    }
    component
}

fn purl(package: &Package) -> String {
    // Of the qualifiers that a crate's address may have we need none; `+` of a version must not be read as a space.
    let version = package.version.replace('+', "%2B");
    format!("pkg:cargo/{}@{version}", package.name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::supply::metadata::tests::small;

    #[test]
    fn the_bill_names_what_is_linked_and_how_it_hangs_together() {
        let bill = bill(&small(), &["app"], "x").unwrap();
        let names: Vec<&str> = bill["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|part| part["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["app", "lib"]);
        assert_eq!(bill["components"][0]["type"], "application");
        assert_eq!(
            bill["dependencies"][1],
            json!({"ref": "pkg:cargo/app@1.0.0", "dependsOn": ["pkg:cargo/lib@1.0.0"]})
        );
    }

    #[test]
    fn the_bill_of_the_shipped_programs_is_whole_and_the_same_each_time() {
        let target = "x86_64-unknown-linux-gnu";
        let metadata = Metadata::read(Some(target)).unwrap();
        let first = bill(&metadata, &OPERATOR_PROGRAMS, target).unwrap();
        assert_eq!(first, bill(&metadata, &OPERATOR_PROGRAMS, target).unwrap());
        let references: Vec<&str> = first["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|part| part["bom-ref"].as_str().unwrap())
            .collect();
        let distinct: BTreeSet<&str> = references.iter().copied().collect();
        assert_eq!(distinct.len(), references.len());
        for wanted in ["rustls", "hyper", "kube-client"] {
            assert!(
                references
                    .iter()
                    .any(|part| part.starts_with(&format!("pkg:cargo/{wanted}@"))),
                "no {wanted}"
            );
        }
        for unwanted in ["proptest", "insta", "xtask"] {
            assert!(
                !references
                    .iter()
                    .any(|part| part.starts_with(&format!("pkg:cargo/{unwanted}@"))),
                "{unwanted} is not shipped"
            );
        }
        for dependency in first["dependencies"].as_array().unwrap() {
            for on in dependency["dependsOn"].as_array().unwrap() {
                assert!(
                    distinct.contains(on.as_str().unwrap()),
                    "{on} is not listed"
                );
            }
        }
    }
}
