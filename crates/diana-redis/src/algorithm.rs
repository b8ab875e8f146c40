//! The algorithms of diana-core, each with its script.

mod token_bucket;
