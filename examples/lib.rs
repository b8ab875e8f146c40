//! Programs that show Diana at work. Each is started with `cargo run --example NAME`, explains itself, and is tested.
//!
//! | example | what it shows |
//! |---|---|
//! | `axum_service` | a web shop with all that Diana has for a service |
//! | `polite_crawler` | a limit for each host, and heeding what hosts say |
//! | `two_processes` | one limit for two processes, on Redis |
