//! `spec.backup`: the backups a cluster relies on.

use std::time::Duration;

use super::cel::{CelRule, rule};
use super::finding::{Judgement, Reason};
use super::text::Text;
use super::tls::named;
use super::{duration_field, names};
use crate::v1beta2::{BeforeRisk, RelianceSpec};
use crate::validated::Reliance;

const BACKUP: &str = "spec.backup";
const NAME: &str = "spec.backup.backupName";
const MAX_AGE: &str = "spec.backup.maxAge";
const NAME_MISSING: Text =
    Text("must name the EtcdBackup that saves this cluster, in the same namespace");
const OUT_OF_BOUNDS: Text = Text("must be between 10m and 8784h");
const SHORTEST: Duration = Duration::from_mins(10);
/// A leap year.
const LONGEST: Duration = Duration::from_hours(8784);

/// None where nothing is said, and where a violation was noted.
pub(super) fn read(backup: Option<&RelianceSpec>, judgement: &mut Judgement) -> Option<Reliance> {
    let backup = backup?;
    let name = named(backup.backup_name.as_ref());
    match name {
        Some(name) => names::check_object_name(name, NAME, judgement),
        None => judgement.refuse(NAME, Reason::BackupNameMissing, NAME_MISSING.0),
    }
    let max_age = duration_field(backup.max_age.as_ref()?, MAX_AGE, judgement)?;
    if !(SHORTEST..=LONGEST).contains(&max_age) {
        judgement.refuse(MAX_AGE, Reason::MaxAgeOutOfBounds, OUT_OF_BOUNDS.0);
    }
    Some(Reliance {
        name: name?.to_owned(),
        before_risk: backup.before_risk != Some(BeforeRisk::Never),
        max_age,
    })
}

pub(super) fn cel() -> Vec<CelRule> {
    let well_formed = super::duration_cel("self");
    vec![
        rule(
            Reason::BackupNameMissing,
            BACKUP,
            "has(self.backupName) && self.backupName != ''",
            NAME_MISSING,
        )
        .field(".backupName"),
        super::duration_rule(MAX_AGE),
        rule(
            Reason::MaxAgeOutOfBounds,
            MAX_AGE,
            format!(
                "!{well_formed} || (duration(self) >= duration('10m') && duration(self) <= duration('8784h'))"
            ),
            OUT_OF_BOUNDS,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::Policy;
    use crate::examples::cluster;
    use crate::v1beta2::EtcdCluster;
    use crate::validated::ValidatedCluster;

    #[allow(clippy::needless_pass_by_value)] // Reads as a literal where it is called.
    fn judged(backup: Value) -> Result<Option<Reliance>, Vec<Reason>> {
        let object = cluster(json!({"backup": backup}));
        let mut object: EtcdCluster = serde_json::from_value(object).unwrap();
        object.metadata.uid = Some("u".to_owned());
        ValidatedCluster::new(&object, &Policy::default())
            .map(|cluster| cluster.backup)
            .map_err(|violations| violations.iter().map(|one| one.reason).collect())
    }

    #[test]
    fn accepts_a_backup_and_fills_in_what_is_meant() {
        let day_and_a_bit = Duration::from_hours(26);
        let reliance = |before_risk, max_age| {
            Ok(Some(Reliance {
                name: "nightly".to_owned(),
                before_risk,
                max_age,
            }))
        };
        assert_eq!(
            judged(json!({"backupName": "nightly"})),
            reliance(true, day_and_a_bit)
        );
        assert_eq!(
            judged(json!({"backupName": "nightly", "beforeRisk": "Never", "maxAge": "10m"})),
            reliance(false, SHORTEST)
        );
        assert_eq!(judged(Value::Null), Ok(None));
    }

    #[test]
    fn rejects_no_name_and_ages_out_of_bounds() {
        for (backup, reason) in [
            (json!({}), Reason::BackupNameMissing),
            (json!({"backupName": ""}), Reason::BackupNameMissing),
            (json!({"backupName": "No!"}), Reason::NameInvalid),
            (
                json!({"backupName": "b", "maxAge": "9m59s"}),
                Reason::MaxAgeOutOfBounds,
            ),
            (
                json!({"backupName": "b", "maxAge": "8785h"}),
                Reason::MaxAgeOutOfBounds,
            ),
            (
                json!({"backupName": "b", "maxAge": "long"}),
                Reason::DurationInvalid,
            ),
        ] {
            assert_eq!(judged(backup.clone()), Err(vec![reason]), "{backup}");
        }
    }
}
