//! Readiness as ownership: whoever must do something before the process is ready owns a `Gate`, and only the owner can open it.
//! Touches nothing but memory.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What `/readyz` asks. Clones see the same gates.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    gates: Arc<Mutex<BTreeMap<&'static str, State>>>,
}

#[derive(Clone, Debug)]
enum State {
    Open,
    Closed(String),
}

/// One thing that must hold for the process to be ready. Starts closed.
///
/// Dropping it leaves an opened gate open for good, and a gate that is still closed closed for good: a task that dies before its
/// work is done must not make the process look ready.
#[must_use = "a gate that is dropped unopened keeps the process unready for ever"]
#[derive(Debug)]
pub struct Gate {
    name: &'static str,
    readiness: Readiness,
}

/// A gate that is closed, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotReady {
    pub gate: &'static str,
    pub reason: String,
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.gate, self.reason)
    }
}

impl Readiness {
    pub fn new() -> Self {
        Self::default()
    }

    /// A new closed gate. A name used twice is one gate with two owners; the last word counts.
    pub fn gate(&self, name: &'static str) -> Gate {
        self.lock()
            .insert(name, State::Closed("not done yet".to_owned()));
        Gate {
            name,
            readiness: self.clone(),
        }
    }

    /// The closed gates by name; empty means ready.
    pub fn pending(&self) -> Vec<NotReady> {
        self.lock()
            .iter()
            .filter_map(|(gate, state)| match state {
                State::Open => None,
                State::Closed(reason) => Some(NotReady {
                    gate,
                    reason: reason.clone(),
                }),
            })
            .collect()
    }

    pub fn is_ready(&self) -> bool {
        self.pending().is_empty()
    }

    /// A poisoned lock still holds a whole map: no code between lock and unlock can leave it half written.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, State>> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate {
    pub fn open(&self) {
        self.set(State::Open);
    }

    /// Not ready (again), and why, in words for the person who reads `/readyz`.
    pub fn close(&self, reason: impl Into<String>) {
        self.set(State::Closed(reason.into()));
    }

    /// Open for good: nobody can close it again.
    pub fn complete(self) {
        self.open();
    }

    fn set(&self, state: State) {
        let (is_open, reason) = match &state {
            State::Open => (true, String::new()),
            State::Closed(reason) => (false, reason.clone()),
        };
        let before = self.readiness.lock().insert(self.name, state);
        let was_open = matches!(before, Some(State::Open));
        if was_open != is_open {
            if is_open {
                tracing::info!(gate = self.name, "ready");
            } else {
                tracing::warn!(gate = self.name, %reason, "no longer ready");
            }
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let mut gates = self.readiness.lock();
        if let Some(State::Closed(reason)) = gates.get_mut(self.name) {
            *reason = format!("given up ({reason})");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_when_every_gate_is_open() {
        let readiness = Readiness::new();
        assert!(readiness.is_ready());
        let certificate = readiness.gate("certificate");
        let cache = readiness.gate("cache");
        assert_eq!(
            readiness
                .pending()
                .iter()
                .map(|p| p.gate)
                .collect::<Vec<_>>(),
            ["cache", "certificate"]
        );
        certificate.open();
        assert!(!readiness.is_ready());
        cache.complete();
        assert!(readiness.is_ready());
    }

    #[test]
    fn an_open_gate_can_close_again_and_says_why() {
        let readiness = Readiness::new();
        let gate = readiness.gate("certificate");
        gate.open();
        gate.close("the bundle was removed");
        assert_eq!(
            readiness.pending()[0].to_string(),
            "certificate: the bundle was removed"
        );
    }

    #[test]
    fn a_gate_dropped_unopened_never_looks_ready() {
        let readiness = Readiness::new();
        drop(readiness.gate("cache"));
        assert_eq!(
            readiness.pending()[0].to_string(),
            "cache: given up (not done yet)"
        );
    }

    #[test]
    fn a_gate_dropped_open_stays_open() {
        let readiness = Readiness::new();
        let gate = readiness.gate("cache");
        gate.open();
        drop(gate);
        assert!(readiness.is_ready());
    }
}
