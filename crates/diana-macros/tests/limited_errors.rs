//! Compiler errors for invalid attributes and quotas: they point at the value, and suggest a fix.
//!
//! To regenerate them after a change:
//! `TRYBUILD=overwrite cargo test -p diana-macros --all-features --test limited_errors`.

#[test]
fn invalid_attributes_are_reported_at_the_value() {
    trybuild::TestCases::new().compile_fail("tests/limited_errors/*.rs");
}
