//! The admission and conversion server: reads AdmissionReviews, writes answers; never writes to the cluster beyond its own
//! certificates.
//!
//! `server` is HTTPS and knows no Kubernetes; `object`, `kinds`, `scale` and `convert` judge and know no sockets; `admission` joins the two;
//! `surroundings` is the only part that reads the API server; `run` starts it all. `chores` are not the server: short errands that the chart
//! sends the same program on.

mod admission;
pub mod chores;
pub mod convert;
mod endpoint;
pub mod fill;
mod flags;
mod kinds;
mod metrics;
pub mod object;
pub mod review;
mod run;
pub mod scale;
pub mod server;
pub mod surroundings;

pub use admission::Admission;
pub use endpoint::{Endpoint, Step};
pub use flags::{Certificates, Flags};
pub use metrics::Metrics;
pub use run::{RunError, run};
