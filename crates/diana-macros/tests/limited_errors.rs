//! Compiler errors for wrong attributes: they point at the value, and suggest a fix.
//!
//! To regenerate them after a change:
//! `TRYBUILD=overwrite cargo test -p diana-macros --all-features --test limited_errors`.

#[test]
fn what_is_wrong_is_said_where_it_is() {
    trybuild::TestCases::new().compile_fail("tests/limited_errors/*.rs");
}
