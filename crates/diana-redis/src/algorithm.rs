//! The algorithms of diana-core, each with its script.

mod leaky_bucket;
mod min_interval;
mod token_bucket;
mod total;
