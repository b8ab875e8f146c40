//! The algorithms of diana-core, each with its script.

mod fixed_window;
mod leaky_bucket;
mod min_interval;
mod refilling_bucket;
mod token_bucket;
mod total;
