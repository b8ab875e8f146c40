//! What the compiler says where an attribute is wrong: it points at the value, and says what would do.
//!
//! To see all of it anew after a change: `TRYBUILD=overwrite cargo test -p diana-macros --all-features --test limited_errors`.

#[test]
fn what_is_wrong_is_said_where_it_is() {
    trybuild::TestCases::new().compile_fail("tests/limited_errors/*.rs");
}
