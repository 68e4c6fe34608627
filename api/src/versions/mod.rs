//! What this operator knows about etcd's releases. Everything that differs by version asks here.

mod flags;
mod table;

pub use crate::version::{Minor, NotAVersion, Version};
pub use flags::{FlagPresence, names as flag_names, presence as flag_presence};
pub use table::{Abilities, CorruptionCheck, Release, State, newest, oldest, release, releases};
