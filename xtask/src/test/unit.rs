//! Tier `unit`: what needs no cluster. Each check counts as one test.

use std::{path::PathBuf, process::Command};

use anyhow::{Context, Result, ensure};

use super::count::Count;
use crate::{
    bundle,
    cache::Cache,
    command, generate, manifests,
    operator::{CHART, NAMESPACE, RELEASE, checkout},
    packages,
    programs::{self, Program},
    supply,
};

type Check = (&'static str, fn() -> Result<()>);

const CHECKS: [Check; 11] = [
    ("unit::the_code_is_formatted", formatted),
    ("unit::the_lints_are_clean", linted),
    ("unit::generated_files_are_fresh", generated),
    ("unit::the_chart_lints_with_helm_3", || {
        lint(&Program::Helm3)
    }),
    ("unit::the_chart_lints_with_helm_4", || {
        lint(&Program::Helm4)
    }),
    (
        "unit::the_chart_renders_the_same_bytes_twice_with_helm_3",
        || render_twice(&Program::Helm3),
    ),
    (
        "unit::the_chart_renders_the_same_bytes_twice_with_helm_4",
        || render_twice(&Program::Helm4),
    ),
    ("unit::the_manifests_without_helm_are_fresh", || {
        manifests::write(true)
    }),
    ("unit::the_bundle_for_olm_is_fresh", || bundle::write(true)),
    (
        "unit::the_operator_framework_accepts_the_bundle",
        bundle::validate,
    ),
    (
        "unit::licences_bans_and_sources_of_dependencies_are_as_allowed",
        supply::rules::check,
    ),
];

/// How many random histories the simulation plays: a plain `cargo test` is content with fewer.
const HISTORIES: (&str, &str) = ("SIMULATED_HISTORIES", "10000");

pub(crate) fn run(filter: &[String]) -> Count {
    let mut count = Count::default();
    if let Err(error) = packages::ensure_for_rust() {
        count.failed("unit: what Rust needs", &error);
        return count;
    }
    for (name, check) in CHECKS {
        if filter.is_empty() || filter.iter().any(|word| name.contains(word.as_str())) {
            count.check(name, check);
        }
    }
    let mut tests = in_checkout();
    tests
        .args(["test", "--workspace", "--locked", "--no-fail-fast", "--"])
        .args(filter)
        .env(HISTORIES.0, HISTORIES.1);
    if let Err(error) = count.tests(&mut tests) {
        count.failed("unit: cargo test", &error);
    }
    count
}

fn in_checkout() -> Command {
    let mut cargo = command::cargo();
    cargo.current_dir(checkout());
    cargo
}

/// Runs to the end with its whole output in sight: the first complaint of many is rarely among the last lines.
fn shown(command: &mut Command) -> Result<()> {
    let status = command.status().context("cannot start cargo")?;
    ensure!(
        status.success(),
        "`{}` failed ({status}), see above",
        command::line(command)
    );
    Ok(())
}

fn formatted() -> Result<()> {
    shown(in_checkout().args(["fmt", "--all", "--check"]))
}

fn linted() -> Result<()> {
    shown(in_checkout().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--quiet",
        "--",
        "--deny=warnings",
    ]))
}

fn generated() -> Result<()> {
    generate::run(generate::Args { check: true })
}

fn helm(version: &Program) -> Result<PathBuf> {
    programs::ensure(&Cache::open()?, std::slice::from_ref(version))?.file(version)
}

fn lint(version: &Program) -> Result<()> {
    let helm = helm(version)?;
    command::run(
        Command::new(helm)
            .current_dir(checkout())
            .args(["lint", "--strict", CHART]),
    )
}

fn render_twice(version: &Program) -> Result<()> {
    let helm = helm(version)?;
    let render = || {
        let mut command = Command::new(&helm);
        command.current_dir(checkout()).args([
            "template",
            RELEASE,
            CHART,
            "--namespace",
            NAMESPACE,
        ]);
        command::output(&mut command)
    };
    let (first, second) = (render()?, render()?);
    let kinds = first
        .lines()
        .filter(|line| line.starts_with("kind: "))
        .count();
    ensure!(kinds > 0, "the chart renders nothing");
    let differing = first
        .lines()
        .zip(second.lines())
        .find(|(one, other)| one != other);
    ensure!(first == second, "two renderings differ: {differing:?}");
    // The webhook writes its own bundle; a key that Helm owns too would fail the next upgrade.
    ensure!(!first.contains("caBundle"), "the chart renders a caBundle");
    Ok(())
}
