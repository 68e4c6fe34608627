//! What the programs are made of: which packages, under which licences, and the bill of materials of an image.

pub mod metadata;
pub mod rules;
pub mod sbom;
