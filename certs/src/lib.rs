//! Certificates that manage themselves: an authority, its leaves, when each is renewed, and how trust moves from an old
//! authority to a new one without a gap.
//!
//! The pure part takes time and chance as arguments and touches nothing: `authority`, `leaf`, `inspect`, `verify`, `renewal`,
//! `rotation`, `pair`. `resolver` swaps what a TLS server shows, `client_check` whom it lets in. `files` reads mounted ones. `kubernetes` is the edge that keeps it all right in a cluster.

mod authority;
mod client_check;
mod error;
mod files;
mod inspect;
pub mod kubernetes;
mod leaf;
mod pair;
mod renewal;
mod resolver;
mod rotation;
mod verify;

pub use authority::CertificateAuthority;
pub use client_check::HotClientCheck;
pub use error::CertError;
pub use files::{BundleFile, CertificateFiles, Contents, FilesError};
pub use inspect::{Inspected, Validity, certificates_in, inspect};
pub use leaf::{Leaf, LeafRequest, Name, Usage};
pub use pair::Pair;
pub use renewal::{Jitter, renew_at};
pub use resolver::HotResolver;
pub use rotation::{AuthoritySet, RotationPolicy, RotationStep, Seen};
pub use verify::{verify_client, verify_server};
