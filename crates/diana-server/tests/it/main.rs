//! All integration tests of this crate in one program, since each program takes as long to link as all of them.
//!
//! `cargo test -p diana-server --test it NAME` runs a part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that can't go on should stop")]

mod admin_commands;
mod audit_log;
mod check;
mod check_files;
mod command_line;
mod command_line_page;
#[path = "../../../diana-rules/tests/it/common.rs"]
mod common;
mod dashboard;
mod denial_log;
mod docs_pages;
mod essays;
mod explain;
mod gateway;
mod gateway_page;
mod import_any_input;
mod import_envoy;
mod import_limitador;
mod import_lua;
mod import_nginx;
mod metrics;
mod packaging;
mod program_log;
mod quickstart;
mod readme_page;
mod rule_files;
mod services;
mod settings;
mod shared;
mod snapshot;
mod support;
mod top_view;

/// The registry that [`common`] reads files with.
fn registry() -> diana_rules::Registry {
    diana_server::registry()
}
