//! `spec.version`: what may run, and which change is a legal step.

use super::cel::{CelRule, rule};
use super::finding::{Judgement, Reason, Violation, violation};
use super::text::Text;
use crate::policy::{
    EndOfLife, Policy, Running, StepRefusal, VersionStep, is_end_of_life, judge_step, next_step_up,
};
use crate::v1beta2::EtcdClusterStatus;
use crate::versions::{self, Version};

const FIELD: &str = "spec.version";

const SYNTAX: Text = Text("must be a version of the form X.Y.Z, such as 3.6.16");
const UNKNOWN: Text =
    Text("must be a version this operator knows: it knows etcd {oldest} to {newest}");
const KNOWN_BAD: Text = Text("must not be {version}: it {defect}; use {newest}");
const END_OF_LIFE: Text = Text(
    "must not be {version}: etcd {minor} is end of life and this operator is set to deny it; use {newest}",
);

/// The version, or why it cannot run.
pub(crate) fn runnable(text: &str) -> Result<Version, Violation> {
    let version: Version = text
        .parse()
        .map_err(|_| violation(FIELD, Reason::VersionSyntax, SYNTAX.0))?;
    let Some(release) = versions::release(version.minor()) else {
        let message = UNKNOWN.fill(&[
            ("oldest", &versions::oldest()),
            ("newest", &versions::newest().minor()),
        ]);
        return Err(violation(FIELD, Reason::VersionUnknown, message));
    };
    if let Some(defect) = release.known_bad(version.patch()) {
        let message = KNOWN_BAD.fill(&[
            ("version", &version),
            ("defect", &defect),
            ("newest", &release.newest()),
        ]);
        return Err(violation(FIELD, Reason::VersionKnownBad, message));
    }
    Ok(version)
}

/// An end-of-life version may be denied, but never to a cluster that runs: it must be healed, and it must be able to climb
/// through the lines between it and today.
pub(crate) fn not_denied(
    version: Version,
    status: Option<&EtcdClusterStatus>,
    policy: &Policy,
) -> Result<(), Violation> {
    let lives =
        status.is_some_and(|status| status.bootstrap.is_some()) || Running::of(status).is_some();
    if policy.end_of_life == EndOfLife::Warn || lives || !is_end_of_life(version) {
        return Ok(());
    }
    let message = END_OF_LIFE.fill(&[
        ("version", &version),
        ("minor", &version.minor()),
        ("newest", &policy.default_version),
    ]);
    Err(violation(FIELD, Reason::VersionEndOfLife, message))
}

pub(super) fn read(
    text: &str,
    status: Option<&EtcdClusterStatus>,
    policy: &Policy,
    judgement: &mut Judgement,
) -> Option<Version> {
    let version = judgement.keep(runnable(text))?;
    judgement.keep(not_denied(version, status, policy));
    warn_of_age(version, judgement);
    Some(version)
}

fn warn_of_age(version: Version, judgement: &mut Judgement) {
    let Some(release) = versions::release(version.minor()) else {
        return;
    };
    if is_end_of_life(version) {
        let next = next_step_up(version)
            .map_or_else(String::new, |next| format!("; the next step up is {next}"));
        judgement.warn(
            FIELD,
            format!(
                "etcd {} is END OF LIFE and gets no security fixes{next}",
                version.minor()
            ),
        );
    }
    if version >= release.newest() {
        return;
    }
    let message = match release.known_defect(version.patch()) {
        Some(defect) => format!("{version} {defect}; use {}", release.newest()),
        None => format!(
            "{version} is outdated; the newest {} known is {}",
            version.minor(),
            release.newest()
        ),
    };
    judgement.warn(FIELD, message);
}

/// Judges a change of version against what runs.
pub(super) fn check_step(
    target: Version,
    status: Option<&EtcdClusterStatus>,
    judgement: &mut Judgement,
) {
    let Some(running) = Running::of(status) else {
        return;
    };
    match judge_step(running, target) {
        Ok(VersionStep::None) => {}
        Ok(step) => {
            if step == VersionStep::MinorDown {
                judgement.warn(
                    FIELD,
                    "going down a minor: etcd refuses while newer features are in use",
                );
            }
            warn_of_unhealthy(status, judgement);
        }
        Err(refusal) => judgement.refuse(FIELD, step_reason(&refusal), refusal.to_string()),
    }
}

/// The step could not start anyway while a member is down: legal, but worth saying.
fn warn_of_unhealthy(status: Option<&EtcdClusterStatus>, judgement: &mut Judgement) {
    let members = status.map_or(&[][..], |status| &status.member_status);
    let unhealthy = members.iter().filter(|member| !member.healthy).count();
    if unhealthy > 0 {
        judgement.warn(
            FIELD,
            format!(
                "{unhealthy} of {} members is not healthy: the change waits until all are",
                members.len()
            ),
        );
    }
}

pub(crate) fn step_reason(refusal: &StepRefusal) -> Reason {
    match refusal {
        StepRefusal::SkipsMinor { .. } => Reason::VersionSkipsMinor,
        StepRefusal::BelowFloor { .. } => Reason::VersionBelowFloor,
        StepRefusal::TooFarDown { .. } | StepRefusal::CannotGoDown { .. } => {
            Reason::VersionCannotGoDown
        }
        StepRefusal::WhileMixed { .. } => Reason::VersionWhileMixed,
    }
}

/// `X.Y.Z` with an optional `v`, as `Version` reads it.
const PATTERN: &str = r"^v?(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})$";

pub(super) fn cel() -> Vec<CelRule> {
    let known: Vec<String> = versions::releases()
        .iter()
        .map(|release| release.minor.to_string())
        .collect();
    let known_pattern = format!("^v?({})[.]", known.join("|").replace('.', "[.]"));
    let well_formed = format!("self.matches({})", super::text::literal(PATTERN));
    let bad = bad_patterns();
    let mut rules = vec![
        // CoreOS wrote an empty string where it meant "not set".
        rule(
            Reason::VersionSyntax,
            FIELD,
            format!("self == '' || {well_formed}"),
            SYNTAX,
        ),
        rule(
            Reason::VersionUnknown,
            FIELD,
            format!("!{well_formed} || self.matches('{known_pattern}')"),
            UNKNOWN,
        )
        .holes(
            UNKNOWN,
            &[
                (
                    "oldest",
                    &super::text::literal(&versions::oldest().to_string()),
                ),
                (
                    "newest",
                    &super::text::literal(&versions::newest().minor().to_string()),
                ),
            ],
        ),
    ];
    rules.extend(bad.into_iter().map(|(pattern, defect, newest)| {
        rule(
            Reason::VersionKnownBad,
            FIELD,
            format!("!self.matches('{pattern}')"),
            KNOWN_BAD,
        )
        .holes(
            KNOWN_BAD,
            &[
                ("version", "self"),
                ("defect", &super::text::literal(defect)),
                ("newest", &super::text::literal(&newest.to_string())),
            ],
        )
    }));
    rules
}

fn bad_patterns() -> Vec<(String, &'static str, Version)> {
    let mut patterns = Vec::new();
    for release in versions::releases() {
        for defect in release.bad {
            let patches: Vec<String> = (defect.first..=defect.last)
                .map(|patch| patch.to_string())
                .collect();
            let minor = release.minor.to_string().replace('.', "[.]");
            patterns.push((
                format!("^v?{minor}[.]({})$", patches.join("|")),
                defect.what,
                release.newest(),
            ));
        }
    }
    patterns
}
