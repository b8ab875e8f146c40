//! Clients of reqwest wait for their turn and heed what hosts say, over real connections and on time that the tests own.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that can't go on should stop")]

mod heeding;
mod site;
mod waiting;
mod world;
