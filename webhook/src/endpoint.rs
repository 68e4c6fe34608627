//! The paths the API server calls. Pure.

use std::fmt;

/// One path, one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    Admit(Step),
    Convert,
}

/// Which step of admission, for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    MutateCluster,
    ValidateCluster,
    MutateScale,
    ValidateScale,
    MutateBackup,
    ValidateBackup,
    MutateRestore,
    ValidateRestore,
}

impl Endpoint {
    pub const ALL: [Self; 9] = [
        Self::Admit(Step::MutateCluster),
        Self::Admit(Step::ValidateCluster),
        Self::Admit(Step::MutateScale),
        Self::Admit(Step::ValidateScale),
        Self::Admit(Step::MutateBackup),
        Self::Admit(Step::ValidateBackup),
        Self::Admit(Step::MutateRestore),
        Self::Admit(Step::ValidateRestore),
        Self::Convert,
    ];

    pub fn path(self) -> &'static str {
        match self {
            Self::Admit(Step::MutateCluster) => "/mutate-etcdcluster",
            Self::Admit(Step::ValidateCluster) => "/validate-etcdcluster",
            Self::Admit(Step::MutateScale) => "/mutate-scale",
            Self::Admit(Step::ValidateScale) => "/validate-scale",
            Self::Admit(Step::MutateBackup) => "/mutate-etcdbackup",
            Self::Admit(Step::ValidateBackup) => "/validate-etcdbackup",
            Self::Admit(Step::MutateRestore) => "/mutate-etcdrestore",
            Self::Admit(Step::ValidateRestore) => "/validate-etcdrestore",
            Self::Convert => "/convert",
        }
    }

    pub fn at(path: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|endpoint| endpoint.path() == path)
    }

    /// The largest body that is read. A review holds an object twice at most, which etcd keeps below 1.5 MiB and our schema far
    /// below that; a conversion may hold a whole list of them.
    pub fn largest_body(self) -> usize {
        match self {
            Self::Convert => 16 << 20,
            Self::Admit(_) => 3 << 20,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path())
    }
}
