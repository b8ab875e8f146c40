//! The algorithms of diana-core, each with its script.

mod leaky_bucket;
mod token_bucket;
