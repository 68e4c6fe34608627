//! Continuous traffic on a cluster, and the proof from its history that no acknowledged write was lost.
//!
//! `traffic` talks to etcd; `judge` is pure and knows nothing but the history.
//!
//! One writer owns one key and writes 1, 2, 3 … each only on top of the revision it last saw (a transaction), so
//! an attempt whose answer was lost can take effect late but never over a later one. What the key may hold at any
//! moment is then known exactly, and linearizability is a few comparisons instead of a search.

mod judge;
mod traffic;

pub use judge::{Committed, History, Outcome, Read, Tick, Violation, Write, judge};
pub use traffic::{Summary, Traffic};
