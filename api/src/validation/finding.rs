//! What a judgement consists of: violations and warnings.

use std::collections::BTreeSet;
use std::fmt;

/// The longest warning kubectl shows in full.
pub const LONGEST_WARNING: usize = 120;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Why something is refused: stable words for conditions, events, metrics and the causes of an admission answer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// Every reason there is.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The word itself.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

reasons! {
    /// A field of the object's metadata that every stored object has is missing.
    MetadataIncomplete,
    NameTooLong,
    NameNotALabel,
    SizeNotAllowed,
    VersionSyntax,
    VersionUnknown,
    VersionKnownBad,
    VersionEndOfLife,
    VersionSkipsMinor,
    VersionBelowFloor,
    VersionCannotGoDown,
    VersionWhileMixed,
    RepositoryInvalid,
    QuantityInvalid,
    QuantityNotPositive,
    DurationInvalid,
    StorageNotLargerThanQuota,
    StorageShrinks,
    StorageImmutable,
    StorageTwice,
    StorageEphemeralConflict,
    ClaimInvalid,
    ClaimImmutable,
    HeartbeatOutOfBounds,
    ElectionOutOfBounds,
    ElectionTooShort,
    CompactionInvalid,
    CompactionNeedsNewerEtcd,
    OutOfBounds,
    OptionNeedsNewerEtcd,
    OptionTwice,
    OptionInvalid,
    FlagMalformed,
    FlagOwned,
    FlagHasField,
    FlagUnknown,
    FlagNotInMinor,
    VariableInvalid,
    TlsTwice,
    TlsSecretMissing,
    TlsSecretUnused,
    TlsClientAuthUnused,
    TlsStaticIncomplete,
    TlsImmutable,
    LabelReserved,
    LabelInvalid,
    AnnotationReserved,
    AnnotationInvalid,
    ResourceLimitBelowRequest,
    NameInvalid,
    GraceOutOfBounds,
    UnreachableAfterOutOfBounds,
    BackupNameMissing,
    MaxAgeOutOfBounds,
    DeletionProtected,
    SeedInvalid,
    RecoveryOfAnother,
    RecoveryNotNeeded,
    BackupSubjectMissing,
    BackupSubjectTwice,
    EndpointInvalid,
    ClientTlsSecretUnused,
    StoreMissing,
    StoreTwice,
    StoreTypeMismatch,
    StorePathInvalid,
    StoreClaimMissing,
    StoreEndpointInvalid,
    StoreRegionInvalid,
    StoreAccountInvalid,
    ScheduleInvalid,
    ScheduleNever,
    ScheduleTwice,
    TimeZoneUnknown,
    TimeZoneUnused,
    RetentionTwice,
    RetentionTooShort,
    SnapshotInvalid,
    SnapshotUnused,
    RestoreTargetMissing,
    RestoreTargetTwice,
    RestoreImmutable,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One thing that is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where: `spec.size`.
    pub field: String,
    /// Which rule.
    pub reason: Reason,
    /// What is wrong and what would be accepted.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Something legal but risky, in at most 120 characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Where: `spec.size`.
    pub field: String,
    /// What to know.
    pub message: String,
}

impl fmt::Display for Warning {
    /// The line a person sees. A long map key could stretch it; then it is cut rather than dropped by the API server.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = format!("{}: {}", self.field, self.message);
        if line.chars().count() <= LONGEST_WARNING {
            return f.write_str(&line);
        }
        let cut: String = line.chars().take(LONGEST_WARNING - 1).collect();
        write!(f, "{cut}…")
    }
}

/// All that is wrong, and all that is risky.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    pub violations: Vec<Violation>,
    pub warnings: Vec<Warning>,
}

impl Judgement {
    /// Whether nothing is wrong.
    pub fn allowed(&self) -> bool {
        self.violations.is_empty()
    }

    pub(crate) fn refuse(
        &mut self,
        field: impl Into<String>,
        reason: Reason,
        message: impl Into<String>,
    ) {
        self.violations.push(Violation {
            field: field.into(),
            reason,
            message: message.into(),
        });
    }

    pub(crate) fn warn(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.warnings.push(Warning {
            field: field.into(),
            message: message.into(),
        });
    }

    /// Drops what was wrong before as well: an older object can be mended step by step.
    pub(crate) fn forgive(&mut self, before: &Self) {
        fn known(violation: &Violation) -> (&str, Reason, &str) {
            (&violation.field, violation.reason, &violation.message)
        }
        // A set: an object may have as many faults as fit a request.
        let before: BTreeSet<_> = before.violations.iter().map(known).collect();
        self.violations
            .retain(|violation| !before.contains(&known(violation)));
    }

    /// Keeps the value, or notes what is wrong with it.
    pub(crate) fn keep<T>(&mut self, result: Result<T, Violation>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(violation) => {
                self.violations.push(violation);
                None
            }
        }
    }
}

pub(crate) fn violation(
    field: impl Into<String>,
    reason: Reason,
    message: impl Into<String>,
) -> Violation {
    Violation {
        field: field.into(),
        reason,
        message: message.into(),
    }
}
