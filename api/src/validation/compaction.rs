//! `spec.options.autoCompaction`: the modes etcd has.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::cel::{CelRule, rule};
use super::finding::{Judgement, Reason};
use super::options::{Place, Said, refuse_value, said};
use super::text::{Text, literal};
use crate::duration::{self, GoDuration};
use crate::v1beta2::{AutoCompactionMode, AutoCompactionSpec, OptionsSpec, PodPolicy};
use crate::validated::AutoCompaction;
use crate::versions::Version;

const FIELD: &str = "spec.options.autoCompaction";
const RETENTION: &str = "spec.options.autoCompaction.retention";

const PERIOD: Text = Text("must be a duration such as 1h where `mode` is Periodic");
const REVISIONS: Text =
    Text("must be a number of revisions such as 10000 where `mode` is Revision");
const OFF: Text = Text("must not be set where `mode` is Off: remove it, or set `mode: Periodic`");
const REVISION_NEEDS_NEWER: &str = "must not be Revision with etcd before 3.3; use Periodic";
const HOURS_ONLY: &str = "must be whole hours with etcd before 3.3, such as 1h";

const HOUR: Duration = Duration::from_hours(1);

pub(super) fn read(
    options: &OptionsSpec,
    pod: Option<&PodPolicy>,
    version: Version,
    judgement: &mut Judgement,
) -> Option<AutoCompaction> {
    let by_field = options.auto_compaction.as_ref();
    let retention_place = Place {
        pod,
        field: FIELD,
        flag: "auto-compaction-retention",
    };
    let mode_place = Place {
        pod,
        field: FIELD,
        flag: "auto-compaction-mode",
    };
    let retention = said(by_field, &retention_place, judgement);
    let mode = said(by_field, &mode_place, judgement);
    let (compaction, path) = match (retention, mode) {
        (Said::Unusable, _) | (_, Said::Unusable) => return None,
        (Said::InField(spec), _) => (read_spec(spec, judgement)?, FIELD.to_owned()),
        (Said::InEnvironment(text, path), mode) => {
            let mode = match mode {
                Said::InEnvironment(mode, _) => mode,
                _ => "periodic",
            };
            (read_environment(text, mode, &path, judgement)?, path)
        }
        // A mode without a retention compacts nothing.
        _ => (AutoCompaction::Off, FIELD.to_owned()),
    };
    check_age(compaction, version, &path, judgement).then_some(compaction)
}

fn read_spec(spec: &AutoCompactionSpec, judgement: &mut Judgement) -> Option<AutoCompaction> {
    let retention = spec.retention.as_ref().map(|retention| match retention {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    });
    match (spec.mode.unwrap_or(AutoCompactionMode::Periodic), retention) {
        (AutoCompactionMode::Off, None) => Some(AutoCompaction::Off),
        (AutoCompactionMode::Off, Some(_)) => {
            judgement.refuse(RETENTION, Reason::CompactionInvalid, OFF.0);
            None
        }
        (AutoCompactionMode::Periodic, retention) => {
            let period = retention.and_then(|text| GoDuration(text).parse().ok());
            let period = period.filter(|period| !period.is_zero());
            if period.is_none() {
                judgement.refuse(RETENTION, Reason::CompactionInvalid, PERIOD.0);
            }
            period.map(AutoCompaction::Periodic)
        }
        (AutoCompactionMode::Revision, retention) => {
            let revisions = retention
                .and_then(|text| text.parse().ok())
                .filter(|n| *n > 0);
            if revisions.is_none() {
                judgement.refuse(RETENTION, Reason::CompactionInvalid, REVISIONS.0);
            }
            revisions.map(AutoCompaction::Revision)
        }
    }
}

/// etcd's own words: a bare number of hours, or a duration; 0 is off.
fn read_environment(
    retention: &str,
    mode: &str,
    path: &str,
    judgement: &mut Judgement,
) -> Option<AutoCompaction> {
    let number = retention.parse::<u64>().ok();
    let compaction = match (mode, number) {
        (_, Some(0)) => Some(AutoCompaction::Off),
        ("revision", Some(revisions)) => Some(AutoCompaction::Revision(revisions)),
        ("periodic", Some(hours)) => u32::try_from(hours)
            .ok()
            .and_then(|hours| HOUR.checked_mul(hours))
            .map(AutoCompaction::Periodic),
        ("periodic", None) => GoDuration(retention.to_owned())
            .parse()
            .ok()
            .map(AutoCompaction::Periodic),
        _ => None,
    };
    if compaction.is_none() {
        refuse_value(
            path,
            "hours or a duration such as 1h, or with mode revision a number",
            retention,
            judgement,
        );
    }
    compaction
}

fn check_age(
    compaction: AutoCompaction,
    version: Version,
    path: &str,
    judgement: &mut Judgement,
) -> bool {
    let message = match compaction {
        _ if version.abilities().auto_compaction_mode => return true,
        AutoCompaction::Revision(_) => REVISION_NEEDS_NEWER,
        AutoCompaction::Periodic(period)
            if !period.as_secs().is_multiple_of(3600) || period.subsec_millis() > 0 =>
        {
            HOURS_ONLY
        }
        AutoCompaction::Periodic(_) | AutoCompaction::Off => return true,
    };
    judgement.refuse(path, Reason::CompactionNeedsNewerEtcd, message);
    false
}

pub(super) fn cel() -> Vec<CelRule> {
    let mode = "(has(self.mode) ? self.mode : 'Periodic')";
    let retention = "string(self.retention)";
    let is_period = format!(
        "({retention}.matches({}) && duration({retention}) > duration('0s'))",
        literal(duration::PATTERN)
    );
    vec![
        rule(
            Reason::CompactionInvalid,
            FIELD,
            format!("{mode} != 'Periodic' || !has(self.retention) || {is_period}"),
            PERIOD,
        )
        .field(".retention"),
        rule(
            Reason::CompactionInvalid,
            FIELD,
            format!(
                "{mode} != 'Revision' || (has(self.retention) && {retention}.matches('^0*[1-9][0-9]{{0,17}}$'))"
            ),
            REVISIONS,
        )
        .field(".retention"),
        rule(
            Reason::CompactionInvalid,
            FIELD,
            format!("{mode} != 'Off' || !has(self.retention)"),
            OFF,
        )
        .field(".retention"),
    ]
}
