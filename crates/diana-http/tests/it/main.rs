//! All integration tests of this crate in one program, since each program takes as long to link as all of them.
//!
//! `cargo test -p diana-http --test it NAME` runs a part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that can't go on should stop")]

mod ambiguous;
mod attributes;
mod bandwidth;
#[cfg(all(feature = "axum", feature = "macros"))]
mod calls;
mod client;
mod credentials;
#[cfg(feature = "axum")]
mod examples;
mod fields;
mod giving_back;
mod heeding;
mod layer;
mod load;
mod outgoing;
mod page;
mod path;
mod refusals;
#[cfg(feature = "reqwest")]
mod reqwest;
mod settling;
#[cfg(feature = "signature")]
mod signature;
mod spellings;
mod support;
mod transcript;
