//! The custom resources of the etcd operator: types, defaults, validation, version policy, conversion between API versions.
//!
//! Pure functions: no I/O, no async, no clock. The webhook and the controller judge a resource with the same code.

pub mod duration;
pub mod quantity;
pub mod size;
pub mod v1beta2;
mod version;
pub mod versions;

pub use size::{ClusterSize, round_up_size};
pub use version::{Minor, Version};
