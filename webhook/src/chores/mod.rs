//! Errands of the chart that need the operator's image, because it is the one image that is sure to be there: the proof behind `helm test`, and
//! leaving the definitions usable when the release goes. Not in `--help`: they are the chart's own business.
//!
//! Each connects to the API server, does one thing and ends.

mod prove;
mod withdraw;

use std::ffi::OsString;
use std::process::ExitCode;

use etcd_operator_process::run_with;

pub use prove::{ProofError, ProveFlags, prove_admission};
pub use withdraw::{WithdrawError, WithdrawFlags, withdraw};

/// What the program may be asked to do in place of serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chore {
    ProveAdmission,
    Withdraw,
}

impl Chore {
    /// The chore that the first word names, and the command line without that word.
    pub fn asked_for(
        words: impl IntoIterator<Item = OsString>,
    ) -> Option<(Self, impl Iterator<Item = OsString>)> {
        let mut words = words.into_iter();
        let program = words.next()?;
        let chore = match words.next()?.to_str()? {
            "prove-admission" => Self::ProveAdmission,
            "withdraw" => Self::Withdraw,
            _ => return None,
        };
        Some((chore, std::iter::once(program).chain(words)))
    }

    pub fn run(self, words: impl Iterator<Item = OsString>) -> ExitCode {
        match self {
            Self::ProveAdmission => run_with::<ProveFlags, _, _, _>(words, prove_admission),
            Self::Withdraw => run_with::<WithdrawFlags, _, _, _>(words, withdraw),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked_for(words: &[&str]) -> Option<(Chore, Vec<OsString>)> {
        let (chore, rest) = Chore::asked_for(words.iter().map(OsString::from))?;
        Some((chore, rest.collect()))
    }

    #[test]
    fn only_the_first_word_names_a_chore() {
        assert_eq!(
            asked_for(&["webhook", "withdraw", "--namespace=ns"]),
            Some((
                Chore::Withdraw,
                vec!["webhook".into(), "--namespace=ns".into()]
            ))
        );
        assert_eq!(asked_for(&["webhook", "--namespace", "withdraw"]), None);
        assert_eq!(asked_for(&["webhook"]), None);
    }
}
