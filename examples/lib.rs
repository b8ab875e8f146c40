//! Programs that show how to use Diana. Each is started with `cargo run --example NAME`, explains itself, and is
//! tested.
//!
//! | example | what it shows |
//! |---|---|
//! | `axum_service` | a web shop with everything that Diana offers a service |
//! | `own_filter` | a gateway with a filter and an algorithm of its own |
//! | `queue_consumer` | messages at an even rate, the costly ones later |
//! | `polite_crawler` | a limit for each host, and obeying the limits that hosts report |
//! | `upload` | a file at 50 KiB/s, with a progress bar |
//! | `two_processes` | one limit for two processes, on Redis |
