//! Tier `unit`: what needs no cluster. Each check counts as one test.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

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

const CHECKS: [Check; 13] = [
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
    ("unit::a_typo_in_the_values_is_refused_by_helm_3", || {
        refuse_typos(&Program::Helm3)
    }),
    ("unit::a_typo_in_the_values_is_refused_by_helm_4", || {
        refuse_typos(&Program::Helm4)
    }),
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

/// Where proptest begins. Each commit explores histories of its own, and what it finds it finds again.
const SEED: &str = "PROPTEST_RNG_SEED";

fn seed() -> Option<String> {
    if let Ok(given) = std::env::var(SEED) {
        return Some(given);
    }
    let mut git = Command::new("git");
    git.current_dir(checkout()).args(["rev-parse", "HEAD"]);
    let commit = command::output(&mut git).ok()?;
    u64::from_str_radix(commit.get(..16)?, 16)
        .ok()
        .map(|number| number.to_string())
}

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
    if let Some(seed) = seed() {
        println!("Properties are tried from {SEED}={seed}");
        tests.env(SEED, seed);
    }
    match real_etcd(&MODELLED) {
        Ok(programs) => {
            tests.env("ETCD_PROGRAMS", programs);
        }
        Err(error) => count.failed("unit: etcd to compare the model with", &error),
    }
    match real_etcd(&OLD) {
        Ok(programs) => {
            tests.env("OLD_ETCD_PROGRAMS", programs);
        }
        Err(error) => count.failed("unit: etcd to make old backups with", &error),
    }
    match program(&Program::Versitygw) {
        Ok(versitygw) => {
            tests.env("VERSITYGW_PROGRAM", versitygw);
        }
        Err(error) => count.failed("unit: a store to keep backups in", &error),
    }
    if let Err(error) = count.tests(&mut tests) {
        count.failed("unit: cargo test", &error);
    }
    count
}

/// One of each minor that knows learners and one that still refuses to add a member while another is down: what the controller's model of
/// etcd is compared with.
const MODELLED: [&str; 5] = ["3.4.31", "3.5.35", "3.6.10", "3.6.16", "3.7.3"];
/// What CoreOS's operator ran, and the last that restores with `etcdctl`: backups of these are restored still.
const OLD: [&str; 4] = ["3.1.10", "3.2.13", "3.3.27", "3.4.31"];

/// `3.5.35=/folder/etcd,…`.
fn real_etcd(versions: &[&str]) -> Result<String> {
    let wanted: Vec<Program> = versions
        .iter()
        .map(|version| Program::Etcd((*version).to_owned()))
        .collect();
    let programs = programs::ensure(&Cache::open()?, &wanted)?;
    let pairs: Result<Vec<String>> = versions
        .iter()
        .zip(&wanted)
        .map(|(version, program)| Ok(format!("{version}={}", programs.file(program)?.display())))
        .collect();
    Ok(pairs?.join(","))
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

fn program(program: &Program) -> Result<PathBuf> {
    programs::ensure(&Cache::open()?, std::slice::from_ref(program))?.file(program)
}

fn lint(version: &Program) -> Result<()> {
    let helm = program(version)?;
    command::run(
        Command::new(helm)
            .current_dir(checkout())
            .args(["lint", "--strict", CHART]),
    )
}

/// With nothing set, and with every documented set of values.
fn render_twice(version: &Program) -> Result<()> {
    let helm = program(version)?;
    let mut sets: Vec<PathBuf> = fs::read_dir(checkout().join(CHART).join("ci"))
        .context("the chart's sets of values")?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    sets.sort();
    ensure!(!sets.is_empty(), "there is no set of values");
    for set in sets {
        render_set_twice(&helm, &set).with_context(|| set.display().to_string())?;
    }
    Ok(())
}

fn render_set_twice(helm: &Path, values: &Path) -> Result<()> {
    let render = || command::output(template(helm).arg("--values").arg(values));
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

fn refuse_typos(version: &Program) -> Result<()> {
    let helm = program(version)?;
    for typo in [
        "webhok.replicas=3",
        "webhook.replica=3",
        "webhook.replicas=three",
        "certificates.mode=automatic",
        "metrics.prometheusRule.enable=true",
    ] {
        let refused = template(&helm).args(["--set", typo]).output()?;
        let reason = String::from_utf8_lossy(&refused.stderr);
        ensure!(
            !refused.status.success() && reason.contains("don't meet the specifications"),
            "{typo}: {} {reason}",
            refused.status
        );
    }
    Ok(())
}

fn template(helm: &Path) -> Command {
    let mut command = Command::new(helm);
    command
        .current_dir(checkout())
        .args(["template", RELEASE, CHART, "--namespace", NAMESPACE]);
    command
}
