//! Whole rule files, with all sections that the program reads.

mod content;
mod diagnostics;
mod gateway_section;
mod mutations;
mod rule_file_page;
mod sample_rules;
mod schema;
mod section_errors;
mod valid;
