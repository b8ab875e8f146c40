//! The diana-core algorithms, each with its Lua script.

mod concurrency;
mod fixed_window;
mod gcra;
mod guava;
mod leaky_bucket;
mod min_interval;
mod refilling_bucket;
mod sliding_log;
mod sliding_window;
mod smooth_bursty;
mod smooth_warming_up;
mod token_bucket;
mod total;
