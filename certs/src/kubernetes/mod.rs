//! The edge to Kubernetes: the authority's Secret or mounted files, the places that must trust it, and the loop that keeps both right.
//!
//! It reads and writes one Secret, or reads mounted files; it reads the objects it is told to publish to, and writes one field of each: `caBundle`.

mod bundle;
mod error;
mod keeper;
mod mounted;
mod obtain;
mod places;
mod secret;
mod serving;

pub use bundle::{Place, Trust};
pub use error::KeeperError;
pub use keeper::{Keeper, Settings, Standing};
pub use mounted::{MountSettings, MountedKeeper, Publish};
pub use secret::{SecretContent, StoreError};

/// Recorded by the API server as the author of what is written here.
pub const FIELD_MANAGER: &str = "etcd-operator-webhook";
